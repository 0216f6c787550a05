"""Starts Python commands as real processes, forked from one process that has imported the service.

Starting an interpreter and importing the service takes a second of processor time; forking takes a tenth."""

import multiprocessing
import os
import runpy
import sys
import tempfile
import warnings
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.moved_clock import clock_library, follow_moved_clock

ROOT = Path(__file__).parents[2]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.faults.forking", "tests.faults.preloaded"])


def start_process(
    command: tuple[str, ...],
    environment: dict[str, str],
    output: Path,
    errors: Path | None = None,
    stdin: Path | None = None,
    cwd: Path = ROOT,
) -> ForkServerProcess:
    """`command` is what would follow `python`: a path, `-m` and a module, or `-c` and code; and arguments.
    What it prints goes to the file or FIFO `output`; what it prints to standard error to `errors`, if that is
    given. A command that finds no service starts none, unless the environment says so."""
    environment = {"SPILLGATE_AUTO_START": "false", **environment}
    files = {0: stdin, 1: output, 2: errors or output}
    for file in (output, errors or output):
        if not file.is_fifo():
            file.write_bytes(b"")
    with pytest.MonkeyPatch.context() as patch:
        if library := clock_library():
            patch.setenv("LD_PRELOAD", str(library))
        forkserver.ensure_running()
    process = _context.Process(target=_run, args=(command, environment, files, cwd), daemon=True)
    process.start()
    return process


def run(
    command: tuple[str, ...], environment: dict[str, str], stdin: bytes, cwd: Path = ROOT
) -> CompletedProcess[bytes]:
    """Runs a command like subprocess.run, with `stdin` in a file."""
    with tempfile.TemporaryDirectory() as place:
        given, output, errors = (Path(place, name) for name in ("input", "output", "errors"))
        given.write_bytes(stdin)
        process = start_process(command, environment, output, errors, given, cwd)
        process.join()
        assert process.exitcode is not None
        return CompletedProcess(command, process.exitcode, output.read_bytes(), errors.read_bytes())


def _run(
    command: tuple[str, ...], environment: dict[str, str], files: dict[int, Path | None], cwd: Path
) -> None:
    # The server that forks ignores an ImportError: here it is raised.
    import_module("tests.faults.preloaded")
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    follow_moved_clock()
    if environment.get("PYTHONWARNINGS") == "error":
        # Python reads it when an interpreter starts.
        warnings.simplefilter("error")
    for number, path in files.items():
        if path is not None:
            file = os.open(path, os.O_WRONLY if number else os.O_RDONLY)
            os.dup2(file, number)
            os.close(file)
    # The server that forks has no stdin, and gives each process /dev/null. Its outputs may be seekable.
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    if command[0] == "-m":
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    elif command[0] == "-c":
        sys.argv = [command[0], *command[2:]]
        exec(compile(command[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = list(command)
        runpy.run_path(command[0], run_name="__main__")
