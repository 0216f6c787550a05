"""The map phase: a finding from every chunk, concurrently, until the deadline."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import anyio

from domain.errors import ContextExceeded, ModelError
from domain.llm import Message
from extraction.full_chunked import chunking
from extraction.full_chunked.chunking import Chunk
from extraction.prompts import prompts
from extraction.prompts.fences import new_nonce
from extraction.prompts.inquiry import Inquiry, Report, built, gather
from extraction.prompts.prompts import Part
from extraction.task.task import DEADLINE_PASSED, MARGIN_SECONDS, Progress, seconds_left

# The share of the time kept for the reduce phase.
_RESERVED_SHARE = 0.25
_RESERVED_SECONDS = 0.5

_LONGER = "a part is longer than the model's window"

# Kept instead of a finding: the chunk is too long for the model, which was asked about its halves.
_TOO_LONG = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk, and its place as the prompt describes it."""

    chunk: Chunk
    part: Part

    @property
    def size(self) -> int:
        return self.chunk.end - self.chunk.start


@dataclass(frozen=True, slots=True)
class Mapped:
    """A piece with its finding, or the reason without one; "" if it was cancelled because of others."""

    piece: Piece
    text: str | None
    failure: str = ""


async def pieces(inquiry: Inquiry, chunks: Sequence[Chunk], total: int, first_line: int = 1) -> list[Piece]:
    lines = await chunking.lines_of(inquiry.task.source, chunks, first_line)
    return [
        Piece(chunk, Part(chunk.number, total, chunk.start, chunk.end, first, last, chunk.overlap_before))
        for chunk, (first, last) in zip(chunks, lines, strict=True)
    ]


def too_little(covered: int, size: int) -> bool:
    """True if less than half of the data is covered: then there is no answer."""
    return 2 * covered < size


class MapPhase:
    """Maps the pieces of a plan. Replaces a piece that is too long by its halves. Each finding has at most
    `max_bytes`."""

    def __init__(self, inquiry: Inquiry, planned: Sequence[Piece], max_bytes: int) -> None:
        self._inquiry = inquiry
        self._max_bytes = max_bytes
        self._open = dict.fromkeys(planned)
        self._mapped: list[Mapped] = []
        self._bytes = sum(piece.size for piece in planned)
        self._lost_bytes = 0
        self._took: list[float] = []
        # The text of a chunk is in memory only during its call.
        self._slots = anyio.Semaphore(inquiry.asking.concurrency)
        self._scope = anyio.CancelScope()
        self._seconds = seconds_left(inquiry.asking)

    async def run(self) -> list[Mapped]:
        """Returns the results in the order of the document."""
        with self._scope:
            self._set_deadline()
            await self._map_all(list(self._open))
        reason = "" if self._is_lost else DEADLINE_PASSED
        for piece in list(self._open):
            self._finish(Mapped(piece, None, reason), "failed")
        return sorted(self._mapped, key=lambda mapped: mapped.piece.chunk.start)

    async def has_finding(self, piece: Piece) -> bool:
        """True if a finding is kept from an earlier question."""
        return bool(await self._inquiry.known(self._key(piece)))

    async def _map_all(self, wanted: Sequence[Piece]) -> None:
        await gather([partial(self._map, piece) for piece in wanted])

    async def _map(self, piece: Piece) -> None:
        key = self._key(piece)
        known = await self._inquiry.known(key)
        if known:
            self._finish(Mapped(piece, known), "cached")
            return
        try:
            if known == _TOO_LONG:
                raise ContextExceeded(_LONGER)
            report = await self._asked(piece)
        except ContextExceeded as error:
            await self._split(piece, key, error.detail)
        except ModelError as error:
            self._finish(Mapped(piece, None, error.detail), "failed")
        else:
            self._finish(Mapped(piece, report.text), "ok")
            await self._inquiry.keep(key, report)

    async def _asked(self, piece: Piece) -> Report:
        nonce = new_nonce()
        async with self._slots:
            started = anyio.current_time()
            messages = await self._prompt(piece, nonce)
            seconds = max(0.0, self._scope.deadline - anyio.current_time())
            report = await self._inquiry.report(messages, nonce, seconds)
            self._took.append(anyio.current_time() - started)
        self._set_deadline()
        return report

    async def _prompt(self, piece: Piece, nonce: str) -> tuple[Message, ...]:
        """A method of its own, so that only the prompt holds the chunk during the call."""
        inquiry, chunk = self._inquiry, piece.chunk
        build = partial(
            prompts.chunk_prompt,
            inquiry.document,
            inquiry.task.extract,
            await inquiry.read(chunk.start, chunk.end),
            piece.part,
            nonce,
            self._max_bytes,
            await inquiry.read(chunk.read_from, chunk.start),
        )
        return await built(build, chunk.end - chunk.read_from)

    async def _split(self, piece: Piece, key: str, reason: str) -> None:
        inquiry = self._inquiry
        overlap = inquiry.task.limits.overlap_percent
        halves = await chunking.halves(inquiry.task.source, inquiry.kind, piece.chunk, overlap)
        if not halves:
            self._finish(Mapped(piece, None, reason), "failed")
            return
        parts = await pieces(inquiry, halves, piece.part.total, piece.part.first_line)
        del self._open[piece]
        self._open |= dict.fromkeys(parts)
        self._set_deadline()
        await inquiry.keep(key, Report(_TOO_LONG, inquiry.asking.terms.name))
        await self._map_all(parts)

    def _finish(self, mapped: Mapped, status: str) -> None:
        del self._open[mapped.piece]
        self._mapped.append(mapped)
        done, total = len(self._mapped), len(self._mapped) + len(self._open)
        self._inquiry.task.progress(Progress("chunk", {"done": done, "total": total, "status": status}))
        if mapped.text is None:
            self._lost_bytes += mapped.piece.size
            if self._is_lost:
                # There will be no answer: further calls would be wasted.
                self._scope.cancel()

    @property
    def _is_lost(self) -> bool:
        return too_little(self._bytes - self._lost_bytes, self._bytes)

    def _set_deadline(self) -> None:
        left = seconds_left(self._inquiry.asking)
        reserve = 0.0
        if len(self._open) + len(self._mapped) > 1:
            reserve = min(max(_RESERVED_SHARE * self._seconds, _RESERVED_SECONDS), self._seconds / 2)
            average = sum(self._took) / max(1, len(self._took))
            # If no time is left for a reduce, the map phase uses it.
            reserve = max(reserve, average if average <= left else 0.0)
        self._scope.deadline = anyio.current_time() + left - reserve - MARGIN_SECONDS

    def _key(self, piece: Piece) -> str:
        spans = self._inquiry.task.source.located(piece.chunk.read_from, piece.chunk.end)
        return self._inquiry.key("chunk", spans, piece.chunk.overlap_before, self._max_bytes)
