"""Results as agents send them: each distinct, sent as JSON or streamed, known again by its sha256."""

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import cache

import httpx

PATIENCE_SECONDS = 60.0
SIZES = (13_000, 20_000, 50_000, 120_000, 400_000, 1_100_000, 1_500_000)
WEIGHTS = (6, 5, 4, 3, 2, 1, 1)
CHUNK = 40_001
"""Odd, so that chunks end within characters."""


@cache
def _page() -> str:
    """200 KB of lines whose characters take one to four bytes."""
    source = random.Random(1)
    words = ("result", "ошибка", "404", "naïve", "数据", "\U0001f4be", '"quoted"', "back\\slash", "tab\there")
    lines = [" ".join(source.choices(words, k=source.randint(3, 14))) for _ in range(3_000)]
    return "\n".join(lines)


@dataclass(frozen=True)
class Call:
    """One tool result. With a `call_id` it may be sent again and is kept once."""

    session_id: str
    content: bytes
    call_id: str | None = None
    is_streamed: bool = False

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    async def send(self, client: httpx.AsyncClient) -> httpx.Response:
        fields = {"session_id": self.session_id, "tool_name": "execute_shell"}
        if self.call_id is not None:
            fields["tool_call_id"] = self.call_id
        if not self.is_streamed:
            return await client.post("/results", json=fields | {"content": self.content.decode()})
        headers = {"Content-Type": "text/plain"}
        return await client.post("/results", params=fields, content=self._chunks(), headers=headers)

    async def _chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.content), CHUNK):
            yield self.content[start : start + CHUNK]


@dataclass(frozen=True)
class Kept:
    """What was acknowledged: from then on it may not be lost."""

    handle: str
    sha256: str
    size: int
    entry_id: str

    @classmethod
    def of(cls, call: Call, answer: httpx.Response) -> "Kept":
        body = answer.json()
        assert answer.status_code == 201, body
        assert answer.headers["Location"] == f"/results/{body['handle']}"
        assert body["measure"]["bytes"] == len(call.content)
        return cls(body["handle"], call.sha256, len(call.content), body["entry_id"])


def text_of(name: str, size: int) -> bytes:
    """Distinct for each name, and about `size` bytes."""
    page = _page()
    start = hash_of(name) % (len(page) // 2)
    text = f"{name}\n{page[start : start + size]}".encode()
    if len(text) < size:
        text += page.encode() * (size // len(page) + 1)
    return text[:size].decode(errors="ignore").encode()


def hash_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6])


def some_call(source: random.Random, name: str, session_id: str) -> Call:
    """Half of them are streamed, and a third are named."""
    size = source.choices(SIZES, WEIGHTS)[0]
    call_id = name if source.random() < 0.35 else None
    return Call(session_id, text_of(name, size), call_id, is_streamed=source.random() < 0.5)


async def insist(ask: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    """The first answer that is whole and no 503, or the last after `PATIENCE_SECONDS`: on a busy machine a
    store may seem slow, and the service then says so, or cuts a body that it has begun to send."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            answer = await ask()
        except httpx.RemoteProtocolError:
            if time.monotonic() > deadline:
                raise
        else:
            if answer.status_code != 503 or time.monotonic() > deadline:
                return answer
        await asyncio.sleep(0.1)


async def read_back(client: httpx.AsyncClient, kept: Kept) -> list[str]:
    """What is wrong with a result that was acknowledged, as a caller sees it."""
    info = await insist(lambda: client.get(f"/results/{kept.handle}"))
    if info.status_code != 200:
        return [f"lost: {kept.handle} answers {info.status_code}"]
    found = info.json()
    if (found["sha256"], found["measure"]["bytes"], found["handle"]) != (kept.sha256, kept.size, kept.handle):
        return [f"wrong info: {kept.handle}"]
    body = await insist(lambda: client.get(f"/results/{kept.handle}/content"))
    if body.status_code != 200 or hashlib.sha256(body.content).hexdigest() != kept.sha256:
        return [f"torn: {kept.handle} answers {body.status_code}, {len(body.content)} of {kept.size} bytes"]
    return []


async def statuses(client: httpx.AsyncClient, handle: str) -> set[int]:
    """The statuses of every route that reads a stored result."""
    path = f"/results/{handle}"
    answers = [
        await client.get(path),
        await client.get(f"{path}/content"),
        await client.get(f"{path}/lines"),
        await client.get(f"{path}/grep", params={"pattern": "x"}),
        await client.get(f"{path}/query", params={"expression": "@"}),
        await client.post("/extract", json={"handle": handle, "extract": "all"}),
    ]
    return {answer.status_code for answer in answers}
