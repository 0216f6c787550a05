"""The content of one result: measured while it is read, held in memory if small, else in a draft."""

import hashlib
import math
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import NamedTuple, TypeVar

import anyio
from msgspec import Raw, Struct

from app.masking.search_threads import SearchThreads
from app.models.known_models import SessionModel
from content.redaction.detector import Detector
from content.redaction.masks import Masked, Masks
from content.redaction.search import SecretSearch
from content.text import line_count
from content.threads import LONG_BYTES, in_thread_if_long
from content.tokens import SLICE_CHARS, Meter, TokenMeter, measure
from domain.budget import Budget, Session
from domain.ports import Draft, ResultStore, Tokenizer
from domain.results import Durability, Measure, StoredResult, ToolResult
from domain.structs import frozen_struct, replace
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
    _searches: SearchThreads
    _result: ToolResult
    _budget: Budget
    _detector: Detector | None = None
    _masks: Masks | None = None
    _masked: Masked | None = None
    _blocks: bytes = b""
    _block_masks: Masks | None = None
    masked_blocks: bytes | None = None
    """The content blocks with masks; None if they have none."""
    _is_judged: bool = True
    _view: View | None = None
    _meter: Meter | None = None
    _held: list[bytes] = []
    _held_bytes: int = 0
    _text: str | None = None
    _bytes: int = 0
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
        if self._detector is not None:
            search = SecretSearch(self._detector)
            search.hold(data)
            self._masks = search.finish_at_once()
            if self._masks is None:
                return None
        self._held = [data]
        self._held_bytes = self._bytes = len(data)
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
        search = None if self._detector is None else SecretSearch(self._detector)
        tenant = self._result.key.tenant
        async for piece in _alone(content) if isinstance(content, str) else content:
            text = piece if isinstance(piece, str) else None
            chunk = piece.encode() if isinstance(piece, str) else piece
            is_small = len(chunk) <= LONG_BYTES and not self._is_over(len(chunk))
            if self._meter is not None or self._held or not is_small:
                self._meter = self._meter or await self._opened_meter()
                await self._weigh(self._meter, chunk, text)
            else:
                self._text = text
            if search is not None:
                search.hold(chunk)
                await self._searches.look(tenant, search)
            if self._view is not None:
                await self._look(self._view, chunk if text is None else text)
            before = self._last if len(chunk) < TAIL_BYTES else b""
            self._last = (before + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]
            self._held.append(chunk)
            self._held_bytes += len(chunk)
            if self._held_bytes > HELD_BYTES:
                await self._spill()
        if search is not None:
            self._masks = await self._searches.finish(tenant, search)
        if self._view is not None:
            self._view.finish()
        if self._meter is None:
            measured = measure(b"".join(self._held), self._tokenizer, self._text)
        else:
            measured = await self._finished(self._meter)
        self._bytes = measured.bytes
        return measured

    @property
    def is_viewed(self) -> bool:
        """True if the view caps leave something out."""
        return self._view is not None and self._view.cuts

    async def search_blocks(self, blocks: Raw) -> None:
        """The content blocks, as JSON, whose text the content is: their names, links and other members are
        shown too if it passes."""
        if self._detector is not None:
            tenant = self._result.key.tenant
            self._blocks = bytes(blocks)
            self._block_masks = await self._searches.masks_of(tenant, self._detector, self._blocks)

    @property
    def may_have_secrets(self) -> bool:
        """False if `mask` need not be called."""
        return bool(self._masks or self._block_masks)

    async def mask(self, key: bytes) -> None:
        """Masks all later reads; `publish` stores the content as it came. `key` is that of the session."""
        if self._masks:
            self._masked = Masked(self._masks, self._bytes, key)
        if self._block_masks:
            tenant = self._result.key.tenant
            shown = await self._searches.masked_json(tenant, self._blocks, self._block_masks, key)
            self.masked_blocks = None if shown == self._blocks else shown

    @property
    def has_masked_text(self) -> bool:
        return self._masked is not None

    @property
    def has_secrets(self) -> bool:
        """Whether its texts, or the members that are shown if it passes, hold a secret."""
        return self._masked is not None or self.masked_blocks is not None

    @property
    def passes_with_masks(self) -> bool:
        return (self._masked if self._block_masks is None else self.masked_blocks) is not None

    @property
    def redacted(self) -> dict[str, int] | None:
        """How many secrets of each kind are masked if it passes; None if there are none."""
        masks = self._masks if self._block_masks is None else self._block_masks
        return masks.counts if masks is not None and self.passes_with_masks else None

    def as_read(self, measure: Measure) -> Measure:
        """The measure with the bytes that are read with masks."""
        return measure if self._masked is None else replace(measure, bytes=self._masked.size)

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
        if self._masked is None and self._draft is None and len(self._held) == 1:
            return self._held[0]
        return b"".join([chunk async for chunk in self._read()])

    async def ends(self, wanted: Ends, *, viewed: bool) -> tuple[bytes, bytes]:
        """The first and the last bytes of the content, or of what the view caps leave."""
        if not viewed and self._masked is None and self._draft is None and len(self._held) == 1:
            (whole,) = self._held
            return whole[: wanted.head], whole[-wanted.tail :] if wanted.tail else b""
        is_kept = not viewed and self._masked is None and wanted.tail <= TAIL_BYTES
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

    async def _read(self) -> AsyncGenerator[bytes]:
        at = 0
        async for chunk in self._stored():
            if self._masked is None:
                yield chunk
            else:
                async for piece in self._masked.pieces(chunk, at):
                    yield piece
            at += len(chunk)

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
