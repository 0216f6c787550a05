"""Starts Python commands as real processes, forked from one process that has imported the service.

Starting an interpreter and importing the service takes a second of processor time; forking takes a tenth."""

import multiprocessing
import os
import runpy
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

ROOT = Path(__file__).parents[2]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.faults.forking", "tests.faults.preloaded"])


def start_process(command: tuple[str, ...], environment: dict[str, str], output: Path) -> ForkServerProcess:
    """`command` is what would follow `python`: a path, or `-m` and a module, and its arguments. What it
    prints, to standard output or error, goes to the file `output`."""
    output.write_bytes(b"")
    process = _context.Process(target=_run, args=(command, environment, output), daemon=True)
    process.start()
    return process


def _run(command: tuple[str, ...], environment: dict[str, str], output: Path) -> None:
    # The server that forks ignores an ImportError.
    assert "tests.faults.preloaded" in sys.modules
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    if command[0] == "-m":
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(command)
        runpy.run_path(command[0], run_name="__main__")
