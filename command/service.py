"""A client of a running service, on the standard library: the commands of the shell must start fast."""

import io
import json
import os
import re
import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from domain import DEFAULT_URL
from domain.errors import ConfigError

if TYPE_CHECKING:
    from http.client import HTTPConnection

    from _typeshed import WriteableBuffer

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 10.0
"""For a request and its answer, without the time for a large body."""

TOOL_SECONDS = 130.0
"""An answer to a question may take the longest deadline of an extraction, 120 s."""

_SESSION = re.compile(r"session-([^/\s\"'`]+)/file-", re.IGNORECASE)
_BLOCK_BYTES = 1 << 18
_BYTES_A_SECOND = 8 << 20

Buffer = bytes | bytearray | memoryview
Body = bytes | Iterable[Buffer]


class ServiceError(Exception):
    """There is no usable answer. The message is one line that says what to do."""


class Unreachable(ServiceError):
    """No service listens at the address, or it closed the connection."""


class Refused(ServiceError):
    """The service refused the request. `code` is that of its problem document."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"The service refused ({status} {code}): {detail}")
        self.status = status
        self.code = code


class Address(NamedTuple):
    """`path` is that of a Unix socket; without one, host and port are used. `prefix` goes before a route."""

    host: str = "localhost"
    port: int = 80
    is_tls: bool = False
    path: str = ""
    prefix: str = ""

    @property
    def is_loopback(self) -> bool:
        return not self.path and self.host in ("localhost", "127.0.0.1", "::1")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"unix:{self.path}" if self.path else f"http{'s' * self.is_tls}://{host}:{self.port}"


class Request(NamedTuple):
    """`size` is that of a body in pieces, which can be iterated over more than once. `seconds` bounds the
    time that it takes; a large body has another second for each 8 MiB."""

    method: str
    route: str
    body: Body = b""
    headers: Mapping[str, str] = {}
    size: int = 0
    seconds: float = ANSWER_SECONDS

    def pieces(self) -> Iterable[Buffer]:
        return [self.body] if isinstance(self.body, bytes) else self.body


class Answer(NamedTuple):
    """`body` is whole."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Raises ServiceError."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise ServiceError("The service answered with something else than JSON.") from None

    def replacement(self) -> str | None:
        """The text in an answer of POST /results; None if the result passes. Raises ServiceError."""
        match self.json():
            case {"outcome": "pass"}:
                return None
            case {"outcome": str(), "content": str(text)}:
                return text
        raise ServiceError("The service answered with something else than an outcome.")

    def text(self) -> tuple[str, bool]:
        """The text for the model in an answer of POST /tools/call, and whether it says why there is no
        answer. Raises ServiceError."""
        match self.json():
            case {"text": str(text), "is_error": bool(is_error)}:
                return text, is_error
        raise ServiceError("The service answered with something else than a text.")


def address_of(url: str) -> Address:
    """Raises ConfigError. The message does not repeat the URL, which may hold a password."""
    if url.startswith("unix:"):
        return Address(path="/" + url.removeprefix("unix:").lstrip("/"))
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError("SPILLGATE_URL must be http://host:port, https://host:port or unix:/path.")
    is_tls = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if is_tls else 80), is_tls, prefix=parts.path.rstrip("/"))


def api_key() -> str | None:
    """The key in SPILLGATE_KEY or SPILLGATE_KEY_FILE. Raises ConfigError."""
    key, path = os.environ.get("SPILLGATE_KEY"), os.environ.get("SPILLGATE_KEY_FILE")
    if key and path:
        raise ConfigError("SPILLGATE_KEY and SPILLGATE_KEY_FILE are both set. Keep one.")
    if path:
        try:
            with open(path, encoding="utf-8") as file:
                key = file.read().strip()
        except (OSError, UnicodeDecodeError):
            raise ConfigError("SPILLGATE_KEY_FILE cannot be read.") from None
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigError("SPILLGATE_KEY must be one line of printable ASCII characters.")
    return key or None


def session_in(handle: str) -> str | None:
    """The session that a handle names; None if it names none."""
    match = _SESSION.search(handle)
    return match[1] if match else None


