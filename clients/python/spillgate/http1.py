"""HTTP/1.1 over kept-alive connections without TLS, for small exchanges: httpx takes three times as long.

An answer is read by one generator, which both kinds of connections feed. `send` raises OSError if there was
no answer in time, and ConnectionError for a connection that ended and for bytes that are no HTTP. The service
closes connections that were idle. A request that one of them lost before any answer is sent again on another:
every request of this client may be repeated.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

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


class Answer(NamedTuple):
    """`is_kept`: the connection can be used again."""

    response: Response
    is_kept: bool


Reading = Generator[None, bytes, Answer]


def written(request: Request, target: str, host: str, headers: Mapping[str, str]) -> bytes:
    """The bytes of a request for the path and query `target`. Raises ConnectionError for a header that would
    begin another one."""
    body = request.body or b""
    lines = [
        f"{request.method} {target} HTTP/1.1",
        f"Host: {host}",
        f"Content-Length: {len(body)}",
        *[f"{name}: {value}" for name, value in headers.items()],
    ]
    if any("\n" in line or "\r" in line for line in lines):
        raise ConnectionError("A header holds a line break.")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def answer() -> Reading:
    """Reads an answer from the bytes that it is sent, as they come; none end it. Raises ConnectionError."""
    data = bytearray()
    status, version, headers = 100, "", dict[str, str]()
    while status < 200:
        head = yield from _until(data, b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise ConnectionError("The answer is no HTTP/1.")
        status = int(rest[:3])
        fields = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in fields}
    is_kept = version == "HTTP/1.1" and "close" not in headers.get("connection", "").lower()
    if status in (204, 304):
        body = b""
    elif "chunked" in headers.get("transfer-encoding", "").lower():
        body = yield from _chunks(data)
    elif "content-length" in headers:
        body = yield from _exactly(data, _number(headers["content-length"], 10))
    else:
        is_kept = False
        while more := (yield):
            data += more
        body = bytes(data)
    after = headers.get("retry-after", "") if status >= 400 else ""
    return Answer(Response(status, body, after), is_kept and not data)


def _chunks(data: bytearray) -> Generator[None, bytes, bytes]:
    body = bytearray()
    while size := _number((yield from _until(data, b"\r\n")).split(b";")[0].decode("latin-1"), 16):
        body += yield from _exactly(data, size)
        yield from _exactly(data, 2)
    while (yield from _until(data, b"\r\n")):
        pass
    return bytes(body)


def _until(data: bytearray, end: bytes) -> Generator[None, bytes, bytes]:
    while (at := data.find(end)) < 0:
        if len(data) > _HEAD_BYTES:
            raise ConnectionError("The head of the answer is too large.")
        data += _something((yield))
    found = bytes(data[:at])
    del data[: at + len(end)]
    return found


def _exactly(data: bytearray, size: int) -> Generator[None, bytes, bytes]:
    while len(data) < size:
        data += _something((yield))
    found = bytes(data[:size])
    del data[:size]
    return found


def _something(received: bytes) -> bytes:
    if not received:
        raise ConnectionError("The connection ended before the answer.")
    return received


def _number(text: str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise ConnectionError("The answer has no valid length.")
    return number


class BlockingConnections:
    """Threads may share them: each request has a connection for itself."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._idle: deque[socket.socket] = deque()

    def send(self, request: bytes, seconds: float) -> Response:
        ends = monotonic() + seconds
        while True:
            idle = self._open()
            connection = idle or self._connected()
            reading = answer()
            next(reading)
            try:
                found = _exchanged(connection, request, reading, ends)
            except BaseException as error:
                connection.close()
                if idle is None or not isinstance(error, _Unanswered):
                    raise
                continue
            if found.is_kept and len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
            else:
                connection.close()
            return found.response

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _open(self) -> socket.socket | None:
        with suppress(IndexError):  # Threads take them, too.
            while connection := self._idle.pop():
                if _is_quiet(connection):
                    return connection
                connection.close()
        return None

    def _connected(self) -> socket.socket:
        host, port, path = self._place
        if path is None:
            connection = socket.create_connection((host, port), CONNECT_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(path)
        except BaseException:
            connection.close()
            raise
        return connection


def _is_quiet(connection: socket.socket) -> bool:
    """False if it ended, or holds what was not asked for."""
    connection.setblocking(False)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


class _Unanswered(ConnectionError):
    """The connection ended before the first byte of the answer."""


def _exchanged(connection: socket.socket, request: bytes, reading: Reading, ends: float) -> Answer:
    has_begun = False
    # What the service refuses it may have answered before it read all of it.
    with suppress(ConnectionError):
        _wait_until(ends, connection)
        connection.sendall(request)
    while True:
        _wait_until(ends, connection)
        try:
            received = connection.recv(_RECEIVED_BYTES)
            if not (received or has_begun):
                raise _Unanswered
            reading.send(received)
        except StopIteration as stop:
            found: Answer = stop.value
            return found
        except ConnectionResetError as error:
            raise error if has_begun else _Unanswered() from error
        has_begun = True


def _wait_until(ends: float, connection: socket.socket) -> None:
    """Raises TimeoutError if that moment has come."""
    seconds = ends - monotonic()
    if seconds <= 0:
        raise TimeoutError
    connection.settimeout(seconds)


class WaitingConnections:
    """Of one event loop of asyncio."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._idle: deque[_Connection] = deque()

    async def send(self, request: bytes, seconds: float) -> Response:
        async with asyncio.timeout(seconds):
            while True:
                idle = self._open()
                connection = idle or await self._connected()
                try:
                    found = await connection.exchange(request)
                except BaseException as error:
                    connection.close()
                    if idle is None or connection.has_begun or not isinstance(error, ConnectionError):
                        raise
                    continue
                if found.is_kept and len(self._idle) < MOST_IDLE:
                    self._idle.append(connection)
                else:
                    connection.close()
                return found.response

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _open(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connected(self) -> "_Connection":
        host, port, path = self._place
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            if path is None:
                return (await loop.create_connection(_Connection, host, port))[1]
            return (await loop.create_unix_connection(_Connection, path))[1]


class _Connection(asyncio.Protocol):
    _transport: asyncio.Transport
    _reading: Reading
    _answer: asyncio.Future[Answer] | None = None
    has_begun = False
    """The first byte of the latest answer has come."""

    def exchange(self, request: bytes) -> asyncio.Future[Answer]:
        self.has_begun = False
        self._answer = asyncio.get_running_loop().create_future()
        self._reading = answer()
        next(self._reading)
        self._transport.write(request)
        return self._answer

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def close(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # What nobody asked for.
            return
        try:
            self._reading.send(data)
            self.has_begun = True
        except StopIteration as stop:
            self._answer.set_result(stop.value)
        except ConnectionError as error:
            self._answer.set_exception(error)

    def eof_received(self) -> None:
        self._ended()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("The connection was lost."))
        self._ended()

    def _ended(self) -> None:
        if self._answer is not None and not self._answer.done():
            if self.has_begun:
                self.data_received(b"")
            else:
                self._answer.set_exception(ConnectionError("The connection ended."))
