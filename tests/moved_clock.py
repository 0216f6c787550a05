"""The wall clock of real processes, moved while they run; their monotonic clocks are left alone."""

import shutil
import struct
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_suffix(".c")


@cache
def _library() -> Path:
    """Skips the test where it cannot be built."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip(
            "The clock of a process is moved on Linux, with a C compiler: apt-get install gcc libc6-dev."
        )
    library = Path(tempfile.mkdtemp()) / "moved_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", library, _SOURCE], check=True)
    return library


class MovedClock:
    """The clock of all processes that are started with its `environment`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(bytes(8))

    def move(self, seconds: float) -> None:
        """From now on it is ahead by so much, or behind if that is below 0."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", int(seconds * 1_000_000_000)))

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(_library()), "MOVED_CLOCK": str(self._file)}


class Executed:
    """A Python command in an interpreter of its own, with the methods of a process that was forked."""

    def __init__(
        self, command: tuple[str, ...], environment: dict[str, str], output: Path, where: Path
    ) -> None:
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, *command], env=environment, stdout=file, stderr=file, cwd=where
            )
        self.pid: int | None = self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()

    def join(self, timeout: float) -> None:
        self._process.wait(timeout)
