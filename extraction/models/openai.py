"""A model behind a backend that speaks OpenAI's chat completions, over HTTP/1.1."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import anyio
import httpx

from domain.errors import ModelBadReply, ModelUnavailable
from domain.llm import ModelTerms, Prompt, Reply
from extraction.models.openai_errors import failure, parse_complaint
from extraction.models.openai_wire import Dialect, output_tokens, parse_reply, request_body

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


class OpenAIModel:
    """Implements domain.ports.Model. Only the backend gets to know the key and the address."""

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
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._max_reply_bytes = max_reply_bytes
        self._dialect = Dialect()
        self._headers = {
            b"Accept": b"application/json",
            b"Accept-Encoding": b"identity",
            b"Content-Type": b"application/json",
            b"User-Agent": f"spillgate/{version}".encode(),
        }
        if api_key and api_key.strip():
            self._headers[b"Authorization"] = f"Bearer {api_key.strip()}".encode()

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
