"""The clients: `Spillgate`, and `AsyncSpillgate` with the same methods to await."""

import copy
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, Self, TypeVar, Unpack

import anyio
import httpx

from spillgate.addresses import OWN, Address, NotOwn, address_of, configured_address
from spillgate.exchange import (
    Check,
    CheckFields,
    ClientOptions,
    Exchange,
    Flow,
    Governed,
    Request,
    Resolved,
    Response,
    ResultFields,
    SessionFields,
    Tools,
    UsageFields,
    current_session,
    given_url,
    safe_session_id,
)
from spillgate.http1 import ABSENT, CONNECT_SECONDS, Connections, HttpAnswer, HttpRequest
from spillgate.threads import AsyncConnections

T = TypeVar("T")
Transport = TypeVar("Transport", httpx.BaseTransport, httpx.AsyncBaseTransport)


class _Client(Generic[Transport]):
    """What both clients share: options, sessions, and requests as httpx has them."""

    def __init__(self, *, transport: Transport | None = None, **options: Unpack[ClientOptions]) -> None:
        """`transport` is one of httpx, in place of connections of its own."""
        self._exchange: Exchange = Exchange(options, time.monotonic)
        self._session: str | None = None
        self._transport: Transport | None = transport
        self._base, self._address = _place(given_url(options))

    @property
    def session_id(self) -> str:
        """The session of a call that names none."""
        return self._exchange.session_id(self._session)

    def session_for(self, name: str | None) -> str | None:
        """The session of a framework's conversation `name`, for `session_id`: None if one is configured,
        or was opened around it."""
        return safe_session_id(name) if name and self._exchange.configured_session() is None else None

    def _bound(self, session_id: str) -> Self:
        """This client for another session. It shares the connections."""
        bound = copy.copy(self)
        bound._session = session_id
        return bound

    def _in_session(self, fields: Any) -> Any:
        return fields if fields.get("session_id") else {**fields, "session_id": self._session}

    def _sent(self, request: Request) -> HttpRequest:
        target = self._address.prefix + request.path
        return HttpRequest(request.method, target, _traced(request.headers), request.body or b"")

    def _built(self, request: Request) -> httpx.Request:
        patience = request.timeout
        times = {"connect": CONNECT_SECONDS, "read": patience, "write": patience, "pool": patience}
        return httpx.Request(
            request.method,
            self._base + request.path,
            headers=_traced(request.headers),
            content=request.body or b"",
            extensions={"timeout": times},
        )


def _place(url: str) -> tuple[str, Address]:
    """The URL for httpx, and the address. Raises InvalidURL and ValueError now rather than with the first
    result."""
    if not url.startswith("http"):
        return "http://localhost", address_of(url) if url else configured_address()
    parsed = httpx.URL(url)
    is_tls = parsed.scheme == "https"
    port = parsed.port or (443 if is_tls else 80)
    return url, Address(parsed.host, port, is_tls, prefix=parsed.raw_path.decode().rstrip("/"))


def _why(error: Exception, address: Address) -> str:
    """What a person can do about it, in a sentence; "" if that is not known."""
    if isinstance(error, NotOwn):
        return f"Nothing was sent: {error}."
    if address == OWN and isinstance(error, ABSENT):
        return "No service of this user runs. Start one with `spillgate service start`, or set SPILLGATE_URL."
    return ""


def _received(answer: HttpAnswer) -> Response:
    return Response(answer.status, answer.body, answer.retry_after if answer.status >= 400 else "")


def _response(answer: httpx.Response, body: bytes) -> Response:
    after = answer.headers.get("retry-after", "") if answer.is_error else ""
    return Response(answer.status_code, body, after)


