"""An MCP server over streamable HTTP, as the server behind a relay."""

import json
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from types import FrameType
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from beside.client import why
from beside.relay.messages import (
    INTERNAL_ERROR,
    NOT_JSON,
    Id,
    LazyJson,
    failure,
    id_of,
    method_of,
    on_one_line,
    parse,
)
from beside.relay.routing_headers import VERSION, RoutingHeaders
from beside.relay.streams import SIGNAL_SECONDS, FromClient, FromServer, MessageOutput, lines, read_from
from domain.errors import ConfigError
from machine.addresses import address_of
from machine.descriptors import Buffer
from machine.http1 import FAILURES, MOST_BYTES, Connection, Connections, HttpRequest, read_body

CONNECT_SECONDS = 30.0
END_SECONDS = 30.0
"""The most seconds for open requests after the client has closed its side."""

ANSWER_SECONDS = 30.0
"""The most seconds for the server to accept a message that needs no response. The next message waits for
it."""

_DELETE_SECONDS, _RETRY_SECONDS = 2.0, 1.0
_TRIES, _REDIRECTS = 2, 3
_SESSION, _LAST_EVENT = "Mcp-Session-Id", "Last-Event-ID"
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
_HEADER = re.compile(r"[\x20-\x7e\xa0-\xff]+")
_ROUTE = re.compile(r"/[!-~]*")
"""What a request can hold as its target."""
_LISTENS = "subscriptions/listen"


class Post:
    """What one POST carries. `request` is the id of a request, None for another message."""

    def __init__(self, body: bytes, message: LazyJson | None, headers: dict[str, str]) -> None:
        """`message` is None for a body that is not JSON."""
        self.body = body
        self.headers = headers
        self.method = "" if message is None else method_of(message) or ""
        self.request = id_of(message) if message is not None and self.method else None
        self.is_answered = self.request is None


