"""Streams of messages, a line each, and a server that is a command with such streams.

Imports little: the relay starts its server before it reads a message.
"""

import math
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from machine.descriptors import Buffer, write_all

FromClient = Callable[[Buffer], Buffer | None]
FromServer = Callable[[Buffer], Buffer]

SIGNAL_SECONDS = 0.5
"""The main thread, which handles signals, waits at most so long at a time."""

_READ_BYTES = 1 << 16

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class MessageOutput:
    """A stream that several threads write messages to, each message in one piece."""

    def __init__(
        self,
        fd: int,
        after_first: Callable[[], None] = lambda: None,
        before_close: Callable[[], None] = lambda: None,
    ) -> None:
        """`after_first` is called once, when the first message has been written."""
        self._fd = fd
        self._before_close = before_close
        self._after_first: Callable[[], None] | None = after_first
        self._lock = threading.Lock()

    def write(self, message: Buffer) -> None:
        """Raises OSError, for example if the reader is gone."""
        with self._lock:
            write_all(self._fd, message)
            if self._after_first is not None:
                self._after_first()
                self._after_first = None

    def close(self) -> None:
        """What other threads write after that is an OSError."""
        self._before_close()
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


def lines(read: Callable[[int], bytes], most: float = math.inf) -> Iterator[bytes | bytearray]:
    """Lines with their ends until `read` returns nothing. A long line is held once. Raises ValueError for one
    of more than `most` bytes."""
    pending = bytearray()
    while chunk := read(_READ_BYTES):
        start = 0
        while end := chunk.find(b"\n", start) + 1:
            if pending:
                pending += memoryview(chunk)[start:end]
                line, pending = pending, bytearray()
                yield line
                del line
            else:
                yield chunk[start:end]
            start = end
        pending += memoryview(chunk)[start:]
        if len(pending) > most:
            raise ValueError("A line is too long.")
    if pending:
        yield pending


class CommandServer:
    """An MCP server that is a process of its own. Its stderr is that of this process."""

    def __init__(self, command: Sequence[str]) -> None:
        """Starts it. Raises OSError."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0)  # noqa: S603

    def run(self, from_client: FromClient, from_server: FromServer, client: MessageOutput) -> int:
        """Relays until the server has ended and all its output is relayed. Returns its exit status; negative:
        the signal that ended it. Signals that this process gets are passed on."""
        for number in SIGNALS:
            signal.signal(number, lambda got, frame: self._process.send_signal(got))
        threading.Thread(target=self._to_server, args=(from_client,), daemon=True).start()
        reader = threading.Thread(target=self._to_client, args=(from_server, client), daemon=True)
        reader.start()
        # A signal that comes just before a wait begins does not interrupt it.
        while reader.is_alive():
            reader.join(SIGNAL_SECONDS)
        if self._process.poll() is None:
            client.close()
        while True:
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(SIGNAL_SECONDS)

    def _to_server(self, from_client: FromClient) -> None:
        assert self._process.stdin is not None
        upward = MessageOutput(self._process.stdin.fileno())
        for line in lines(read_from(0)):
            message = from_client(line)
            try:
                upward.write(message or b"")
            except OSError:
                os.close(0)  # The server reads no more: the client must not write.
                break
        self._process.stdin.close()

    def _to_client(self, from_server: FromServer, client: MessageOutput) -> None:
        assert self._process.stdout is not None
        for line in lines(read_from(self._process.stdout.fileno())):
            if not may_be_message(line):
                to_stderr(line)
                continue
            message = from_server(line)
            try:
                client.write(message)
            except OSError:
                self._process.stdout.close()  # The client reads no more: the server must not write.
                return
