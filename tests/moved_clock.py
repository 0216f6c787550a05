"""The wall clock of real processes, moved while they run; their monotonic clocks are left alone."""

import ctypes
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")
_NAME = "MOVED_CLOCK"


@cache
def clock_library() -> Path | None:
    """None where it cannot be built."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = Path(tempfile.mkdtemp()) / "moved_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", library, _SOURCE], check=True)
    return library


def follow_moved_clock() -> None:
    """In a process that was forked from one with the library: the clock is that of its own environment."""
    if path := os.environ.get(_NAME):
        ctypes.CDLL(None).moved_clock_follow(os.fsencode(path))


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
        library = clock_library()
        if library is None:
            import pytest  # Takes a quarter of a second, which the process that forks does not need.

            pytest.skip(
                "The clock of a process is moved on Linux, with a C compiler: apt-get install gcc libc6-dev."
            )
        return {"LD_PRELOAD": str(library), _NAME: str(self._file)}