def _traced(headers: Mapping[str, str]) -> Mapping[str, str]:
    """With `traceparent` and its like, if the program has loaded OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules or "traceparent" in headers:
        return headers
    from opentelemetry.propagate import inject

    carrier = dict(headers)
    inject(carrier)
    return carrier


class Spillgate(_Client[httpx.BaseTransport]):
    """Speaks to a running service. Threads may share it. No method raises because of the service: what it
    does not take fails open, with a warning in the log `spillgate`."""

    def __init__(
        self, *, transport: httpx.BaseTransport | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        super().__init__(transport=transport, **options)
        self._connections = Connections(self._address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. The next call opens new ones."""
        self._connections.close()
        if self._transport is not None:
            self._transport.close()

    def govern(
        self, tool_name: str, call_id: str | None, content: object, **fields: Unpack[ResultFields]
    ) -> Governed:
        """What the model is to read instead of a tool's result. `content` is a text, bytes, MCP content
        blocks, or what JSON can hold. The same `call_id` with the same content is stored and accounted
        once."""
        return self._run(self._exchange.govern(tool_name, call_id, content, self._in_session(fields)))

    def check(self, tool_name: str, **fields: Unpack[CheckFields]) -> Check:
        """Whether a result of that size would pass, before the tool is called. Nothing is stored or charged.
        If the service cannot be reached, it is allowed."""
        return self._run(self._exchange.check(tool_name, self._in_session(fields)))

    def tools(self, format: str = "openai", *, session_id: str | None = None) -> Tools:
        """The tools to offer the model now, as `openai`, `anthropic` or `mcp` have them: none while
        nothing is stored, and once the window is spent."""
        return self._run(self._exchange.tools(format, session_id or self._session))

    def call(self, name: str, arguments: Mapping[str, Any] | str, **fields: Unpack[UsageFields]) -> str:
        """The text that answers a model's call of one of these tools, whatever went wrong."""
        return self._run(self._exchange.call(name, arguments, self._in_session(fields)))

    def resolve(self, arguments: Any, tool_name: str = "", *, session_id: str | None = None) -> Resolved:
        """The arguments of a model's call of another tool, an object or its JSON, with the text of each
        stored result that a string refers to. If there is a `refusal`, give it to the model, and do not call
        the tool. Without such a string nothing is sent."""
        return self._run(self._exchange.resolve(arguments, tool_name, session_id or self._session))

    def report(
        self, used_tokens: int, turn: int | None = None, *, session_id: str | None = None
    ) -> Mapping[str, Any] | None:
        """Reports the committed context. Returns the budget; None if the service cannot be reached."""
        return self._run(self._exchange.report(used_tokens, turn, session_id or self._session))

    def content(self, handle: str) -> bytes | None:
        """All of a stored result. None if nothing is stored under the handle, or the service is away."""
        return self._run(self._exchange.content(handle))

    @contextmanager
    def session(
        self, session_id: str | None = None, *, keep_results: bool = False, **fields: Unpack[SessionFields]
    ) -> Iterator[Self]:
        """Opens a session and ends it: then its stored results are deleted, unless `keep_results`. Every
        client and adapter that is called inside belongs to it, unless it is told otherwise."""
        name = session_id or f"run-{uuid.uuid4()}"
        self._run(self._exchange.open(name, fields))
        token = current_session.set(name)
        try:
            yield self._bound(name)
        finally:
            current_session.reset(token)
            self._run(self._exchange.end(name, keep_results))

    def _run(self, flow: Flow[T]) -> T:
        response: Response | None = None
        while True:
            try:
                step = flow.send(response)
            except StopIteration as stop:
                value: T = stop.value
                return value
            if isinstance(step, Request):
                response = self._send(step)
            else:
                time.sleep(step)
                response = None

    def _send(self, request: Request) -> Response | None:
        try:
            if self._transport is None:
                return _received(self._connections.exchange(self._sent(request), request.timeout))
            answer = self._transport.handle_request(self._built(request))
            try:
                assert isinstance(answer.stream, httpx.SyncByteStream)
                return _response(answer, b"".join(answer.stream))
            finally:
                answer.close()
        except (httpx.TransportError, OSError) as error:
            self._exchange.unreached = _why(error, self._address)
            return None


class AsyncSpillgate(_Client[httpx.AsyncBaseTransport]):
    """`Spillgate` to await. Event loops may share it."""

    def __init__(
        self, *, transport: httpx.AsyncBaseTransport | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        super().__init__(transport=transport, **options)
        self._connections = AsyncConnections(self._address)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections. The next call opens new ones."""
        self._connections.close()
        if self._transport is not None:
            await self._transport.aclose()

    async def govern(
        self, tool_name: str, call_id: str | None, content: object, **fields: Unpack[ResultFields]
    ) -> Governed:
        """See Spillgate.govern."""
        return await self._run(self._exchange.govern(tool_name, call_id, content, self._in_session(fields)))

    async def check(self, tool_name: str, **fields: Unpack[CheckFields]) -> Check:
        """See Spillgate.check."""
        return await self._run(self._exchange.check(tool_name, self._in_session(fields)))

    async def tools(self, format: str = "openai", *, session_id: str | None = None) -> Tools:
        """See Spillgate.tools."""
        return await self._run(self._exchange.tools(format, session_id or self._session))

    async def call(self, name: str, arguments: Mapping[str, Any] | str, **fields: Unpack[UsageFields]) -> str:
        """See Spillgate.call."""
        return await self._run(self._exchange.call(name, arguments, self._in_session(fields)))

    async def resolve(
        self, arguments: Any, tool_name: str = "", *, session_id: str | None = None
    ) -> Resolved:
        """See Spillgate.resolve."""
        return await self._run(self._exchange.resolve(arguments, tool_name, session_id or self._session))

    async def report(
        self, used_tokens: int, turn: int | None = None, *, session_id: str | None = None
    ) -> Mapping[str, Any] | None:
        """See Spillgate.report."""
        return await self._run(self._exchange.report(used_tokens, turn, session_id or self._session))

    async def content(self, handle: str) -> bytes | None:
        """See Spillgate.content."""
        return await self._run(self._exchange.content(handle))

    @asynccontextmanager
    async def session(
        self, session_id: str | None = None, *, keep_results: bool = False, **fields: Unpack[SessionFields]
    ) -> AsyncIterator[Self]:
        """See Spillgate.session."""
        name = session_id or f"run-{uuid.uuid4()}"
        await self._run(self._exchange.open(name, fields))
        token = current_session.set(name)
        try:
            yield self._bound(name)
        finally:
            current_session.reset(token)
            with anyio.CancelScope(shield=True):
                await self._run(self._exchange.end(name, keep_results))

    async def _run(self, flow: Flow[T]) -> T:
        response: Response | None = None
        while True:
            try:
                step = flow.send(response)
            except StopIteration as stop:
                value: T = stop.value
                return value
            if isinstance(step, Request):
                response = await self._send(step)
            else:
                await anyio.sleep(step)
                response = None

    async def _send(self, request: Request) -> Response | None:
        try:
            if self._transport is None:
                return _received(await self._connections.exchange(self._sent(request), request.timeout))
            answer = await self._transport.handle_async_request(self._built(request))
            try:
                assert isinstance(answer.stream, httpx.AsyncByteStream)
                return _response(answer, b"".join([chunk async for chunk in answer.stream]))
            finally:
                await answer.aclose()
        except (httpx.TransportError, OSError) as error:
            self._exchange.unreached = _why(error, self._address)
            return None
