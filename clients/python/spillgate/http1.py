"""HTTP/1.1 requests over persistent connections, with the standard library alone.

The Python client and the commands of the service share it: `machine/http1.py` is a link to this file. The
commands must start fast and without other packages; the client must install without the service.
"""

import io
import json
import os
import re
import select
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPResponse, IncompleteRead
from time import monotonic
from typing import Any, NamedTuple

from .addresses import Address, NotOwn, check_directory, check_listener, is_proven, places

CONNECT_SECONDS = 2.0
MOST_IDLE = 20

_TARGET = re.compile(r"/[!-~]*")
_FIRST_BYTES = 1 << 16
"""This much of a body is sent together with the head."""

MOST_BYTES = 256 << 20
"""The largest body that is read. The answer to the largest upload is smaller."""

_PIECE_BYTES = 1 << 20

PROOF_ROUTE = "/proof"
MOST_PROOF_BYTES = 1000

Buffer = bytes | bytearray | memoryview
ABSENT = FileNotFoundError | ConnectionRefusedError
"""What connecting raises if no service runs there."""

FAILURES = (OSError, HTTPException, ValueError)
"""What a request may raise: no answer in time, an answer that is not HTTP, a header or target that HTTP
forbids."""


class HttpRequest(NamedTuple):
    """`target` is a path with its query. `size` is the bytes of a body in pieces; it must allow iterating
    more than once."""

    method: str
    target: str
    headers: Mapping[str, str] = {}
    body: bytes | Iterable[Buffer] = b""
    size: int = 0

    @property
    def length(self) -> int:
        return len(self.body) if isinstance(self.body, bytes) else self.size


class HttpAnswer(NamedTuple):
    """`retry_after` is the value of that header, "" without one."""

    status: int
    body: bytes
    retry_after: str = ""


class Connection:
    """A connection to a service, for one request at a time."""

    def __init__(self, address: Address, seconds: float) -> None:
        """Connects in at most `seconds`. Raises OSError; NotOwn if the listener must be the user's and is
        not."""
        self.address = address
        ends = monotonic() + seconds
        self.socket = _connected(address, seconds)
        self._process = os.getpid()
        if address.secret:
            try:
                self._prove(ends)
            except BaseException:
                self.close()
                raise

    def _prove(self, ends: float) -> None:
        """Has the listener prove that it knows the secret. Sends only a challenge. Raises OSError."""
        challenge = os.urandom(32).hex()
        try:
            response = self.send(HttpRequest("GET", f"{PROOF_ROUTE}?challenge={challenge}"), ends)
            told = json.loads(response.read(MOST_PROOF_BYTES))
            is_whole = response.isclosed() and not response.will_close
        except (HTTPException, ValueError, RecursionError, ConnectionError):
            told, is_whole = None, False
        if (
            not is_whole
            or not isinstance(told, dict)
            or not is_proven(self.address, challenge, told.get("proof"))
        ):
            raise NotOwn(f"what listens at {self.address} has not proved that it is this user's service")

    def send(self, request: HttpRequest, ends: float | None = None) -> HTTPResponse:
        """Sends the request. Returns the answer after its head; the body can be read from it. `ends`:
        deadline of the whole answer, on the monotonic clock. Raises FAILURES."""
        # A server that refuses a large body answers before it has read all of it.
        with suppress(ConnectionError):
            for piece in _pieces(self.address, request):
                _wait_until(self.socket, ends)
                self.socket.sendall(piece)
        reader: Any = _Reader(self.socket, ends)
        answer: Any = HTTPResponse(reader, method=request.method)
        answer.begin()
        while answer.status < 200:  # An interim response. http.client knows 100 alone.
            answer.headers = None
            answer.begin()
        length = answer.getheader("Content-Length")
        if length is not None and not length.isdigit():
            raise HTTPException("The answer has a length that is no number.")
        response: HTTPResponse = answer
        return response

    def is_quiet(self) -> bool:
        """True if it can take the next request. False in a forked process, or if the server closed it or sent
        unrequested data."""
        if self._process != os.getpid() or self.socket.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not poll.poll(0)

    def abort(self) -> None:
        """Ends the request that another thread makes over this connection."""
        with suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self.socket.close()


