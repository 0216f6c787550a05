"""The door: every request passes it before anything else sees it, and every answer on its way out."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import ApiKeys, check_host, check_origin
from app.errors import problem, stored_of
from app.settings import Settings
from domain.errors import (
    BadRequest,
    BodyTooLarge,
    Draining,
    HostNotAllowed,
    Overloaded,
    SpillgateError,
    Unauthorized,
    UnsupportedMedia,
)
from domain.handles import DEFAULT_TENANT

FREE_BYTES = 64 << 10
"""What every request may hold of its body without asking the gate."""

LEAST_POOL_BYTES = 256 << 20

_OPEN_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/docs", "/openapi.json"})
_OPEN_ROOTS = ("/swagger/", "/docs/")
_WRITES = frozenset({"POST", "PUT", "DELETE", "PATCH"})
_ONCE = frozenset(b"host origin authorization content-length content-encoding transfer-encoding".split())
# Only these are known to hold nothing of the caller's.
_INSTANCES = frozenset({"/results", "/check", "/extract", "/sessions", "/tools"})
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_NO_STORE = (b"cache-control", b"no-store")
_CLOSE = (b"connection", b"close")

SHUTTING_DOWN = "Shutting down. Keep your copy and try again in a moment."

Headers = dict[bytes, bytes]


class ClientDisconnected(Exception):
    """The client went away before its body was whole. Nobody is left to answer: let it pass to the door."""


class BodyGate:
    """One pool for all the body bytes in memory beyond each request's free ones."""

    def __init__(self, max_body_bytes: int) -> None:
        self.capacity = max(LEAST_POOL_BYTES, 4 * max_body_bytes)
        self.in_flight = 0

    def take(self, size: int) -> None:
        """Raises Overloaded at once when the pool is empty; never waits."""
        if self.in_flight + size > self.capacity:
            raise Overloaded("Too many bytes of other requests are in memory. Keep your copy and try again.")
        self.in_flight += size

    def give(self, size: int) -> None:
        self.in_flight -= size


class Visit:
    """One request's body and answer on their way through the door. Routes find it as `scope["visit"]`."""

    __slots__ = (
        "_cap",
        "_ended",
        "_gate",
        "_kept",
        "_read",
        "_receive",
        "_send",
        "_taken",
        "has_body",
        "started",
    )

    def __init__(self, receive: Receive, send: Send, gate: BodyGate, cap: int) -> None:
        self._receive = receive
        self._send = send
        self._gate = gate
        self._cap = cap
        self._read = 0
        self._kept = 0
        self._taken = 0
        self._ended = False
        self.has_body = False
        self.started = False

    async def receive(self) -> Message:
        """Raises BodyTooLarge, Overloaded, ClientDisconnected."""
        message = await self._receive()
        if message["type"] == "http.request":
            if size := len(message.get("body", b"")):
                self._count(size)
            if not message.get("more_body", False):
                self._ended = True
        elif not self._ended and not self.started:
            raise ClientDisconnected
        return message

    def _count(self, size: int) -> None:
        self._read += size
        if self._read > self._cap:
            raise BodyTooLarge(too_large(self._cap))
        self._kept += size
        wanted = self._kept - FREE_BYTES - self._taken
        if wanted > 0:
            self._gate.take(wanted)
            self._taken += wanted

    def let_go(self, size: int) -> None:
        """That many bytes of the body are no longer in memory: a streamed one holds little of the pool."""
        self._kept = max(0, self._kept - size)
        spare = self._taken - max(0, self._kept - FREE_BYTES)
        self._taken -= spare
        self._gate.give(spare)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._add_headers(message)
        await self._send(message)

    def _add_headers(self, message: Message) -> None:
        headers = list(message.get("headers", ()))
        names = {name for name, _ in headers}
        if _NOSNIFF[0] not in names:
            headers.append(_NOSNIFF)
        if _NO_STORE[0] not in names:
            headers.append(_NO_STORE)
        if self.has_body and not self._ended:
            # Kept open, the server would have to read the rest of the body first.
            headers.append(_CLOSE)
        message["headers"] = headers

    def leave(self) -> None:
        if self._taken:
            self._gate.give(self._taken)
            self._taken = 0


