"""The content of one result: measured while it is read, held in memory if small, else in a draft."""

import hashlib
import math
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import NamedTuple, TypeVar

import anyio
from msgspec import Struct

from app.masking.result_masks import ResultMasks
from app.models.known_models import SessionModel
from content.text import line_count
from content.threads import LONG_BYTES, in_thread_if_long
from content.tokens import SLICE_CHARS, Meter, TokenMeter, measure
from domain.budget import Budget, Session
from domain.ports import Draft, ResultStore, Tokenizer
from domain.results import Durability, Measure, StoredResult, ToolResult
from domain.structs import frozen_struct
from policies import view
from policies.decide import passing_tokens
from policies.oversized import Ends
from policies.policy import OBSERVE, Policy
from policies.view import View

T = TypeVar("T")
Piece = TypeVar("Piece", str, bytes, str | bytes)

HELD_BYTES = 1 << 20
"""The most bytes of a body in memory. A larger body goes to a draft."""

TAIL_BYTES = 1 << 12
"""The bytes at the end of a body that stay in memory, so that a short tail needs no second reading."""

SLICE_BYTES = 1 << 18


class Viewed(NamedTuple):
    """The measure of what the view caps leave of a content. `total` rows or matches are in the whole; None if
    no rows were left out."""

    measure: Measure
    total: int | None


