"""Admission: checks each request before any route sees it, and adds headers to each answer."""

import asyncio
import base64
import itertools
import re
import secrets
import sys

from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.api.body_caps import PLAIN_CAP, BodyCap
from app.http.api.problems import OnRefusal, problem, stored_of
from app.http.api.request_body import ClientDisconnected, RequestBody
from app.http.api.roles import OF_ONE_TENANT, KeyRole
from app.http.api.routing import RouteTable, Traits
from app.http.edge.api_keys import ApiKey
from app.http.edge.credentials import Credentials
from app.http.edge.served import METRICS_PATHS, Served
from app.http.edge.sources import check_host, check_page, check_page_body
from app.http.edge.state import ServiceState
from app.http.edge.wrong_keys import WrongKeys
from app.operations.logs import begin_request, describe_request
from app.settings import Settings
from domain.errors import (
    BadRequest,
    Draining,
    Forbidden,
    HostNotAllowed,
    InternalError,
    NotFound,
    SpillgateError,
    TooManyRequests,
    Unauthorized,
    UnsupportedMedia,
)
from domain.handles import is_name

_ONCE = frozenset(
    b"host origin authorization x-api-key spillgate-tenant content-length content-encoding "
    b"transfer-encoding idempotency-key".split()
)
MET_HOSTS = 64
PROBES = frozenset({"/livez", "/readyz", "/proof"})
"""Paths that are open even if pages need a key."""
SHUTTING_DOWN = "Shutting down. Keep your copy and try again in a moment."

_BROWSER_ASKS = 'Basic realm="Spillgate: the password is an API key", charset="UTF-8"'

Headers = dict[bytes, bytes]

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")


