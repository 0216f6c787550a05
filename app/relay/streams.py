"""Streams of messages, a line each. Imports little: the relay starts its server before it reads a message."""

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

Buffer = bytes | bytearray | memoryview
Pieces = list[Buffer]
"""A message in pieces, so that a large one is never copied."""

FromClient = Callable[[Buffer], Pieces | None]
FromServer = Callable[[Buffer], Pieces]

SIGNAL_SECONDS = 0.5
"""The main thread, which handles signals, waits at most so long at a time."""

_READ_BYTES = 1 << 16
_MOST_PIECES = 256


class Output:
    """A stream that several threads write messages to, each message in one piece."""

    def __init__(self, fd: int, after_first: Callable[[], None] = lambda: None) -> None:
        """`after_first` is called once, when the first message has been written."""
        self._fd = fd
        self._after_first: Callable[[], None] | None = after_first
        self._lock = threading.Lock()

    def write(self, pieces: Pieces) -> None:
        """Raises OSError, for a reader that is gone say."""
        with self._lock:
            left = [memoryview(piece) for piece in pieces if piece]
            while left:
                try:
                    written = os.writev(self._fd, left[:_MOST_PIECES])
                except BlockingIOError:
                    select.select([], [self._fd], [])
                    continue
                while left and written >= len(left[0]):
                    written -= len(left.pop(0))
                if left:
                    left[0] = left[0][written:]
            if self._after_first is not None:
                self._after_first()
                self._after_first = None

    def close(self) -> None:
        """Other threads may have something to write yet: OSError, then."""
        with self._lock:
            os.close(self._fd)
            self._fd = -1


def to_stderr(line: Buffer) -> None:
    """Writes a line, which is lost if stderr is closed."""
    with suppress(OSError, ValueError):
        sys.stderr.buffer.write(line)
        sys.stderr.flush()


def read_from(fd: int) -> Callable[[int], bytes]:
    """Reads as os.read; nothing, if the other side is gone."""

    def read(size: int) -> bytes:
        while True:
            try:
                return os.read(fd, size)
            except BlockingIOError:
                select.select([fd], [], [])
            except OSError:
                return b""

    return read


def may_be_message(line: Buffer) -> bool:
    """False for what cannot be JSON-RPC, as servers print by mistake."""
    return bytes(line[:64]).lstrip()[:1] in (b"{", b"[")


def lines(read: Callable[[int], bytes]) -> Iterator[bytes | bytearray]:
    """Lines with their ends, of any length, until `read` returns nothing. A long line is held once."""
    held = bytearray()
    while chunk := read(_READ_BYTES):
        start = 0
        while end := chunk.find(b"\n", start) + 1:
            if held:
                held += memoryview(chunk)[start:end]
                line, held = held, bytearray()
                yield line
                del line
            else:
                yield chunk[start:end]
            start = end
        held += memoryview(chunk)[start:]
    if held:
        yield held
