"""Models behind backends that speak OpenAI's chat completions or embeddings, and their connections."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import ClassVar

import anyio
import httpx
from anyio.to_thread import run_sync

from domain.errors import ModelBadReply, ModelUnavailable
from domain.llm import ModelTerms, Prompt, Reply
from extraction.models.openai_errors import failure, parse_complaint
from extraction.models.openai_wire import (
    Dialect,
    embeddings_body,
    output_tokens,
    parse_embeddings,
    parse_reply,
    request_body,
)

MAX_REPLY_BYTES = 4 << 20

_SLICE = 1 << 16

# How often one attempt may adapt its request to the errors of the backend.
_MOST_LESSONS = 6

# The most bytes and seconds for the body of an error: its status says the most.
_ERROR_BYTES = 1 << 16
_ERROR_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: httpx.Headers
    body: bytearray


class _Endpoint:
    """A model at one URL of a backend. Only the backend gets to know the key and the address."""

    path: ClassVar[str]

    def __init__(
        self,
        terms: ModelTerms,
        client: httpx.AsyncClient,
        base_url: str,
        api_key: str | None,
        *,
        version: str,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        """`version` is that of Spillgate, sent as User-Agent."""
        self.terms = terms
        self._client = client
        self._url = f"{base_url.rstrip('/')}/{self.path}"
        self._max_reply_bytes = max_reply_bytes
        self._headers = {
            b"Accept": b"application/json",
            b"Accept-Encoding": b"identity",
            b"Content-Type": b"application/json",
            b"User-Agent": f"spillgate/{version}".encode(),
        }
        if api_key and api_key.strip():
            self._headers[b"Authorization"] = f"Bearer {api_key.strip()}".encode()

    async def _exchange(self, body: bytes, note_sent: Callable[[bool], None]) -> _Answer:
        note_sent(False)
        headers = self._headers | {b"Content-Length": b"%d" % len(body)}
        request = self._client.build_request(
            "POST", self._url, headers=headers, content=_slices(body, note_sent)
        )
        # Nothing else needs the body while the backend thinks: the slices release it once it is sent.
        del body
        try:
            response = await self._client.send(request, stream=True, follow_redirects=False)
            try:
                return await self._read(response)
            finally:
                await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise ModelUnavailable("the backend cannot be reached") from None
        except (httpx.RequestError, OSError):
            raise ModelUnavailable("the backend broke the connection") from None

    async def _read(self, response: httpx.Response) -> _Answer:
        body = bytearray()
        answer = _Answer(response.status_code, response.headers, body)
        # Compression was not requested, and the size after decompression is not bounded.
        packed = response.headers.get("content-encoding", "identity").strip().lower() != "identity"
        if answer.status >= 300:
            if not packed:
                with anyio.move_on_after(_ERROR_SECONDS):
                    await _fill(body, response, _ERROR_BYTES)
            return answer
        if packed:
            raise ModelBadReply("the reply is compressed")
        if not await _fill(body, response, self._max_reply_bytes):
            raise ModelBadReply("the reply is too long")
        return answer


class OpenAIModel(_Endpoint):
    """Implements domain.ports.Model over `/chat/completions`."""

    path = "chat/completions"
    # Adapted to the errors of the backend, for all later calls.
    _dialect = Dialect()

    async def complete(
        self, prompt: Prompt, note_sent: Callable[[bool], None] = lambda is_sent: None
    ) -> Reply:
        """Makes one attempt. A backend that does not accept a field of the request, which costs nothing, is
        sent the request again without that field, or with a smaller value."""
        lessons = 0
        while True:
            used = self._dialect
            answer = await self._exchange(request_body(prompt, self.terms, used), note_sent)
            if answer.status < 300:
                return parse_reply(answer.body)
            complaint = parse_complaint(answer.body)
            allowed = output_tokens(prompt, self.terms, used)
            taught = complaint.taught(answer.status, used, self._dialect, allowed)
            if taught is None or lessons == _MOST_LESSONS:
                raise failure(answer.status, answer.headers, complaint)
            self._dialect = taught
            lessons += 1


class OpenAIEmbedder(_Endpoint):
    """Implements domain.ports.Model over `/embeddings`: the reply holds a vector for each message."""

    path = "embeddings"

    async def complete(
        self, prompt: Prompt, note_sent: Callable[[bool], None] = lambda is_sent: None
    ) -> Reply:
        answer = await self._exchange(embeddings_body(prompt, self.terms), note_sent)
        if answer.status < 300:
            # Tens of milliseconds for 32 vectors of 3,072 dimensions: in a thread, the event loop goes on.
            return await run_sync(parse_embeddings, answer.body, len(prompt.messages))
        raise failure(answer.status, answer.headers, parse_complaint(answer.body))


async def _slices(body: bytes, note_sent: Callable[[bool], None]) -> AsyncIterator[bytes]:
    for start in range(0, len(body), _SLICE):
        yield body[start : start + _SLICE]
    # The sender asks for more once the last slice is written.
    note_sent(True)


async def _fill(body: bytearray, response: httpx.Response, most: int) -> bool:
    """Reads the body. False, and stops reading, if it has more than `most` bytes."""
    if int(response.headers.get("content-length", "0")) > most:
        return False
    async for piece in response.aiter_raw():
        if len(body) + len(piece) > most:
            return False
        body += piece
    return True


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
