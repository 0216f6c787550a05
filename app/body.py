"""A result's content on its way through: measured while it is read, held small, spilled when large."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType

import anyio

from content.meter import Meter, measure
from domain.ports import Draft, ResultStore, Tokenizer
from domain.results import Durability, Measure, StoredResult
from policies.facts import Policy

HELD_BYTES = 1 << 20
"""What is held in memory before a body is spilled to a draft."""

INLINE_BYTES = 1 << 14
"""Counting more than this takes over half a millisecond: it goes to a thread."""

SLICE_BYTES = 1 << 18
WHOLE_BYTES = 3 << 20
"""Text that comes decoded and is only sampled is weighed on the loop: a millisecond and a half a MiB."""


class Body:
    """Reads a content once. A context manager: leaving it drops a draft that was not published."""

    def __init__(
        self, store: ResultStore, tokenizer: Tokenizer, policy: Policy, counting: anyio.CapacityLimiter
    ) -> None:
        self._store = store
        self._policy = policy
        self._counting = counting
        self._tokenizer = tokenizer
        self._meter: Meter | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._text: str | None = None
        self._sha256 = ""
        self._draft: Draft | None = None
        self._opened: AbstractAsyncContextManager[Draft] | None = None
        self.durability: Durability | None = None
        """Of what was published; None before that."""

    async def __aenter__(self) -> "Body":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)

    async def fill(self, chunks: AsyncIterator[bytes | str]) -> Measure:
        """Reads all of it. Raises InvalidUtf8, and whatever the chunks or the store raise."""
        async for piece in chunks:
            text = piece if isinstance(piece, str) else None
            chunk = piece.encode() if isinstance(piece, str) else piece
            if self._meter is not None or self._held or len(chunk) > INLINE_BYTES:
                self._meter = self._meter or await self._opened_meter()
                await self._weigh(self._meter, chunk, text)
            else:
                self._text = text
            self._held.append(chunk)
            self._held_bytes += len(chunk)
            if self._held_bytes > HELD_BYTES:
                await self._spill()
        if self._meter is None:
            return measure(b"".join(self._held), self._tokenizer, self._text)
        if self._meter.estimates:
            return self._meter.finish()
        return await anyio.to_thread.run_sync(self._meter.finish, limiter=self._counting)

    @property
    def sha256(self) -> str:
        """Of all of it, in hex. Worked out when first asked for: what passes without a name needs none."""
        if not self._sha256:
            if self._meter is None:
                self._sha256 = hashlib.sha256(b"".join(self._held)).hexdigest()
            else:
                self._sha256 = self._meter.sha256
        return self._sha256

    async def content(self) -> bytes:
        """All of it in memory, for an answer that hands it back."""
        if self._draft is None and len(self._held) == 1:
            return self._held[0]
        return b"".join([chunk async for chunk in self._read()])

    async def ends(self, head_bytes: int, tail_bytes: int) -> tuple[bytes, bytes]:
        """The first and the last bytes of it."""
        head, tail = bytearray(), b""
        async for chunk in self._read():
            head += chunk[: head_bytes - len(head)]
            tail = (tail + chunk[-tail_bytes:])[-tail_bytes:] if tail_bytes else b""
        return bytes(head), tail

    async def _read(self) -> AsyncIterator[bytes]:
        if self._draft is not None:
            async for chunk in self._draft.read():
                yield chunk
        for chunk in self._held:
            yield chunk

    async def publish(self, stored: StoredResult) -> None:
        """Keeps all of it in the store."""
        await self._spill()
        assert self._draft is not None
        self.durability = await self._draft.publish(stored)

    async def _opened_meter(self) -> Meter:
        meter = Meter(self._tokenizer)
        for chunk in self._held:
            await self._weigh(meter, chunk)
        return meter

    async def _weigh(self, meter: Meter, chunk: bytes, text: str | None = None) -> None:
        # Past the size cap its fate is decided: from there on an estimate of the tokens is enough.
        if 0 < self._policy.max_bytes < meter.bytes + len(chunk) and not self._policy.bypass:
            meter.estimate_tokens()
        inline = INLINE_BYTES
        if meter.estimates:
            inline = SLICE_BYTES if text is None else WHOLE_BYTES
        if len(chunk) <= inline:
            meter.feed(chunk, text)
        else:
            await anyio.to_thread.run_sync(partial(_feed, meter, chunk, text), limiter=self._counting)

    async def _spill(self) -> None:
        if self._draft is None:
            self._opened = self._store.draft()
            self._draft = await self._opened.__aenter__()
        for chunk in self._held:
            await self._draft.write(chunk)
        self._held.clear()
        self._held_bytes = 0


def _feed(meter: Meter, chunk: bytes, text: str | None) -> None:
    if text is not None:
        meter.feed(chunk, text)
        return
    for start in range(0, len(chunk), SLICE_BYTES):
        meter.feed(chunk[start : start + SLICE_BYTES])
