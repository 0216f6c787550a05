"""HTTP/1.1 with deadlines: uvicorn's protocol, and bounds on what a slow or greedy client can hold."""

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, ClassVar

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.edge.refusals import CROWDED, INVALID, LARGE_HEAD, SLOW_BODY, SLOW_HEAD, Refusal
from app.edge.request_body import RequestBody
from app.errors import stored_of

MAX_CONNECTIONS = 4096

_FRAMING = (b"content-length", b"transfer-encoding")


class HeadTooLarge(Exception):
    """Ends the parsing of a header block."""


class Closer:
    """A request's transport: closing it does not cut off an answer that the client has yet to read."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, protocol: "Protocol") -> None:
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.close_gently


class Protocol(HttpToolsProtocol):
    """A connection is read in two phases: the head (between requests, and a header block), then its body.
    Deadlines are kept by one sweep over all connections, not by a timer a request."""

    HEAD_SECONDS: ClassVar[float] = 10.0
    BODY_SECONDS: ClassVar[float] = 15.0
    BODY_PROGRESS: ClassVar[int] = 1024
    # A body that holds bytes of the common pool keeps others out of it: it has to hurry more. A streamed one
    # that is let go on the way does not.
    HOLDER_PROGRESS: ClassVar[int] = 256 << 10
    READER_SECONDS: ClassVar[float] = 30.0
    LINGER_SECONDS: ClassVar[float] = 2.0
    LINGER_BYTES: ClassVar[int] = 128 << 20
    MAX_HEAD: ClassVar[int] = 16 << 10
    MAX_TARGET: ClassVar[int] = 8 << 10
    MAX_PIPELINED: ClassVar[int] = 64

    def __init__(
        self,
        *args: Any,
        refused: Callable[[str], None] = lambda code: None,
        max_connections: int = MAX_CONNECTIONS,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.max_connections = max_connections
        self.told = refused
        self.in_body = False
        self.since: float | None = self.loop.time()  # when this phase last moved; None: nothing is due
        self.pending = 0  # read, but neither a whole head nor body yet
        self.body_bytes = 0
        self.body_mark = 0
        self.write_mark = 0
        self.write_since = 0.0
        self.deaf = False
        self.lingering = False
        self.discarded = 0
        self.framing: list[tuple[bytes, bytes]] = []  # of a body that is still to be read past an upgrade

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.closer = Closer(self)
        if len(self.connections) > self.max_connections:
            self._answer(CROWDED, None)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        # Or this connection would be garbage that only the collector frees.
        self.closer.close = self.transport.close
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self.deaf:
            self._discard(len(data))
            return
        if not self.in_body and not self.pending:
            self.since = self.loop.time()
        self.pending += len(data)
        try:
            self._feed(data)
        except HttpParserError as error:
            self.refuse(LARGE_HEAD if isinstance(error.__context__, HeadTooLarge) else INVALID)
            return
        if self.pending > self.MAX_HEAD:
            # In a body these are chunk extensions or trailers without end.
            self.refuse(INVALID if self.in_body else LARGE_HEAD)

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                if self.framing:
                    self._decline_upgrade()

    def _decline_upgrade(self) -> None:
        """The parser takes what follows an `Upgrade` (Java's client asks for h2c) for the new protocol.
        A fresh one is told of the body by a head of its own, which goes nowhere."""
        lines = b"".join(b"%b: %b\r\n" % header for header in self.framing)
        self.parser = HttpRequestParser(self)
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + lines + b"\r\n")
        self.framing = []

    def on_message_begin(self) -> None:
        if not self.framing:
            self.since = self.loop.time()
            super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.framing:
            return
        headers = self.headers
        size = len(self.url) + sum(map(len, chain.from_iterable(headers))) + 4 * len(headers)
        if (
            size > self.MAX_HEAD
            or len(self.url) > self.MAX_TARGET
            or len(self.pipeline) >= self.MAX_PIPELINED
        ):
            raise HeadTooLarge
        super().on_headers_complete()
        self.cycle.transport = self.closer  # type: ignore[assignment]
        # Trailers must not become headers of a request that was admitted without them.
        self.headers = []
        self.in_body = True
        self.since = self.loop.time()
        self.pending = self.body_bytes = self.body_mark = 0
        if self.parser.should_upgrade():
            self.framing = [(name, value) for name, value in headers if name in _FRAMING and value != b"0"]

    def on_body(self, body: bytes) -> None:
        self.pending = 0
        self.body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.framing:
            self.in_body = False
            self.pending = 0
            self.since = None
            super().on_message_complete()

    def refuse(self, refusal: Refusal) -> None:
        """Answers and closes. A request that is whole already is answered by the app first."""
        self.deaf = True
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not self.in_body:
            cycle.keep_alive = False
            return
        if not self.in_body:
            self._answer(refusal, None)
        elif not cycle.response_started and not self.pipeline:
            self._answer(refusal, stored_of(cycle.scope["method"], cycle.scope["path"]))
        if self.in_body:
            cycle.disconnected = True
            cycle.message_event.set()
        self.close_gently()

    def _answer(self, refusal: Refusal, stored: bool | None) -> None:
        self.told(refusal.code)
        self.deaf = True
        self.transport.write(refusal.answer(self.server_state.default_headers, stored))

    def close_gently(self) -> None:
        """Closes. To a client that is still sending, a close at once would be a reset, and cost it the
        answer: what it sends is thrown away for a moment longer."""
        if self.transport.is_closing() or self.lingering:
            return
        if not self.in_body and not self.pending:
            self.transport.close()
            return
        self.deaf = self.lingering = True
        self.since = self.loop.time()
        self.flow.resume_reading()
        self.transport.write_eof()

    def _discard(self, size: int) -> None:
        self.discarded += size
        if self.discarded > self.LINGER_BYTES:
            self.transport.abort()

    def on_response_complete(self) -> None:
        if self.lingering:
            self.server_state.total_requests += 1
        else:
            super().on_response_complete()

    def keep_time(self, now: float) -> None:
        if self._reader_stalled(now):
            self.transport.abort()
        elif self.lingering:
            if self.since is not None and now - self.since >= self.LINGER_SECONDS:
                self.transport.close()
        elif self.deaf or self.since is None:
            return
        elif self._is_held(now):
            self.since = now
        elif self.in_body:
            if now - self.since >= self.BODY_SECONDS:
                self.refuse(SLOW_BODY)
        elif now - self.since >= self.HEAD_SECONDS:
            if self.cycle is None and not self.pending:
                self.transport.close()
            else:
                self.refuse(SLOW_HEAD)

    def _is_held(self, now: float) -> bool:
        """True while it is not the client that keeps us waiting."""
        if self.flow.read_paused:
            return True
        if not self.in_body:
            return False
        visit = self.cycle.scope.get("request_body")
        hurries = isinstance(visit, RequestBody) and visit.holds_pool
        wanted = self.HOLDER_PROGRESS if hurries else self.BODY_PROGRESS
        moved = self.body_bytes - self.body_mark >= wanted
        if moved:
            self.body_mark = self.body_bytes
        return moved or self.cycle.waiting_for_100_continue or bool(self.pipeline)

    def _reader_stalled(self, now: float) -> bool:
        """True when nothing was drained for long, and nothing but the reader can drain it."""
        unsent = self.transport.get_write_buffer_size()
        cycle = self.cycle
        if not unsent or not (self.flow.write_paused or cycle is None or cycle.response_complete):
            self.write_since = now
            return False
        # The kernel asks for more only when much of its own queue is free: a slow reader moves that first.
        unsent += _kernel_queue(self.transport)
        if unsent < self.write_mark or not self.write_mark:
            self.write_since = now
        self.write_mark = unsent
        return now - self.write_since >= self.READER_SECONDS


def _kernel_queue(transport: asyncio.Transport) -> int:
    """Bytes that the kernel holds for the reader; 0 where it does not tell."""
    try:
        answer = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0
    return int.from_bytes(answer, sys.byteorder)


def sweep(connections: Iterable[Any], now: float) -> None:
    for connection in tuple(connections):
        connection.keep_time(now)
