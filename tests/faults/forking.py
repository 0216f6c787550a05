"""Starts Python commands as real processes, forked from one process that has imported the service.

Starting an interpreter and importing the service takes a second of processor time; forking takes a tenth."""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.moved_clock import clock_library, follow_moved_clock

ROOT = Path(__file__).parents[2]

_starting = threading.Lock()
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.faults.forking", "tests.faults.preloaded"])


def forking() -> ForkServerContext:
    """A context of multiprocessing, whose processes are forked from the one that has imported the service."""
    with _starting:
        before = os.environ.pop("LD_PRELOAD", None)
        os.environ |= {"LD_PRELOAD": str(library)} if (library := clock_library()) else {}
        try:
            forkserver.ensure_running()
        finally:
            os.environ.pop("LD_PRELOAD", None)
            os.environ |= {"LD_PRELOAD": before} if before is not None else {}
    return _context


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
    given. A command that finds no service starts none, unless the environment says so: then one is forked."""
    environment = {"SPILLGATE_AUTO_START": "false", **environment}
    files = {0: stdin, 1: output, 2: errors or output}
    for file in (output, errors or output):
        if not file.is_fifo():
            file.write_bytes(b"")
    process = forking().Process(target=_run, args=(command, environment, files, cwd), daemon=True)
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
    sys.__stdout__ = sys.stdout  # type: ignore[misc]
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    subprocess.Popen = _popen  # type: ignore[assignment, misc]
    _execute(command)


def _execute(command: Sequence[str]) -> None:
    if command[0] == "-m":
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    elif command[0] == "-c":
        sys.argv = [command[0], *command[2:]]
        exec(compile(command[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = list(command)
        runpy.run_path(command[0], run_name="__main__")


_usual_popen = subprocess.Popen
_OWN_SERVICE = [sys.executable, "-P", "-m", "app.cli.main"]


def _popen(command: Any, *given: Any, **named: Any) -> "_usual_popen[bytes] | _OwnService":
    is_service = command[:4] == _OWN_SERVICE
    return _OwnService(command[2:], **named) if is_service else _usual_popen(command, *given, **named)


class _OwnService:
    """The user's own service, which a command has started: forked from that command. As for one that is
    executed, no other file is open, and no signal is handled."""

    def __init__(
        self, command: Sequence[str], env: dict[str, str], stderr: int, pass_fds: tuple[int], **_: object
    ) -> None:
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os._exit(_served(command, env, stderr, *pass_fds))
            finally:
                # After an exception alone.
                traceback.print_exc()
                os._exit(1)

    def poll(self) -> int | None:
        if self._status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if ended else None
        return self._status


def _served(command: Sequence[str], environment: dict[str, str], errors: int, lock: int) -> int:
    """Its exit status."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, file in enumerate((nothing, nothing, errors)):
        os.dup2(file, number)
    os.closerange(3, lock)
    os.closerange(lock + 1, os.sysconf("SC_OPEN_MAX"))
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    try:
        _execute(command)
    except SystemExit as ended:
        sys.stderr.flush()
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