class Interrupt:
    """Ends an exchange from another thread."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self.is_set = False

    def set(self) -> None:
        self.is_set = True
        if (connection := self._connection) is not None:
            connection.abort()

    def guard(self, connection: Connection | None) -> None:
        """Sets the connection that the exchange uses from now on."""
        self._connection = connection
        if self.is_set and connection is not None:
            connection.abort()


class Connections:
    """Persistent connections to one service. Threads may share the pool. `reached` is the address of the
    latest connection."""

    def __init__(self, address: Address) -> None:
        self.address = self.reached = address
        self._idle: list[Connection] = []

    def exchange(
        self, request: HttpRequest, seconds: float, interrupt: Interrupt | None = None
    ) -> HttpAnswer:
        """Returns the whole answer. Raises OSError if none comes in time; ConnectionError if the connection
        fails or breaks, or the answer is not HTTP. If a kept connection breaks, the request is sent again on
        another, so it must be safe to repeat."""
        ends, interrupt = monotonic() + seconds, interrupt or Interrupt()
        while True:
            idle = self.take()
            connection = idle or self.connect(min(seconds, CONNECT_SECONDS))
            interrupt.guard(connection)
            try:
                response = connection.send(request, ends)
                body = read_body(response)
            except ConnectionError:
                connection.close()
                # A kept connection that the server has closed says nothing about the server.
                if idle is None or interrupt.is_set:
                    raise
            except (HTTPException, ValueError) as error:
                connection.close()
                raise ConnectionResetError(type(error).__name__) from error
            except BaseException:
                connection.close()
                raise
            else:
                interrupt.guard(None)
                self.keep(connection, response)
                return HttpAnswer(response.status, body, response.getheader("Retry-After") or "")

    def connect(self, seconds: float) -> Connection:
        """Opens a connection to the first of the service's places that answers. Raises OSError; one of ABSENT
        only if no place failed otherwise."""
        failed: OSError | None = None
        for address in places(self.address):
            try:
                connection = Connection(address, seconds)
            except OSError as error:
                failed = error if isinstance(failed, ABSENT | None) else failed
            else:
                self.reached = address
                return connection
        assert failed is not None
        raise failed

    def take(self) -> Connection | None:
        """A kept connection that can be used; None if there is none."""
        with suppress(IndexError):  # Another thread has taken the last one.
            while connection := self._idle.pop():
                if connection.is_quiet():
                    return connection
                connection.close()
        return None

    def keep(self, connection: Connection, response: HTTPResponse) -> None:
        """Keeps the connection for the next request if all of this response was read, else closes it."""
        if response.isclosed() and not response.will_close and len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Closes the kept connections. The next request opens another one."""
        while self._idle:
            self._idle.pop().close()


def read_body(response: HTTPResponse) -> bytes:
    """All of a body. Memory grows with the bytes received, not with the length that the server announces.
    Raises FAILURES."""
    pieces, size = [], 0
    while piece := response.read(_PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise HTTPException("The body is too large.")
    if response.length:
        raise IncompleteRead(b"", response.length)
    return b"".join(pieces)


def _pieces(address: Address, request: HttpRequest) -> Iterator[Buffer]:
    """Raises ValueError for a header or target that HTTP forbids."""
    headers = {"Host": address.name, "Accept-Encoding": "identity", **request.headers}
    if request.length or request.method in ("POST", "PUT"):
        headers["Content-Length"] = str(request.length)
    if not _TARGET.fullmatch(request.target):
        raise ValueError("The target has a character that a URL cannot hold.")
    fields = [f"{name}: {value}" for name, value in headers.items()]
    if not all(field.isprintable() for field in fields):
        raise ValueError("A header has a character that HTTP forbids.")
    head = "\r\n".join([f"{request.method} {request.target} HTTP/1.1", *fields, "\r\n"]).encode("latin-1")
    if isinstance(request.body, bytes):
        yield head + request.body[:_FIRST_BYTES]
        yield memoryview(request.body)[_FIRST_BYTES:]
    else:
        yield head
        yield from request.body


def _connected(address: Address, seconds: float) -> socket.socket:
    """Raises OSError."""
    if address.path:
        return _connected_at_path(address, seconds)
    try:
        connection = socket.create_connection((address.host, address.port), seconds)
    except UnicodeError:
        raise OSError("The host has no valid name") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not address.is_tls:
        return connection
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    try:
        return context.wrap_socket(connection, server_hostname=address.host)
    except OSError:
        connection.close()
        raise


def _connected_at_path(address: Address, seconds: float) -> socket.socket:
    """Raises OSError."""
    if address.is_own:
        check_directory(os.path.dirname(address.path))
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(seconds)
    try:
        connection.connect(address.path)
        if address.is_own:
            check_listener(connection)
    except OSError:
        connection.close()
        raise
    return connection


def _wait_until(connection: socket.socket, ends: float | None) -> None:
    """Sets the socket's timeout to the time left; called before each use. Raises TimeoutError."""
    remaining = None if ends is None else ends - monotonic()
    if remaining is not None and remaining <= 0:
        raise TimeoutError("timed out")
    connection.settimeout(remaining)


class _Reader(io.RawIOBase):
    """Reads a socket until a deadline. The socket's own timeout limits a single read: with it alone,
    http.client would wait without end for a server that sends one byte at a time."""

    def __init__(self, connection: socket.socket, ends: float | None) -> None:
        self._socket = connection
        self._ends = ends

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        _wait_until(self._socket, self._ends)
        return self._socket.recv_into(buffer)

    def readall(self) -> bytes:
        """http.client calls this only for a chunk of the size -1."""
        raise HTTPException("The size of a chunk is negative.")