def state_folder() -> str:
    """Where nothing can be, if the home directory is not known: `~` would be a folder of the project."""
    base = os.path.expanduser(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    return os.path.join(base if os.path.isabs(base) else os.devnull, "spillgate")


def embedded_directory() -> str:
    """Where a service that a relay has started has its socket and its lock: in the directory of its store."""
    store = os.environ.get("SPILLGATE_STORAGE_URL", "").partition("disk:")[2].removeprefix("//")
    return os.path.join(store or state_folder(), "embedded")


def embedded_address() -> Address:
    return Address(path=os.path.join(embedded_directory(), "socket"))


class Service:
    """Requests to one service over kept connections. Safe to use from several threads."""

    def __init__(self, address: Address, key: str | None = None, *, fallback: Address | None = None) -> None:
        """`fallback` is where the service may be if nothing listens at `address`."""
        self.address = address
        self._fallback = fallback
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._kept = KeptConnections()

    @classmethod
    def from_environment(cls) -> "Service":
        """The service of SPILLGATE_URL or SPILLGATE_UDS, else the default one. If nothing listens there and
        it is on this machine, the one that runs inside another command. Raises ConfigError."""
        url, path = os.environ.get("SPILLGATE_URL"), os.environ.get("SPILLGATE_UDS")
        if not url:
            url = f"unix:{os.path.abspath(path)}" if path else DEFAULT_URL
        address = address_of(url)
        return cls(address, api_key(), fallback=embedded_address() if address.is_loopback else None)

    def request(self, request: Request) -> Answer:
        """The answer, if its status is below 400. Raises ServiceError."""
        size = len(request.body) if isinstance(request.body, bytes) else request.size
        headers = {"Content-Type": "application/json", **self._headers, **request.headers}
        headers["Content-Length"] = str(size)
        request = request._replace(route=self.address.prefix + request.route, headers=headers)
        deadline = time.monotonic() + request.seconds + size / _BYTES_A_SECOND
        while True:
            kept = self._kept.take()
            connection = kept or self._connect(request.seconds)
            try:
                answer = _exchange(connection, request, deadline)
            except ConnectionError as error:
                connection.close()
                # A kept connection that the service has closed says nothing about the service.
                if kept is None:
                    raise Unreachable(f"{self.address} closed the connection: {why(error)}.") from None
            except OSError as error:
                connection.close()
                raise ServiceError(f"No answer from {self.address}: {why(error)}.") from None
            else:
                self._kept.keep(connection)
                return _accepted(answer)

    def close(self) -> None:
        self._kept.close()

    def _connect(self, seconds: float) -> "HTTPConnection":
        """Raises Unreachable."""
        seconds = min(seconds, CONNECT_SECONDS)
        try:
            return connect(self.address, seconds)
        except OSError as error:
            if self._fallback is not None and isinstance(error, ConnectionRefusedError):
                with suppress(OSError):
                    return connect(self._fallback, seconds)
            raise Unreachable(
                f"No service answers at {self.address}: {why(error)}. Start one with `spillgate serve`, or "
                "set SPILLGATE_URL."
            ) from None


def connect(address: Address, seconds: float) -> "HTTPConnection":
    """Raises OSError."""
    from http.client import HTTPConnection, HTTPSConnection

    kind = HTTPSConnection if address.is_tls else HTTPConnection
    connection = kind(address.host, address.port, timeout=seconds, blocksize=_BLOCK_BYTES)
    try:
        if address.path:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(seconds)
            connection.sock.connect(address.path)
        else:
            connection.connect()
    except UnicodeError:
        raise OSError("The host has no valid name") from None
    except OSError:
        connection.close()
        raise
    return connection


class KeptConnections:
    """Kept for further requests. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept: list[HTTPConnection] = []

    def keep(self, connection: "HTTPConnection") -> None:
        self._kept.append(connection)

    def take(self) -> "HTTPConnection | None":
        """A connection that the other side has not closed; None if there is none."""
        with suppress(IndexError):  # Another thread has taken the last one.
            while connection := self._kept.pop():
                if _is_open(connection):
                    return connection
                connection.close()
        return None

    def close(self) -> None:
        while self._kept:
            self._kept.pop().close()


def _is_open(connection: "HTTPConnection") -> bool:
    """False for a kept connection that the other side has closed: it can be read."""
    if connection.sock is None:
        return False
    waiting = select.poll()
    waiting.register(connection.sock, select.POLLIN)
    return not waiting.poll(0)


def _wait_until(sock: socket.socket, deadline: float) -> None:
    """Before each use of the socket. Raises TimeoutError."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("timed out")
    sock.settimeout(remaining)


class _Reader(io.RawIOBase):
    """Reads a socket. http.client gets it in place of the socket."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        _wait_until(self._sock, self._deadline)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def _exchange(connection: "HTTPConnection", request: Request, deadline: float) -> Answer:
    """Raises OSError."""
    from http.client import HTTPException, HTTPResponse

    sock = connection.sock
    assert sock is not None

    def pieces() -> Iterator[Buffer]:
        for piece in request.pieces():
            _wait_until(sock, deadline)
            yield piece

    try:
        # A service that refuses a large body answers before it has read all of it.
        with suppress(ConnectionError):
            _wait_until(sock, deadline)
            connection.request(request.method, request.route, pieces(), dict(request.headers))
        reader: Any = _Reader(sock, deadline)
        responding: Any = connection
        responding.response_class = lambda _, **options: HTTPResponse(reader, **options)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read())
    except HTTPException as error:
        raise ConnectionResetError(type(error).__name__) from None


def _accepted(answer: Answer) -> Answer:
    """Raises Refused."""
    if answer.status < 400:
        return answer
    try:
        problem = json.loads(answer.body)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, LookupError, TypeError):
        code, detail = "no problem document", "SPILLGATE_URL may name another server."
    if answer.status == 401:
        detail += " The commands take it from SPILLGATE_KEY."
    raise Refused(answer.status, code, detail)


def why(error: OSError) -> str:
    """What an error of the system says, without numbers and names of files."""
    return error.strerror or str(error) or type(error).__name__
