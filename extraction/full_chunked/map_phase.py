"""The map phase: a finding from every chunk, concurrently, until the deadline."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import anyio

from content.threads import in_thread_if_long
from domain.errors import ContextExceeded, ModelError
from domain.llm import Message
from extraction import prompts
from extraction.full_chunked import chunking
from extraction.prompts import Part, new_nonce
from extraction.reports import Inquiry, Report, gather
from extraction.task import DEADLINE_PASSED, MARGIN_SECONDS, Progress

# The share of the time kept for the reduce phase.
_RESERVED_SHARE = 0.25
_RESERVED_SECONDS = 0.5

_LONGER = "a part is longer than the model's window"

# Kept instead of a finding: the chunk is too long for the model, which was asked about its halves.
_TOO_LONG = ""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A chunk with `text`, its finding; or with `failure`, why there is none: "" if it was cancelled because
    too many others failed."""

    part: Part
    text: str | None
    failure: str = ""


def too_little(covered: int, size: int) -> bool:
    """True if less than half of the data is covered: the strategy then fails."""
    return 2 * covered < size


class MapPhase:
    """Maps the chunks of a plan. Replaces a chunk that is too long by its halves. Each finding has at most
    `max_bytes`."""

    def __init__(self, inquiry: Inquiry, planned: Sequence[Part], max_bytes: int) -> None:
        self._inquiry = inquiry
        self._max_bytes = max_bytes
        self._open = dict.fromkeys(planned)
        self._mapped: list[Mapped] = []
        self._bytes = sum(part.size for part in planned)
        self._lost_bytes = 0
        self._took: list[float] = []
        # The text of a chunk is in memory only during its call.
        self._slots = anyio.Semaphore(inquiry.asking.concurrency)
        self._scope = anyio.CancelScope()
        self._seconds = inquiry.task.seconds_left

    async def run(self) -> list[Mapped]:
        """Returns the results in the order of the document."""
        with self._scope:
            self._set_deadline()
            await self._map_all(list(self._open))
        reason = "" if self._is_lost else DEADLINE_PASSED
        for part in list(self._open):
            self._finish(Mapped(part, None, reason), "failed")
        return sorted(self._mapped, key=lambda mapped: mapped.part.start)

    async def has_finding(self, part: Part) -> bool:
        """True if a finding is kept from an earlier question."""
        return bool(await self._inquiry.known(self._key(part)))

    async def _map_all(self, parts: Sequence[Part]) -> None:
        await gather([partial(self._map, part) for part in parts])

    async def _map(self, part: Part) -> None:
        key = self._key(part)
        finding = await self._inquiry.known(key)
        if finding:
            self._finish(Mapped(part, finding), "cached")
            return
        too_long = _LONGER if finding == _TOO_LONG else None
        if too_long is None:
            try:
                report = await self._asked(part)
            except ContextExceeded as error:
                # Split below, not here: the error would hold the prompt until all parts of the chunk are
                # read.
                too_long = error.detail
            except ModelError as error:
                self._finish(Mapped(part, None, error.detail), "failed")
                return
        if too_long is not None:
            await self._split(part, key, too_long)
            return
        self._finish(Mapped(part, report.text), "ok")
        await self._inquiry.keep(key, report)

    async def _asked(self, part: Part) -> Report:
        nonce = new_nonce()
        async with self._slots:
            started = anyio.current_time()
            messages = await self._prompt(part, nonce)
            seconds = max(0.0, self._scope.deadline - anyio.current_time())
            report = await self._inquiry.report(messages, nonce, seconds)
            self._took.append(anyio.current_time() - started)
        self._set_deadline()
        return report

    async def _prompt(self, part: Part, nonce: str) -> tuple[Message, ...]:
        """A method of its own, so that only the prompt holds the chunk during the call."""
        inquiry = self._inquiry
        build = partial(
            prompts.chunk_prompt,
            inquiry.document,
            inquiry.task.extract,
            await inquiry.read(part.start, part.end),
            part,
            nonce,
            self._max_bytes,
            await inquiry.read(part.read_from, part.start),
        )
        return await in_thread_if_long(part.end - part.read_from, build)

    async def _split(self, part: Part, key: str, reason: str) -> None:
        inquiry = self._inquiry
        overlap = inquiry.task.limits.overlap_percent
        halves = await chunking.halves(inquiry.task.asked, inquiry.kind, part, overlap)
        if not halves:
            self._finish(Mapped(part, None, reason), "failed")
            return
        parts = await chunking.with_lines(inquiry.task.asked, halves, part.first_line)
        del self._open[part]
        self._open |= dict.fromkeys(parts)
        self._set_deadline()
        await inquiry.keep(key, Report(_TOO_LONG, inquiry.asking.terms.name))
        await self._map_all(parts)

    def _finish(self, mapped: Mapped, status: str) -> None:
        del self._open[mapped.part]
        self._mapped.append(mapped)
        done, total = len(self._mapped), len(self._mapped) + len(self._open)
        self._inquiry.task.progress(Progress("chunk", {"done": done, "total": total, "status": status}))
        if mapped.text is None:
            self._lost_bytes += mapped.part.size
            if self._is_lost:
                # There will be no answer: further calls would be wasted.
                self._scope.cancel()

    @property
    def _is_lost(self) -> bool:
        return too_little(self._bytes - self._lost_bytes, self._bytes)

    def _set_deadline(self) -> None:
        left = self._inquiry.task.seconds_left
        reserve = 0.0
        if len(self._open) + len(self._mapped) > 1:
            reserve = min(max(_RESERVED_SHARE * self._seconds, _RESERVED_SECONDS), self._seconds / 2)
            average = sum(self._took) / max(1, len(self._took))
            # If no time is left for a reduce, the map phase uses it.
            reserve = max(reserve, average if average <= left else 0.0)
        self._scope.deadline = anyio.current_time() + left - reserve - MARGIN_SECONDS

    def _key(self, part: Part) -> str:
        spans = self._inquiry.task.asked.located(part.read_from, part.end)
        return self._inquiry.key("chunk", spans, part.overlap, self._max_bytes)