class HttpServer:
    """Messages for the server are sent in order, but requests do not wait for each other's responses."""

    def __init__(self, url: str, headers: Sequence[str]) -> None:
        """`headers` are lines `Name: value`. Raises ConfigError."""
        try:
            parts = urlsplit(url)
            self._address = address_of(f"{parts.scheme}://{parts.netloc}")
        except (ConfigError, ValueError):
            raise ConfigError("--url must be http://host:port/path or https://host/path.") from None
        self._route = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not _ROUTE.fullmatch(self._route):
            raise ConfigError(
                "--url must be of ASCII characters: write others, and spaces, as %C3%A9 and %20."
            )
        self._reached = self._route
        self._connections = Connections(self._address)
        self._headers = dict(_header(line) for line in headers)
        self._session: dict[str, str] = {}
        self._initialize = b""
        self._opening = threading.Lock()
        self._running: dict[Id, Connection] = {}
        self._cancelled: set[Id] = set()
        self._routing = RoutingHeaders()
        self._threads: list[tuple[Post, threading.Thread]] = []
        self._ended = threading.Event()
        self._status = 0

    def run(self, from_client: FromClient, from_server: FromServer, client: MessageOutput) -> int:
        """Relays until the client closes its side, or a signal. Returns the exit status; negative: the
        signal."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        self._from_server, self._client = from_server, client
        threading.Thread(target=self._to_server, args=(from_client,), daemon=True).start()
        while not self._ended.wait(SIGNAL_SECONDS):
            pass
        self._delete()
        return self._status

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._status = -number
        self._ended.set()

    def _to_server(self, from_client: FromClient) -> None:
        try:
            for line in lines(read_from(0)):
                if body := bytes(from_client(line) or b"").strip():
                    self._send(body)
            for post, thread in self._threads:
                if post.method != _LISTENS:
                    thread.join(END_SECONDS)
        finally:
            self._ended.set()

    def _send(self, body: bytes) -> None:
        try:
            message = parse(body)
            if self._cancels(message):
                return
            post = Post(body, message, self._routing.of(message))
        except NOT_JSON:
            post = Post(body, None, {})
        if post.request is None:
            # The next message may depend on it.
            self._exchange(post)
            if post.method == "notifications/initialized":
                threading.Thread(target=self._listen, daemon=True).start()
            return
        if post.method == "initialize":
            self._session, self._initialize = {}, body
        thread = threading.Thread(target=self._exchange, args=(post,), daemon=True)
        self._threads = [(one, running) for one, running in self._threads if running.is_alive()]
        self._threads.append((post, thread))
        thread.start()

    def _cancels(self, message: LazyJson) -> bool:
        """Cancels a request in the stateless era: by closing its connection, not by a notification."""
        if method_of(message) != "notifications/cancelled" or VERSION in self._session:
            return False
        request = message.inner("params", "requestId")
        connection = self._running.get(request) if isinstance(request, str | int | float) else None
        if connection is not None:
            self._cancelled.add(request)
            with suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)
        return True

    def _exchange(self, post: Post) -> None:
        """Sends a message and gives the client all responses. A request gets a response unless it was
        cancelled."""
        try:
            reason = self._answered(post)
        except FAILURES as error:
            fault = why(error) if isinstance(error, OSError) else type(error).__name__
            reason = f"The server cannot be reached: {fault}."
        if not post.is_answered and post.request not in self._cancelled:
            self._deliver(failure(json.dumps(post.request), INTERNAL_ERROR, reason), post)
        if post.request is not None:
            self._running.pop(post.request, None)
            self._cancelled.discard(post.request)

    def _answered(self, post: Post) -> str:
        """Delivers the response. Returns why there is no response. Raises FAILURES."""
        session = self._session.get(_SESSION)
        connection, response = self._request("POST", post.body, post.headers, post)
        if response.status == 404 and session is not None:
            connection.close()
            self._reopen(session)
            connection, response = self._request("POST", post.body, post.headers, post)
        kind = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        if response.status < 400 and post.method == "initialize":
            self._session |= _only(_SESSION, response.getheader(_SESSION))
        if kind == "text/event-stream" and response.status < 400:
            last = self._events(response, post)
            connection.close()
            if not post.is_answered and last:
                self._resume(last, post)
            return "The server ended the stream without a response."
        body = read_body(response)
        self._connections.keep(connection, response)
        if response.status >= 400:
            return self._refused(response.status, body, post)
        if kind == "application/json":
            self._deliver(on_one_line(body), post)
        return f"The server answered with status {response.status} and no response."

    def _reopen(self, session: str) -> None:
        """Opens a new session after the server has ended this one, or has forgotten it in a restart. Raises
        FAILURES."""
        with self._opening:
            if self._session.get(_SESSION) != session:
                return  # Another request has opened one.
            connection, response = self._request("POST", self._initialize, {})
            opened = _only(_SESSION, response.getheader(_SESSION))
            # An event stream may stay open after the response.
            next((event for event in events(response) if event.data), None)
            connection.close()
            self._session = _only(VERSION, self._session.get(VERSION)) | opened
            self._request("POST", _INITIALIZED, {})[0].close()
        threading.Thread(target=self._listen, daemon=True).start()

    def _refused(self, status: int, body: bytes, post: Post) -> str:
        with suppress(*NOT_JSON):
            refusal = parse(body)
            if "error" in refusal.members and post.request is not None:
                # Its id is null if the server did not read so far.
                answer = refusal.replaced({"id": json.dumps(post.request)})
                self._deliver(on_one_line(answer.encode("utf-8", "surrogatepass")), post)
        hint = " Pass --header 'Authorization: ...'." if status == 401 else ""
        return f"The server answered with status {status}.{hint}"

    def _deliver(self, message: Buffer, post: Post) -> None:
        """Gives the client a message, and notes whether it answers the request of `post`."""
        if not message:
            return
        with suppress(*NOT_JSON):
            parsed = parse(message)
            if "method" not in parsed.members:
                if post.method == "initialize":
                    version = parsed.inner("result", "protocolVersion")
                    self._session |= _only(VERSION, version)
                if post.request is not None and id_of(parsed) == post.request:
                    post.is_answered = True
                if post.method == "tools/list":
                    self._routing.note(parsed)
        line = self._from_server(message)
        if not line:
            return
        end = b"" if bytes(line[-1:]) == b"\n" else b"\n"
        try:
            self._client.write(b"".join([line, end]))
        except OSError:
            self._ended.set()

    def _events(self, response: HTTPResponse, post: Post) -> str:
        """Delivers the messages of an event stream until it ends, or until the last response. Returns the id
        of the last event."""
        last, is_asked = "", not post.is_answered
        with suppress(*FAILURES):
            for event in events(response):
                last = event.id or last
                if event.kind == "message":
                    self._deliver(event.data, post)
                if is_asked and post.is_answered:
                    break
        return last

    def _resume(self, last: str, post: Post) -> None:
        """Resumes a stream that ended before its response. Raises FAILURES."""
        for _ in range(_TRIES):
            if post.is_answered or post.request in self._cancelled or self._ended.wait(_RETRY_SECONDS):
                return
            last = self._events_after(last, post) or last

    def _listen(self) -> None:
        """Delivers the messages that the server sends unasked, in the era of sessions. Many servers
        refuse."""
        last, tries, nothing = "", 0, Post(b"", None, {})
        while tries < _TRIES and not self._ended.is_set():
            tries += 1
            with suppress(*FAILURES):
                reached = self._events_after(last, nothing)
                if reached is None:
                    return
                last, tries = reached or last, 0
            self._ended.wait(_RETRY_SECONDS)

    def _events_after(self, last: str, post: Post) -> str | None:
        """Delivers the events that follow the one with this id, and returns the id of the last; None if the
        server refuses. Raises FAILURES."""
        connection, response = self._request("GET", None, _only(_LAST_EVENT, last), post)
        reached = self._events(response, post) if response.status == 200 else None
        connection.close()
        return reached

    def _request(
        self, method: str, body: bytes | None, headers: Mapping[str, str], post: Post | None = None
    ) -> tuple[Connection, HTTPResponse]:
        """The response to one request; redirects of the same origin are followed, and remembered while what
        they lead to answers. A request that the client awaits, and a stream, have no time limit: the client
        can cancel them. Raises FAILURES."""
        accepted = "text/event-stream" if body is None else "application/json, text/event-stream"
        session = {} if body is self._initialize else self._session
        sent = {"Accept": accepted, **session, **self._headers, **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        is_awaited = body is None or (post is not None and post.request is not None)
        ends = None if is_awaited else time.monotonic() + ANSWER_SECONDS
        route, self._reached = self._reached, self._route
        for _ in range(1 + _REDIRECTS):
            connection = self._connections.take() or Connection(self._address, CONNECT_SECONDS)
            if post is not None and post.request is not None:
                self._running[post.request] = connection
            response = connection.send(HttpRequest(method, route, sent, body or b""), ends)
            redirected = self._redirected(response, route)
            if redirected is None:
                if response.status < 300:
                    self._reached = route
                return connection, response
            read_body(response)
            self._connections.keep(connection, response)
            route = redirected
        raise HTTPException("too many redirects")

    def _redirected(self, response: HTTPResponse, route: str) -> str | None:
        """The path on the same origin that a redirect names; None for one that no request can hold."""
        if response.status not in (307, 308):
            return None
        try:
            parts = urlsplit(urljoin(f"{self._address}{route}", response.getheader("Location") or ""))
            origin = parts.hostname, parts.port or self._address.port
        except ValueError:
            return None
        to = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return to if origin == (self._address.host, self._address.port) and _ROUTE.fullmatch(to) else None

    def _delete(self) -> None:
        """Ends the session at the server, if it gave one."""
        if _SESSION in self._session:
            with suppress(*FAILURES):
                connection = Connection(self._address, _DELETE_SECONDS)
                ends = time.monotonic() + _DELETE_SECONDS
                connection.send(
                    HttpRequest("DELETE", self._reached, {**self._session, **self._headers}), ends
                ).read()


class Event(NamedTuple):
    """One server-sent event."""

    kind: str
    id: str
    data: Buffer


def events(response: HTTPResponse) -> Iterator[Event]:
    """Raises FAILURES, also for an event of more than MOST_BYTES."""
    kind, last, size = "message", "", 0
    data: Buffer | None = None
    for line in lines(response.read1, MOST_BYTES):
        size += len(line)
        if size > MOST_BYTES:
            raise ValueError("An event is too large.")
        content = memoryview(line)[: -2 if line.endswith(b"\r\n") else -1 if line.endswith(b"\n") else None]
        name, _, rest = bytes(content[:16]).partition(b":") if content else (b"", b"", b"")
        if not content:
            if data is not None:
                yield Event(kind, last, data)
            elif last:
                yield Event(kind, last, b"")
            kind, data, size = "message", None, 0
        elif name == b"data":
            value = content[6:] if rest[:1] == b" " else content[5:]
            if data is None:
                data = value
            else:
                # Servers may send millions of short lines: each would take more as an object than as bytes.
                data = data if isinstance(data, bytearray) else bytearray(data)
                data += b" "
                data += value
        elif name == b"event":
            kind = bytes(content).partition(b":")[2].strip().decode("utf-8", "replace")
        elif name == b"id":
            last = bytes(content).partition(b":")[2].strip().decode("latin-1")


def _header(line: str) -> tuple[str, str]:
    """Raises ConfigError."""
    name, colon, value = line.partition(":")
    if not colon or not name.strip() or not (line.isascii() and line.isprintable()):
        raise ConfigError("--header must be 'Name: value'.")
    return name.strip(), value.strip()


def _only(name: str, value: object) -> dict[str, str]:
    """The header; none if a header cannot hold the value."""
    return {name: value} if isinstance(value, str) and _HEADER.fullmatch(value) else {}