class Door:
    """Pure ASGI. Sets `scope["tenant"]` and `scope["visit"]`; refuses by itself, as problem+json."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        keys: ApiKeys | None,
        draining: Callable[[], bool],
        gate: BodyGate,
        refused: Callable[[str], None] = lambda code: None,
    ) -> None:
        self._app = app
        self._hosts = settings.hosts
        self._cap = settings.max_body_bytes
        self._keys = keys
        self._draining = draining
        self._gate = gate
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._pass(scope, receive, send)
            return
        visit = Visit(receive, send, self._gate, self._cap)
        try:
            self._admit(scope, visit)
            await self._app(scope, visit.receive, visit.send)
        except ClientDisconnected:
            pass
        except asyncio.CancelledError:
            # The server gives up on what is still running at the end of a shutdown.
            if not visit.started:
                await _refuse(Draining(SHUTTING_DOWN), scope, visit)
            raise
        except SpillgateError as error:
            if visit.started:
                raise
            self._refused(error.code)
            await _refuse(error, scope, visit)
        finally:
            visit.leave()

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            raise ValueError("Only HTTP is served.")

    def _admit(self, scope: Scope, visit: Visit) -> None:
        """Raises whatever is to be answered instead."""
        found: Headers = {}
        repeated = False
        for name, value in scope["headers"]:
            if name in _ONCE:
                repeated = repeated or name in found
                found[name] = value
        visit.has_body = b"transfer-encoding" in found or found.get(b"content-length", b"0") != b"0"
        if repeated:
            raise BadRequest("A header that may be given once was given twice.")
        self._check_names(found, scope["http_version"])
        scope["tenant"] = self._tenant(found.get(b"authorization"), scope["path"])
        scope["visit"] = visit
        if visit.has_body:
            self._check_body(found)
        if scope["method"] in _WRITES and self._draining():
            raise Draining(SHUTTING_DOWN)

    def _check_names(self, found: Headers, http_version: str) -> None:
        host = found.get(b"host")
        if host is None and http_version == "1.1":
            raise HostNotAllowed("An HTTP/1.1 request must have a Host header.")
        check_host(None if host is None else host.decode("latin-1"), self._hosts)
        if (origin := found.get(b"origin")) is not None:
            check_origin(origin.decode("latin-1"), self._hosts)

    def _tenant(self, authorization: bytes | None, path: str) -> str:
        if self._keys is None or path in _OPEN_PATHS or path.startswith(_OPEN_ROOTS):
            return DEFAULT_TENANT
        scheme, _, token = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthorized("Send an API key: `Authorization: Bearer <key>`.")
        tenant = self._keys.tenant_of(token.strip().decode("utf-8", "replace"))
        if tenant is None:
            raise Unauthorized("This API key is not known.")
        return tenant

    def _check_body(self, found: Headers) -> None:
        encoding = found.get(b"content-encoding", b"identity").strip().lower()
        transfer = found.get(b"transfer-encoding", b"chunked").strip().lower()
        if encoding not in (b"identity", b"") or transfer != b"chunked":
            raise UnsupportedMedia("Send the body uncompressed: without Content-Encoding.")
        length = found.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 19:
            raise BadRequest("Content-Length must be a number of bytes.")
        if int(length) > self._cap:
            raise BodyTooLarge(too_large(self._cap))


def too_large(cap: int) -> str:
    return f"The body is larger than {cap} bytes (SPILLGATE_MAX_BODY_BYTES). Send it in parts, or less of it."


async def _refuse(error: SpillgateError, scope: Scope, visit: Visit) -> None:
    path = scope["path"]
    instance = path if path in _INSTANCES else ""
    answer = problem(error, instance, stored_of(scope["method"], path))
    await answer(scope, visit.receive, visit.send)
