"""Keeps HTTP/1.1 connections to a backend for later calls; closes that of a cancelled call."""

import asyncio
from collections.abc import AsyncIterator

import anyio
import httpx

_CONNECT_SECONDS = 5.0
_IDLE_SECONDS = 30.0
_CLOSING_SECONDS = 0.2


class Connections(httpx.AsyncBaseTransport):
    """Uses one connection per call and keeps up to `keep` of them for later calls.

    The pool of httpx leaks an open connection if a call is cancelled at the wrong moment. Here each
    connection has a pool of its own, which is closed unless its call ended normally.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._tls = httpx.create_ssl_context(trust_env=False)
        self._idle: dict[httpx.AsyncHTTPTransport, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        connection = self._take()
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await self.drop(connection)
            raise
        body = _Body(response.stream, connection, self)
        return httpx.Response(
            response.status_code, headers=response.headers, stream=body, extensions=response.extensions
        )

    async def aclose(self) -> None:
        for connection in list(self._idle):
            self._forget(connection)
        while self._closing:
            await asyncio.wait(self._closing)

    def give_back(self, connection: httpx.AsyncHTTPTransport) -> None:
        """Keeps a connection for the next call, for at most 30 s."""
        timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._forget, connection)
        self._idle[connection] = timer
        if len(self._idle) > self._keep:
            self._forget(next(iter(self._idle)))

    async def drop(self, connection: httpx.AsyncHTTPTransport) -> None:
        """Closes a connection, and waits at most 0.2 s for it."""
        closing = self._close(connection)
        with anyio.move_on_after(_CLOSING_SECONDS, shield=True):
            await asyncio.wait((closing,))

    def _take(self) -> httpx.AsyncHTTPTransport:
        if self._idle:
            connection, timer = self._idle.popitem()
            timer.cancel()
            return connection
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=_IDLE_SECONDS)
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, limits=limits)

    def _forget(self, connection: httpx.AsyncHTTPTransport) -> None:
        self._idle.pop(connection).cancel()
        self._close(connection)

    def _close(self, connection: httpx.AsyncHTTPTransport) -> asyncio.Task[None]:
        # A task of its own: the caller may be cancelled while the connection closes.
        closing = asyncio.create_task(connection.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing


class _Body(httpx.AsyncByteStream):
    """The body of a response. After it was read to the end, its connection is kept for the next call."""

    def __init__(
        self,
        stream: httpx.AsyncByteStream | httpx.SyncByteStream,
        connection: httpx.AsyncHTTPTransport,
        connections: Connections,
    ) -> None:
        assert isinstance(stream, httpx.AsyncByteStream)
        self._stream = stream
        self._connection = connection
        self._connections = connections
        self._is_read = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece
        self._is_read = True

    async def aclose(self) -> None:
        if not self._is_read:
            await self._connections.drop(self._connection)
            return
        try:
            await self._stream.aclose()
        except BaseException:
            await self._connections.drop(self._connection)
            raise
        self._connections.give_back(self._connection)


def open_client(concurrency: int) -> httpx.AsyncClient:
    """A client for `concurrency` calls at a time. Only connecting has a timeout: see domain.ports.Model."""
    return httpx.AsyncClient(
        transport=Connections(keep=concurrency),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
    )