class Body(Struct, eq=False):
    """The content of one result, which is read once. The caller closes it if `opened` is not None: there is a
    draft then. `durability`: that of the published content, None before."""

    _store: ResultStore
    _tokenizer: Tokenizer
    _policy: Policy
    _counting: anyio.CapacityLimiter
    _result: ToolResult
    _budget: Budget
    masks: ResultMasks
    """They are found while the content is read, and applied to all later reads."""
    _is_judged: bool = True
    _view: View | None = None
    _meter: Meter | None = None
    _held: list[bytes] = []
    _held_bytes: int = 0
    _text: str | None = None
    _last: bytes = b""
    _sha256: str = ""
    _draft: Draft | None = None
    opened: AbstractAsyncContextManager[Draft] | None = None
    _kept: StoredResult | None = None
    durability: Durability | None = None

    def __post_init__(self) -> None:
        policy = self._policy
        self._is_judged = not policy.bypass and policy.mode is not OBSERVE
        if view.is_set(policy):
            self._view = View(policy, self._result)

    async def close(self) -> None:
        """Deletes a draft that was not published."""
        assert self.opened is not None
        await self.opened.__aexit__(*sys.exc_info())

    def fill_at_once(self, text: str | AsyncIterator[bytes | str]) -> Measure | None:
        """Measures a short text in one step. Returns None if the text is long, comes in chunks, has a view,
        or its search would take long: call `fill` then."""
        if not isinstance(text, str) or self._view is not None or len(text) > LONG_BYTES:
            return None
        data = text.encode()
        is_over = self._is_over(len(data), len(text))
        if not self.masks.search_at_once(data):
            return None
        self._held = [data]
        self._held_bytes = len(data)
        self._last = data[-TAIL_BYTES:]
        if not is_over and len(text) <= SLICE_CHARS:
            return measure(data, self._tokenizer, text)
        tokens = self._new_token_meter()
        if is_over:
            tokens.estimate()
        tokens.feed(text)
        return Measure(len(data), line_count(data), len(text), *tokens.finish())

    async def fill(self, content: str | AsyncIterator[bytes | str]) -> Measure:
        """Reads and measures all of the content. Raises InvalidUtf8, and errors of the chunks and of the
        store."""
        async for piece in _alone(content) if isinstance(content, str) else content:
            text = piece if isinstance(piece, str) else None
            chunk = piece.encode() if isinstance(piece, str) else piece
            is_small = len(chunk) <= LONG_BYTES and not self._is_over(len(chunk))
            if self._meter is not None or self._held or not is_small:
                self._meter = self._meter or await self._opened_meter()
                await self._weigh(self._meter, chunk, text)
            else:
                self._text = text
            await self.masks.search(chunk)
            if self._view is not None:
                await self._look(self._view, chunk if text is None else text)
            before = self._last if len(chunk) < TAIL_BYTES else b""
            self._last = (before + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]
            self._held.append(chunk)
            self._held_bytes += len(chunk)
            if self._held_bytes > HELD_BYTES:
                await self._spill()
        await self.masks.finish()
        if self._view is not None:
            self._view.finish()
        if self._meter is None:
            return measure(b"".join(self._held), self._tokenizer, self._text)
        return await self._finished(self._meter)

    @property
    def is_viewed(self) -> bool:
        """True if the view caps leave something out."""
        return self._view is not None and self._view.cuts

    async def viewed(self) -> Viewed:
        """Measures what the view caps and the masks leave, by reading the content again."""
        meter = self._new_meter()
        async for chunk in self._shown():
            await self._weigh(meter, chunk)
        return Viewed(await self._finished(meter), self._view.total if self._view is not None else None)

    @property
    def sha256(self) -> str:
        """SHA-256 of the content, in hex. Computed on first use: a result that passes without a call id needs
        none."""
        if not self._sha256:
            if self._meter is None:
                self._sha256 = hashlib.sha256(b"".join(self._held)).hexdigest()
            else:
                self._sha256 = self._meter.sha256
        return self._sha256

    async def content(self) -> bytes:
        """The whole content in memory, for an answer that returns it."""
        if not self.masks.are_in_content and self._draft is None and len(self._held) == 1:
            return self._held[0]
        return b"".join([chunk async for chunk in self._read()])

    async def ends(self, wanted: Ends, *, viewed: bool) -> tuple[bytes, bytes]:
        """The first and the last bytes of the content, or of what the view caps leave."""
        if not viewed and not self.masks.are_in_content and self._draft is None and len(self._held) == 1:
            (whole,) = self._held
            return whole[: wanted.head], whole[-wanted.tail :] if wanted.tail else b""
        is_kept = not viewed and not self.masks.are_in_content and wanted.tail <= TAIL_BYTES
        tail = self._last[-wanted.tail :] if is_kept and wanted.tail else b""
        if is_kept:
            wanted = wanted._replace(tail=0)
        # Joined at the end, so that a content of one chunk is not copied.
        head, missing = list[bytes](), wanted.head
        async with aclosing(self._shown() if viewed else self._read()) as chunks:
            while wanted.tail or missing:
                chunk = await anext(chunks, None)
                if chunk is None:
                    break
                if missing:
                    head.append(chunk[:missing])
                    missing -= len(head[-1])
                tail = (tail + chunk[-wanted.tail :])[-wanted.tail :] if wanted.tail else tail
        return b"".join(head), tail

    async def _shown(self) -> AsyncGenerator[bytes]:
        if self._view is None:
            async for chunk in self._read():
                yield chunk
            return
        again = View(self._policy, self._result)
        async for chunk in self._read():
            for start in range(0, len(chunk), SLICE_BYTES):
                if shown := await self._look(again, chunk[start : start + SLICE_BYTES]):
                    yield shown.encode()
        yield again.finish().encode()

    async def _look(self, through: View, piece: str | bytes) -> str:
        return await in_thread_if_long(len(piece), through.feed, piece, limiter=self._counting)

    def _read(self) -> AsyncGenerator[bytes]:
        return self.masks.apply(self._stored())

    async def _stored(self) -> AsyncGenerator[bytes]:
        if self._kept is not None:
            async for chunk in self._store.read(self._kept):
                yield chunk
        elif self._draft is not None:
            async for chunk in self._draft.read():
                yield chunk
        for chunk in self._held:
            yield chunk

    async def publish(self, stored: StoredResult) -> None:
        """Stores the content. To be called once."""
        await self._spill()
        assert self._draft is not None
        self.durability = await self._draft.publish(stored)
        self._kept = stored

    @property
    def is_published(self) -> bool:
        return self._kept is not None

    def _is_over(self, size: int, chars: int = 0) -> bool:
        """True past a cap: the outcome is then certain, and an estimate of the tokens is enough."""
        policy = self._policy
        return self._is_judged and (0 < policy.max_bytes < size or 0 < policy.max_chars < chars)

    def _new_token_meter(self) -> TokenMeter:
        enough = passing_tokens(self._policy, self._budget) if self._is_judged else math.inf
        return TokenMeter(self._tokenizer, enough)

    def _new_meter(self) -> Meter:
        return Meter(self._new_token_meter())

    async def _opened_meter(self) -> Meter:
        meter = self._new_meter()
        for chunk in self._held:
            await self._weigh(meter, chunk)
        return meter

    async def _finished(self, meter: Meter) -> Measure:
        # The scanner has at most one slice that it has not counted yet.
        return meter.finish()

    async def _weigh(self, meter: Meter, chunk: bytes, text: str | None = None) -> None:
        if self._is_over(meter.bytes + len(chunk), meter.chars + len(text or "")):
            meter.estimate_tokens()
        await in_thread_if_long(len(chunk), _feed, meter, chunk, text, limiter=self._counting)

    async def _spill(self) -> None:
        if self._draft is None:
            self.opened = self._store.draft(self._result.key.tenant)
            self._draft = await self.opened.__aenter__()
        for chunk in self._held:
            await self._draft.write(chunk)
        self._held.clear()
        self._held_bytes = 0


async def _alone(text: str) -> AsyncIterator[str]:
    yield text


def _feed(meter: Meter, chunk: bytes, text: str | None) -> None:
    if text is not None:
        meter.feed(chunk, text)
        return
    for start in range(0, len(chunk), SLICE_BYTES):
        meter.feed(chunk[start : start + SLICE_BYTES])


@frozen_struct
class MeasuredResult:
    """One result with the facts for a decision. `viewed` is None if the view caps leave the whole content and
    no secret is masked."""

    result: ToolResult
    session: Session
    model: SessionModel
    policy: Policy
    body: Body
    measure: Measure
    viewed: Viewed | None
    budget: Budget

    @property
    def shown(self) -> Measure:
        """The measure of what the view caps and the masks leave."""
        return self.measure if self.viewed is None else self.viewed.measure
