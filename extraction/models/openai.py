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
from extraction.models.openai_wire import (
    CLASSIC,
    REASONING,
    embeddings_body,
    failure,
    parse_complaint,
    parse_embeddings,
    parse_reply,
    request_body,
)

MAX_REPLY_BYTES = 4 << 20

_SLICE = 1 << 16

# The most bytes and seconds for the body of an error: its status says the most.
_ERROR_BYTES = 1 << 16
_ERROR_SECONDS = 1.0


@dataclass(slots=True)
class _HttpReply:
    """The backend's reply. `is_whole`: the body was read to the end."""

    status: int
    headers: httpx.Headers
    body: bytearray
    is_whole: bool = False


class _Endpoint:
    """A model at one URL of a backend. The key leaves the process only in requests to it."""

    path: ClassVar[str]

    def __init__(
        self,
        terms: ModelTerms,
        connections: "BackendConnections",
        base_url: str,
        api_key: str | None,
        *,
        version: str,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        """`version` is that of Spillgate, sent as User-Agent."""
        self.terms = terms
        self._connections = connections
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

    async def _exchange(self, body: bytes, note_sent: Callable[[bool], None]) -> _HttpReply:
        note_sent(False)
        headers = self._headers | {b"Content-Length": b"%d" % len(body)}
        client, answer = self._connections.take(), None
        try:
            # Not built by the client, which would send the backend's cookies back.
            request = httpx.Request("POST", self._url, headers=headers, content=_slices(body, note_sent))
            # Nothing else needs the body: the slices release it once it is sent.
            del body
            answer = await self._read(await client.send(request, stream=True))
            return answer
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise ModelUnavailable("the backend cannot be reached") from None
        except (httpx.RequestError, OSError):
            raise ModelUnavailable("the backend broke the connection") from None
        finally:
            if answer is not None and answer.is_whole:
                self._connections.keep(client)
            else:
                await self._connections.drop(client)

    async def _read(self, response: httpx.Response) -> _HttpReply:
        answer = _HttpReply(response.status_code, response.headers, bytearray())
        # Compression was not requested, and the size after decompression is not bounded.
        packed = response.headers.get("content-encoding", "identity").strip().lower() != "identity"
        if answer.status >= 300:
            if not packed:
                with anyio.move_on_after(_ERROR_SECONDS):
                    await _fill(answer, response, _ERROR_BYTES)
            return answer
        if packed:
            raise ModelBadReply("the reply is compressed")
        await _fill(answer, response, self._max_reply_bytes)
        if not answer.is_whole:
            raise ModelBadReply("the reply is too long")
        return answer


class OpenAIModel(_Endpoint):
    """Implements domain.ports.Model over `/chat/completions`."""

    path = "chat/completions"
    # Changes once, if the backend refuses it. All later calls use the other dialect.
    _dialect = CLASSIC

    async def complete(
        self, prompt: Prompt, note_sent: Callable[[bool], None] = lambda is_sent: None
    ) -> Reply:
        """Makes one attempt. A backend that refuses a field of the classic dialect, which costs nothing, is
        sent the request in the other one."""
        while True:
            dialect = self._dialect
            answer = await self._exchange(request_body(prompt, self.terms, dialect), note_sent)
            if answer.status < 300:
                return parse_reply(answer.body)
            complaint = parse_complaint(answer.body)
            if dialect is REASONING or not complaint.wants_reasoning(answer.status):
                raise failure(answer.status, answer.headers, complaint)
            self._dialect = REASONING


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


async def _fill(answer: _HttpReply, response: httpx.Response, most: int) -> None:
    """Reads the body. Stops reading if it has more than `most` bytes."""
    if int(response.headers.get("content-length", "0")) > most:
        return
    async for piece in response.aiter_raw():
        if len(answer.body) + len(piece) > most:
            return
        answer.body += piece
    answer.is_whole = True


_CONNECT_SECONDS = 5.0
_IDLE_SECONDS = 30.0
_CLOSING_SECONDS = 0.2


class BackendConnections:
    """Clients of one connection each. Up to `keep` of them wait for later calls.

    The pool of httpx leaks an open connection if a call is cancelled at the wrong moment. Here a connection
    is closed with its client unless its call ended normally. Only connecting has a timeout: see
    domain.ports.Model.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._tls = httpx.create_ssl_context(trust_env=False)
        self._idle: dict[httpx.AsyncClient, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def take(self) -> httpx.AsyncClient:
        """Returns a client. Give it back with `keep` or `drop`."""
        if self._idle:
            client, timer = self._idle.popitem()
            timer.cancel()
            return client
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=_IDLE_SECONDS)
        timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
        return httpx.AsyncClient(verify=self._tls, trust_env=False, limits=limits, timeout=timeout)

    def keep(self, client: httpx.AsyncClient) -> None:
        """Keeps a client whose reply was read to the end, for at most 30 s."""
        timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._forget, client)
        self._idle[client] = timer
        if len(self._idle) > self._keep:
            self._forget(next(iter(self._idle)))

    async def drop(self, client: httpx.AsyncClient) -> None:
        """Closes a client, and waits at most 0.2 s for it."""
        closing = self._close(client)
        with anyio.move_on_after(_CLOSING_SECONDS, shield=True):
            await asyncio.wait((closing,))

    async def aclose(self) -> None:
        for client in list(self._idle):
            self._forget(client)
        while self._closing:
            await asyncio.wait(self._closing)

    def _forget(self, client: httpx.AsyncClient) -> None:
        self._idle.pop(client).cancel()
        self._close(client)

    def _close(self, client: httpx.AsyncClient) -> asyncio.Task[None]:
        # A task of its own: the caller may be cancelled while the connection closes.
        closing = asyncio.create_task(client.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing
