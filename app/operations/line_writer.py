"""Writes lines in a thread of its own: the log, the accounting export and the audit delay no request."""

import errno
import logging
import os
import queue
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from app.operations.repeat_filter import RepeatFilter
from domain.errors import ConfigError
from machine.descriptors import write_all

STANDARD_OUTPUT = "-"
KEPT_FILES = 5
MOST_AT_ONCE = 32
"""Fewer lines than in the smallest file that is rotated."""
PAUSE_SECONDS = 0.02
CLOSE_SECONDS = 6.0
MOST_WAITING = 20_000
"""Lines of the export or the audit in memory that are not written yet, of 0.5 to 1 KB each. More are dropped,
and counted."""

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_STDOUT = 1
_OWNER_ONLY = 0o600
_LINK = "it is a symbolic link. Name the file itself, or write `-` for standard output."

T = TypeVar("T")

log = logging.getLogger("spillgate.lines")


class LineOutput(Protocol):
    def write(self, lines: bytes) -> None:
        """Raises OSError if not all bytes are written."""
        ...

    def close(self) -> None: ...


class LineWriter(Generic[T]):
    """Writes items in a thread, in the order in which they were put: up to MOST_AT_ONCE together, then a
    pause. Written one by one, as `logging.handlers.QueueListener` does, the lines of export and audit cost
    half of a small result. Items past `most_waiting`, and those of a write that fails, are dropped:
    `lose` is called with the reason and their number, on any thread.

    The thread writes with system calls alone. A buffered file or a logging handler has a lock, which the end
    of the interpreter would wait for while a pipe that is not read holds up the thread."""

    def __init__(
        self,
        output: LineOutput,
        encode: Callable[[T], bytes],
        most_waiting: int,
        lose: Callable[[str, int], None],
    ) -> None:
        # Unlike queue.Queue, its `put` may be interrupted by a finalizer that logs.
        self._waiting: queue.SimpleQueue[T | threading.Event] = queue.SimpleQueue()
        self._output = output
        self._encode = encode
        self._most_waiting = most_waiting
        self._lose = lose
        self._is_ended = False
        threading.Thread(target=self._write_waiting, daemon=True).start()

    def put_nowait(self, item: T) -> None:
        """Never waits. Named as `logging.handlers.QueueHandler` calls it."""
        if self._waiting.qsize() < self._most_waiting:
            self._waiting.put(item)
        else:
            self._lose(f"{self._most_waiting:,} lines wait: what reads them has stopped, or is too slow", 1)

    def flush(self, seconds: float) -> bool:
        """Returns True when all items are written; False after this many seconds."""
        written = threading.Event()
        self._waiting.put(written)
        return written.wait(seconds)

    def end(self) -> None:
        """Ends the thread once the items are written. Does not wait for it."""
        self._is_ended = True
        self._waiting.put(threading.Event())

    def _write_waiting(self) -> None:
        while not (self._is_ended and self._waiting.empty()):
            items = [self._waiting.get()]
            while len(items) < MOST_AT_ONCE and not self._waiting.empty():
                items.append(self._waiting.get())
            lines = [self._encode(one) for one in items if not isinstance(one, threading.Event)]
            if lines:
                self._write(lines)
            for one in items:
                if isinstance(one, threading.Event):
                    one.set()
            if len(items) < MOST_AT_ONCE:
                time.sleep(PAUSE_SECONDS)
        self._output.close()

    def _write(self, lines: list[bytes]) -> None:
        try:
            self._output.write(b"".join(lines))
        except OSError as error:
            self._lose(errno.errorcode.get(error.errno or 0, type(error).__name__), len(lines))


class JsonLines(LineWriter[T]):
    """Items as lines of JSON, in the file or on the standard output that a setting names. A line that cannot
    be written is counted and logged, and delays no request."""

    def __init__(
        self,
        setting: str,
        target: str,
        count: Callable[[int], None],
        max_bytes: int | None = None,
        encode: Callable[[T], bytes] = msgspec.json.encode,
    ) -> None:
        """`count` is called with the number of lines that are lost. `max_bytes`: see `_File`. `encode`
        returns an item's JSON. Raises ConfigError if the file cannot be opened."""
        self._setting, self._target, self._count = setting, target, count
        self._logged = RepeatFilter()
        super().__init__(
            _opened(target, setting, max_bytes),
            lambda item: encode(item) + b"\n",
            MOST_WAITING,
            self._note_loss,
        )

    def close(self) -> None:
        """Returns when all lines are written, or after CLOSE_SECONDS: the reader of a pipe may have stopped
        reading."""
        is_written = self.flush(CLOSE_SECONDS)
        self.end()
        if not is_written:
            self._note_loss("they were not written before the end", self._waiting.qsize())

    def _note_loss(self, why: str, lines: int) -> None:
        self._count(lines)
        if (before := self._logged.note(why, lines)) is not None:
            fields = {"target": self._target, "lost": before + lines, "why": why}
            log.warning("Lines of %s are lost.", self._setting, extra={"fields": fields})