class Access:
    """Pure ASGI. Sets `scope["traits"]`, those of the route, `scope["tenant"]`, `scope["every_tenant"]`,
    `scope["request_body"]`, the headers as `scope["by_name"]`, and `scope["logged"]`, the fields of each line
    logged for the request; refuses by itself, as problem+json."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        routes: RouteTable,
        state: ServiceState,
        refused: OnRefusal,
    ) -> None:
        self._app = app
        self._wrong_keys = WrongKeys()
        self._key_for_pages = settings.key_for_pages
        self._proxies = settings.trusted_proxies
        self._hosts = settings.hosts
        self._met: set[bytes | None] = set()  # hosts found to be good
        self._state = state
        self._keys = keys = state.keys
        self._is_any_origin = keys is not None and settings.hosts is None
        self._text_cap, self._json_cap = BodyCap.of_text(settings), BodyCap.of_json(settings)
        self._routes = routes
        self._own_tenant = settings.tenant
        self._refused = refused
        self._request_prefix = f"req-{secrets.token_hex(6)}-".encode()
        self._request_count = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._pass(scope, receive, send)
            return
        scope["by_name"] = headers = dict(scope["headers"])
        scope["traits"] = traits = self._routes.traits(scope["method"], scope["path"])
        cap = self._cap(headers, traits)
        body = RequestBody(receive, send, scope.pop("cycle", None), self._state.gate, cap)
        scope["logged"] = logged = begin_request(self._identify(headers, body))
        request = Served(scope, body, self._routes, self._proxies)
        observer = self._state.runtime.observer
        observer.begun(request)
        try:
            logged["tenant"] = await self._admit(headers, scope, traits, body)
            observer.admitted(request)
            await self._app(scope, body.receive, body.send)
        except ClientDisconnected:
            pass
        except asyncio.CancelledError:
            # The server cancels requests that still run at the end of a shutdown.
            if not body.started:
                await self._refuse(Draining(SHUTTING_DOWN), request, scope, body)
            raise
        except SpillgateError as error:
            if body.started:
                raise
            # Their frames hold what was read of the body, and the answer may wait for the client.
            error.__traceback__ = error.__context__ = None
            await self._refuse(error, request, scope, body)
        except Exception:
            # The server, which gets the exception, logs it.
            if not body.started:
                await self._refuse(InternalError(), request, scope, body)
            raise
        finally:
            observer.answered(request, sys.exception())
            body.leave()
            # Scope and body refer to each other: break the cycle, or only the garbage collector frees them.
            scope.pop("request_body", None)

    def _cap(self, headers: Headers, traits: Traits) -> BodyCap:
        if not traits.carries_results:
            return PLAIN_CAP
        is_text = headers.get(b"content-type", b"").lstrip().lower().startswith(b"text/")
        return self._text_cap if is_text and traits.streams_text else self._json_cap

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            raise ValueError("Only HTTP is served.")

    def _identify(self, headers: Headers, body: RequestBody) -> str:
        """The caller's X-Request-ID if it is of plain characters, else a new one. The answer names it too."""
        request_id = headers.get(b"x-request-id")
        if request_id is None or not _REQUEST_ID.fullmatch(request_id):
            request_id = b"%b%06x" % (self._request_prefix, next(self._request_count))
        body.request_id = request_id
        return request_id.decode()

    async def _admit(self, headers: Headers, scope: Scope, traits: Traits, body: RequestBody) -> str:
        """Returns the tenant. Raises the error that the request is answered with."""
        body.has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        if len(headers) < len(scope["headers"]):
            once = [name for name, _ in scope["headers"] if name in _ONCE]
            if len(once) > len(set(once)):
                raise BadRequest("A header that may be given once was given twice.")
        scope["request_body"], scope["every_tenant"] = body, False
        self._check_source(headers, scope, traits)
        port = self._state.metrics_port
        if port is not None and (server := scope.get("server")) and server[1] == port:
            if scope["path"] not in METRICS_PATHS:
                raise NotFound("This port serves /metrics, /livez and /readyz alone.")
            scope["tenant"] = self._own_tenant
        else:
            scope["tenant"] = await self._tenant(headers, scope, traits)
        if body.has_body:
            if b"content-type" not in headers:
                check_page_body(headers)
            _check_body(headers, body)
        if traits.writes and self._state.draining:
            raise Draining(SHUTTING_DOWN)
        tenant: str = scope["tenant"]
        return tenant

    def _check_source(self, headers: Headers, scope: Scope, traits: Traits) -> None:
        host = headers.get(b"host")
        if host not in self._met:
            self._check_host(host, scope["http_version"])
        if b"origin" in headers or b"sec-fetch-site" in headers:
            changes = traits.changes(scope["method"])
            check_page(headers, self._hosts, is_any_origin=self._is_any_origin, changes=changes)

    def _check_host(self, host: bytes | None, http_version: str) -> None:
        if host is None and http_version == "1.1":
            raise HostNotAllowed("An HTTP/1.1 request must have a Host header.")
        check_host(None if host is None else host.decode("latin-1"), self._hosts)
        if host is not None and len(self._met) < MET_HOSTS:
            self._met.add(host)

    async def _tenant(self, headers: Headers, scope: Scope, traits: Traits) -> str:
        """Raises Unauthorized without a valid key, Forbidden if its role may not call this route, and
        TooManyRequests. Keys of operators have no quota."""
        path, keys = scope["path"], self._keys
        is_page = self._routes.is_open(path)
        if is_page and (keys is None or not self._key_for_pages or path in PROBES):
            return self._own_tenant
        if keys is None:
            return self._within_rate(self._own_tenant, scope, traits)
        scope["is_page"] = is_page
        token = page_token_of(headers) if is_page else token_of(headers)
        await keys.prepare(token)
        key = self._key(keys, token, scope)
        if is_page:
            return key.tenant
        if key.role in OF_ONE_TENANT:
            return self._within_rate(key.tenant, scope, traits)
        if key.role not in traits.roles:
            raise Forbidden(f"A key with the role `{key.role}` may not call this route.")
        scope["every_tenant"] = key.role is KeyRole.ADMIN and b"spillgate-tenant" not in headers
        named = headers.get(b"spillgate-tenant", key.tenant.encode()).decode("latin-1")
        if not is_name(named):
            raise BadRequest("Spillgate-Tenant must be the name of a tenant.")
        return named

    def _key(self, keys: Credentials, token: str, scope: Scope) -> ApiKey:
        """Raises Unauthorized and what else Credentials.key_of does."""
        try:
            key = keys.key_of(token)
        except Unauthorized:
            scope["is_wrong_key"] = True
            raise
        if key.name:
            describe_request(key=key.name)
        scope["key"], scope["role"], scope["tenant"] = key, key.role, key.tenant
        return key

    def _within_rate(self, tenant: str, scope: Scope, traits: Traits) -> str:
        """The tenant. Raises TooManyRequests; a route that must not fail gets it in `scope["over_rate"]`."""
        scope["tenant"] = tenant
        try:
            self._state.rates.take(tenant)
        except TooManyRequests as error:
            if not traits.fails_open:
                raise
            scope["over_rate"] = error
        return tenant

    async def _refuse(self, error: SpillgateError, request: Served, scope: Scope, body: RequestBody) -> None:
        method, path = scope["method"], scope["path"]
        describe_request(tenant=scope.get("tenant"), address=(address := request.address))
        self._refused(error, method, path)
        if scope.get("is_wrong_key"):
            await self._wrong_keys.delay(address)
        asks = {"WWW-Authenticate": _BROWSER_ASKS} if error.status == 401 and scope.get("is_page") else None
        answer = problem(error, self._routes.template(path), stored_of(method, path), headers=asks)
        await answer(scope, body.receive, body.send)


def token_of(headers: Headers) -> str:
    """The API key that a request brings. Raises Unauthorized if it brings none."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if b"x-api-key" in headers and not scheme:
        # As LiteLLM sends it.
        scheme, token = b"bearer", headers[b"x-api-key"]
    if scheme.lower() != b"bearer":
        raise Unauthorized("Send an API key: `Authorization: Bearer <key>`.")
    return token.strip().decode("utf-8", "replace")


def page_token_of(headers: Headers) -> str:
    """Returns the key of a page: browsers send it as a password. Raises Unauthorized."""
    scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"basic":
        return token_of(headers)
    try:
        login = base64.b64decode(given.strip(), validate=True)
    except ValueError:
        raise Unauthorized from None
    return login.partition(b":")[2].decode("utf-8", "replace")


def _check_body(headers: Headers, body: RequestBody) -> None:
    if b"content-encoding" in headers and headers[b"content-encoding"].lower() not in (b"identity", b""):
        raise UnsupportedMedia("Send the body uncompressed: without Content-Encoding.")
    if b"transfer-encoding" in headers and headers[b"transfer-encoding"].lower() != b"chunked":
        raise UnsupportedMedia("Send the body chunked, or with a Content-Length, and not compressed.")
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 19:
        raise BadRequest("Content-Length must be a number of bytes.")
    body.check_size(int(length))
