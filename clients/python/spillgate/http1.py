"""HTTP/1.1 over kept-alive connections without TLS.

h11 reads and writes it; httpcore, the transport of httpx, depends on h11.

httpx itself takes twice as long for a small exchange. `send` raises OSError if there was no answer in time,
and ConnectionError for a connection that ended and for bytes that are no HTTP. The service closes connections
that were idle. A request that one of them lost before any answer is sent again on another: every request of
this client may be repeated.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

import h11

from spillgate.exchange import Request, Response

CONNECT_SECONDS = 2.0
MOST_IDLE = 20
_HEAD_BYTES = 1 << 16
_RECEIVED_BYTES = 1 << 18


class Place(NamedTuple):
    """Where a service listens: `path` is that of a Unix socket, None for TCP."""

    host: str
    port: int
    path: str | None


class Message(NamedTuple):
    """A request as it is sent."""

    head: h11.Request
    body: bytes


def message(request: Request, target: str, host: str, headers: Mapping[str, str]) -> Message:
    """A request for the path and query `target`. Raises ConnectionError for a header that HTTP forbids."""
    body = request.body or b""
    fields = [("Host", host), ("Content-Length", str(len(body))), *headers.items()]
    try:
        return Message(h11.Request(method=request.method, target=target, headers=fields), body)
    except h11.LocalProtocolError as error:
        raise ConnectionError(str(error)) from error


class Exchanges:
    """The requests and answers of one connection, one after another, without its I/O."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, _HEAD_BYTES)
        self._head: h11.Response | None = None
        self._body = bytearray()
        self.has_begun = False
        """The first byte of the latest answer has come."""

    def request(self, sent: Message) -> bytes:
        """The bytes of the next request."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        self._head, self._body, self.has_begun = None, bytearray(), False
        events = sent.head, h11.Data(sent.body), h11.EndOfMessage()
        return b"".join(self._http.send(event) or b"" for event in events)

    def receive(self, data: bytes) -> Response | None:
        """Takes received bytes; none say that the connection ended. Returns the answer once it is whole.
        Raises ConnectionError."""
        self.has_begun = self.has_begun or bool(data)
        try:
            self._http.receive_data(data)
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Response):
                    self._head = event
                elif isinstance(event, h11.Data):
                    self._body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    return self._response()
                elif not isinstance(event, h11.InformationalResponse):
                    break
        except h11.RemoteProtocolError as error:
            raise ConnectionError(str(error)) from error
        if not data:
            raise ConnectionError("The connection ended.")
        return None

    def _response(self) -> Response:
        assert self._head is not None
        status = self._head.status_code
        after = dict(self._head.headers).get(b"retry-after", b"") if status >= 400 else b""
        return Response(status, bytes(self._body), after.decode("latin-1"))

    @property
    def is_reusable(self) -> bool:
        http = self._http
        return http.our_state is http.their_state is h11.DONE and not http.trailing_data[0]


class _Connection(Protocol):
    exchanges: Exchanges

    def close(self) -> None: ...


C = TypeVar("C", bound=_Connection)


class _Connections(Generic[C]):
    """Those of one client that no request uses now."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._idle: deque[C] = deque()

    def keep_or_close(self, connection: C) -> None:
        """After a request: keeps the connection for the next one, if its answer is whole."""
        if connection.exchanges.is_reusable and len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class BlockingConnections(_Connections["_Blocking"]):
    """Threads may share them: each request has a connection for itself."""

    def send(self, request: Message, seconds: float) -> Response:
        ends = monotonic() + seconds
        while True:
            idle = self._open()
            connection = idle or _Blocking(self._place)
            try:
                return connection.exchange(request, ends)
            except ConnectionError:
                if idle is None or connection.exchanges.has_begun:
                    raise
            finally:
                self.keep_or_close(connection)

    def _open(self) -> "_Blocking | None":
        with suppress(IndexError):  # Threads take them, too.
            while connection := self._idle.pop():
                if connection.is_quiet():
                    return connection
                connection.close()
        return None


class _Blocking:
    def __init__(self, place: Place) -> None:
        self.exchanges = Exchanges()
        self._process = os.getpid()
        self._socket = _connected(place)

    def exchange(self, request: Message, ends: float) -> Response:
        # What the service refuses it may have answered before it read all of it.
        with suppress(ConnectionError):
            self._wait_until(ends)
            self._socket.sendall(self.exchanges.request(request))
        while True:
            self._wait_until(ends)
            found = self.exchanges.receive(self._socket.recv(_RECEIVED_BYTES))
            if found is not None:
                return found

    def _wait_until(self, ends: float) -> None:
        """Raises TimeoutError if that moment has come."""
        seconds = ends - monotonic()
        if seconds <= 0:
            raise TimeoutError
        self._socket.settimeout(seconds)

    def is_quiet(self) -> bool:
        """False if it ended, holds what was not asked for, or is that of the process that forked this one."""
        if self._process != os.getpid():
            return False
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        self._socket.close()


def _connected(place: Place) -> socket.socket:
    host, port, path = place
    if path is None:
        connection = socket.create_connection((host, port), CONNECT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


class WaitingConnections(_Connections["_Waiting"]):
    """Connections of one event loop of asyncio."""

    async def send(self, request: Message, seconds: float) -> Response:
        async with asyncio.timeout(seconds):
            while True:
                idle = self._open()
                connection = idle or await self._connected()
                try:
                    return await connection.exchange(request)
                except ConnectionError:
                    if idle is None or connection.exchanges.has_begun:
                        raise
                finally:
                    self.keep_or_close(connection)

    def _open(self) -> "_Waiting | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connected(self) -> "_Waiting":
        host, port, path = self._place
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            if path is None:
                return (await loop.create_connection(_Waiting, host, port))[1]
            return (await loop.create_unix_connection(_Waiting, path))[1]


class _Waiting(asyncio.Protocol):
    _transport: asyncio.Transport

    def __init__(self) -> None:
        self.exchanges = Exchanges()
        self._answer: asyncio.Future[Response] | None = None

    def exchange(self, request: Message) -> asyncio.Future[Response]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self.exchanges.request(request))
        return self._answer

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def close(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is no subclass of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # The end, or what was not asked for.
            return
        try:
            found = self.exchanges.receive(data)
        except ConnectionError as error:
            self._answer.set_exception(error)
        else:
            if found is not None:
                self._answer.set_result(found)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is None or self._answer.done():
            return
        if error is None:
            self.data_received(b"")
        else:
            self._answer.set_exception(ConnectionError("The connection was lost."))