class Descriptor:
    """A copy of an open descriptor. The interpreter waits at its end for the lock of a stream that is written
    to; a descriptor has none."""

    def __init__(self, descriptor: int) -> None:
        """Raises OSError."""
        self._descriptor = os.dup(descriptor)

    def write(self, lines: bytes) -> None:
        write_all(self._descriptor, lines)

    def close(self) -> None:
        os.close(self._descriptor)


class _File:
    """A file of mode 0600. One that has reached `max_bytes` becomes FILE.1, FILE.1 becomes FILE.2, up to
    FILE.5; None: it grows. It is opened again if it was deleted or moved away. A FIFO is opened for the first
    line, which waits for a reader."""

    def __init__(self, path: Path, max_bytes: int | None) -> None:
        """Raises OSError."""
        self._path = path
        self._max_bytes = max_bytes
        self._is_torn = False
        """True after a write that was not whole."""
        self._descriptor = None if path.is_fifo() else self._open()

    def write(self, lines: bytes) -> None:
        if self._descriptor is not None and not _is_at(self._path, self._descriptor):
            self.close()
        if self._descriptor is None:
            self._descriptor = self._open()
        if self._max_bytes is not None and self._is_full(self._descriptor, self._max_bytes - len(lines)):
            self.close()
            self._rotate()
            self._descriptor = self._open()
        lines = b"\n" * self._is_torn + lines
        self._is_torn = True
        try:
            write_all(self._descriptor, lines)
        except BrokenPipeError:
            self.close()
            raise
        self._is_torn = False

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _is_full(self, descriptor: int, room: int) -> bool:
        status = os.fstat(descriptor)
        return stat.S_ISREG(status.st_mode) and 0 < status.st_size >= room

    def _open(self) -> int:
        try:
            descriptor = os.open(self._path, _APPEND)
        except FileNotFoundError:
            descriptor = os.open(self._path, _APPEND | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            try:
                os.fchmod(descriptor, _OWNER_ONLY)
            except OSError:
                os.close(descriptor)
                raise
        self._is_torn = _lacks_newline(self._path)
        return descriptor

    def _rotate(self) -> None:
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, KEPT_FILES + 1))]
        for older, newer in reversed(list(zip(names[1:], names, strict=False))):
            with suppress(FileNotFoundError):
                newer.replace(older)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lacks_newline(path: Path) -> bool:
    """Returns whether its last line lacks the newline, because the disk was full and the process was
    killed."""
    if path.is_file():
        with suppress(OSError), path.open("rb") as file:
            # Of an empty file this raises OSError.
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"
    return False


def _opened(target: str, setting: str, max_bytes: int | None) -> LineOutput:
    """Raises ConfigError, which names the setting, if the file cannot be opened."""
    try:
        if target == STANDARD_OUTPUT:
            return Descriptor(_STDOUT)
        return _File(Path(target).absolute(), max_bytes)
    except OSError as error:
        raise _unwritable(setting, error.errno or 0) from None


def check_target(target: str, setting: str) -> None:
    """Raises ConfigError for a file that could not be opened for writing. Makes none."""
    if target == STANDARD_OUTPUT:
        return
    path = Path(target).absolute()
    try:
        os.stat(f"{path.parent}/")
        # From Python 3.14 on, `is_dir` is False where this fails, as for a name that is too long.
        with suppress(FileNotFoundError):
            os.lstat(path)
        is_directory = path.is_dir()
    except OSError as error:
        raise _unwritable(setting, error.errno or 0) from None
    if is_directory:
        raise _unwritable(setting, errno.EISDIR)
    if path.is_symlink():
        raise _unwritable(setting, errno.ELOOP)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _unwritable(setting, errno.EACCES)


def _unwritable(setting: str, why: int) -> ConfigError:
    reason = _LINK if why == errno.ELOOP else f"{os.strerror(why)}."
    return ConfigError(f"{setting} cannot be opened for writing: {reason}")
