"""HTTP/1.1 with bounds: uvicorn's protocol, with a deadline for each head, body and reader.

What it leans on of uvicorn is not public: `tests/test_leaned_on.py` names it, and pyproject.toml bounds the
versions.
"""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from itertools import chain
from typing import Any, ClassVar

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.http.api.problems import MEDIA_TYPE, OnRefusal, headers_of, problem_of, stored_of
from app.http.api.request_body import RequestBody
from app.operations.logs import within_request
from domain import errors

MAX_CONNECTIONS = 4096

_FRAMING = (b"content-length", b"transfer-encoding")

INVALID = errors.BadRequest("This is not a valid HTTP/1.1 request.")
SLOW_HEAD = errors.HeaderTimeout()
SLOW_BODY = errors.BodyTimeout()
LARGE_HEAD = errors.HeadersTooLarge()
CROWDED = errors.Overloaded("Too many connections are open. Try again in a moment.")


def _refusal(
    error: errors.SpillgateError, headers: Iterable[tuple[bytes, bytes]], stored: bool | None
) -> bytes:
    """All of an answer with which the protocol ends a connection, before or instead of the app."""
    body = msgspec.json.encode(problem_of(error, stored=stored))
    lines = [
        *headers,
        *[(name.lower().encode(), value.encode()) for name, value in headers_of(error).items()],
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    status = b"HTTP/1.1 %d %b\r\n" % (error.status, HTTPStatus(error.status).phrase.encode())
    return status + b"".join(b"%b: %b\r\n" % line for line in lines) + b"\r\n" + body


class Protocol(HttpToolsProtocol):
    """One connection. Its deadlines are checked by `sweep`, about once a second, not by a timer for each."""

    HEAD_SECONDS: ClassVar[float] = 10.0
    BODY_SECONDS: ClassVar[float] = 15.0
    """A body must bring BODY_PROGRESS bytes within this time."""
    BODY_PROGRESS: ClassVar[int] = 1024
    HOLDER_PROGRESS: ClassVar[int] = 256 << 10
    """The same for a body that holds bytes of the common pool: it keeps other requests out of it."""
    READER_SECONDS: ClassVar[float] = 30.0
    LINGER_SECONDS: ClassVar[float] = 2.0
    MAX_HEAD: ClassVar[int] = 16 << 10
    MAX_TARGET: ClassVar[int] = 8 << 10
    WRITE_BUFFER: ClassVar[int] = 4 << 10
    """An answer waits while more than this is unsent."""

    def __init__(
        self,
        *args: Any,
        refused: OnRefusal = lambda error, method, path: None,
        max_connections: int = MAX_CONNECTIONS,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.max_connections = max_connections
        self.refused = refused
        self.now = self.loop.time()  # when data came
        self.since: float | None = self.now  # None: the client is not waited for
        self.idle_since: float | None = None  # when the last request was answered
        self.pending = 0  # bytes since the last complete head or piece of a body
        self.in_body = False
        self.body_bytes = self.body_mark = 0
        self.unsent_mark, self.unsent_since, self.has_drained = 0, self.now, False
        self.is_deaf = False  # what still arrives is discarded
        self.answered: RequestResponseCycle | None = None  # now; `cycle` is the newest request
        self.framing: list[tuple[bytes, bytes]] = []  # of a body that follows a declined upgrade

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self.WRITE_BUFFER)
        if len(self.connections) > self.max_connections:
            self.refuse(CROWDED)

    def data_received(self, data: bytes) -> None:
        if self.is_deaf:
            return
        self.now, self.idle_since = self.loop.time(), None
        if not self.in_body and not self.pending:
            self.since = self.now
        self.pending += len(data)
        try:
            self._feed(data)
        except HttpParserError as error:
            self.refuse(LARGE_HEAD if isinstance(error.__context__, errors.HeadersTooLarge) else INVALID)
        else:
            if self.pending > self.MAX_HEAD:
                # In a body these are chunk extensions or trailers without end.
                self.refuse(INVALID if self.in_body else LARGE_HEAD)

    def _feed(self, data: bytes) -> None:
        """The parser treats what follows an `Upgrade` (Java's client asks for h2c) as another protocol. A new
        parser gets a head with the same framing, and so reads the body."""
        while data:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                if self.framing:
                    lines = b"".join(b"%b: %b\r\n" % header for header in self.framing)
                    self.parser = HttpRequestParser(self)
                    self.parser.feed_data(b"POST / HTTP/1.1\r\n" + lines + b"\r\n")
                    self.framing = []

    def on_message_begin(self) -> None:
        if not self.framing:
            self.since = self.now
            super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.framing:
            return
        headers = self.headers
        size = len(self.url) + 4 * len(headers) + sum(map(len, chain.from_iterable(headers)))
        if size > self.MAX_HEAD or len(self.url) > self.MAX_TARGET:
            raise errors.HeadersTooLarge
        super().on_headers_complete()
        if self.expect_100_continue and self.scope["http_version"] == "1.0":
            self.cycle.waiting_for_100_continue = False  # RFC 9110, 10.1.1
        self.scope["cycle"] = self.cycle  # type: ignore[typeddict-unknown-key]
        # Trailers must not become headers of a request that was admitted without them.
        self.headers = []
        self.in_body = True
        self.since = self.now
        self.pending = self.body_bytes = self.body_mark = 0
        if self.parser.should_upgrade():
            self.framing = [(name, value) for name, value in headers if name in _FRAMING and value != b"0"]

    def on_body(self, body: bytes) -> None:
        self.pending = 0
        self.body_bytes += len(body)
        # uvicorn begins with a bytearray, which copies each piece twice: a twentieth of the processor time of
        # 100 KB and of 1 MB that are stored (bench/README.md).
        self.cycle.body = self.cycle.body or b""  # type: ignore[assignment]
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.framing:
            self.in_body, self.pending, self.since = False, 0, None
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Sets no timer, unlike uvicorn's method: `check` ends an idle connection."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.idle_since = self.loop.time()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.answered = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.answered is not None:
            # uvicorn tells the newest request only.
            self.answered.disconnected = True
            self.answered.message_event.set()

    def refuse(self, error: errors.SpillgateError) -> None:
        """Answers and ends the connection. A request that is complete is answered by the app first.

        The client may still be sending: closing at once would reset the connection, and lose the answer."""
        self.is_deaf = True
        cycle = self.cycle
        if self.in_body and self.pipeline:
            # The incomplete request waits behind others: there is no place for an answer.
            self.transport.close()
            return
        if cycle is not None and not cycle.response_complete and not self.in_body:
            cycle.keep_alive, self.since = False, None
            return
        scope: Any = cycle.scope if self.in_body else {"method": "", "path": ""}
        if not (self.in_body and cycle.response_started):
            method, path = scope["method"], scope["path"]
            headers, stored = list(self.server_state.default_headers), stored_of(method, path)
            if isinstance(body := scope.get("request_body"), RequestBody):
                headers.append((b"x-request-id", body.request_id))
            with within_request(scope.get("logged")):
                self.refused(error, method, path)
            self.transport.write(_refusal(error, headers, stored))
        if self.in_body:
            # The app is informed that the client has disconnected. It must not be asked for the body any
            # more.
            cycle.disconnected, cycle.waiting_for_100_continue = True, False
            cycle.message_event.set()
        self.since = self.loop.time()
        self.flow.resume_reading()
        self.transport.write_eof()

    def check(self, now: float) -> None:
        """Ends the requests and connections that have passed their deadline."""
        if self._reader_stalled(now):
            self.transport.abort()
        elif self.since is None:
            if self.idle_since is not None and now - self.idle_since >= self.timeout_keep_alive:
                self.transport.close()
        elif self.is_deaf:
            if now - self.since >= self.LINGER_SECONDS:
                self.transport.close()
        elif self._progressed():
            self.since = now
        elif now - self.since >= (self.BODY_SECONDS if self.in_body else self.HEAD_SECONDS):
            if self.in_body or self.pending or self.cycle is not None:
                self.refuse(SLOW_BODY if self.in_body else SLOW_HEAD)
            else:
                self.transport.close()

    def _progressed(self) -> bool:
        """True if the client is not waited for, or has sent enough since the last time."""
        if self.flow.read_paused or not self.in_body:
            return self.flow.read_paused
        body = self.cycle.scope.get("request_body")
        must_hurry = isinstance(body, RequestBody) and body.holds_pool
        progressed = self.body_bytes - self.body_mark >= (
            self.HOLDER_PROGRESS if must_hurry else self.BODY_PROGRESS
        )
        if progressed:
            self.body_mark = self.body_bytes
        return progressed or self.cycle.waiting_for_100_continue or bool(self.pipeline)

    def resume_writing(self) -> None:
        self.has_drained = True
        super().resume_writing()

    def _reader_stalled(self, now: float) -> bool:
        """True if the client read nothing for READER_SECONDS, and only its reading can drain the answer."""
        unsent, cycle = self.transport.get_write_buffer_size(), self.cycle
        is_waited_for = unsent and (self.flow.write_paused or cycle is None or cycle.response_complete)
        if not is_waited_for or self.has_drained or unsent < self.unsent_mark:
            self.unsent_since = now
        self.has_drained, self.unsent_mark = False, unsent
        return now - self.unsent_since >= self.READER_SECONDS


def sweep(connections: Iterable[Any], now: float) -> None:
    for connection in tuple(connections):
        connection.check(now)
