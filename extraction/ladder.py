"""Chooses the strategy that answers, and the fallback if it fails."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Protocol

import anyio
from anyio.to_thread import run_sync

from content.describe import outline
from domain.errors import ModelError
from domain.extraction import Answer, ExtractStatus, Mode
from extraction import read_grep, truncate
from extraction.asked_bytes import AskedBytes
from extraction.full_chunked import strategy as full_chunked
from extraction.retrieve import strategy as retrieve
from extraction.task import DEADLINE_PASSED, FALLBACK_SECONDS, StrategyFailed, Task, cap_answer


class Strategy(Protocol):
    """A strategy's module."""

    NEEDS_MODEL: bool

    async def answer(self, task: Task) -> Answer:
        """Raises StrategyFailed, and ModelError if it needs a model."""
        ...


STRATEGIES: dict[Mode, Strategy] = {
    Mode.FULL_CHUNKED: full_chunked,
    Mode.READ_GREP: read_grep,
    Mode.TRUNCATE: truncate,
    Mode.RETRIEVE: retrieve,
}

_SLICE = 1 << 20
_OUTLINE_BYTES = 2000


def runnable_modes(has_model: bool) -> tuple[Mode, ...]:
    """The modes that can run as configured: without a model, those that need none."""
    return tuple(
        mode for mode in Mode if has_model or mode not in STRATEGIES or not STRATEGIES[mode].NEEDS_MODEL
    )


async def answer(task: Task, mode: Mode, fallback: Mode = Mode.TRUNCATE) -> Answer:
    """Returns an answer of at most `task.max_bytes`. The warning about a fallback is never cut. Without a
    model the fallback is retrieve, which needs none."""
    if task.asking is None:
        fallback = Mode.RETRIEVE
    try:
        reply = await _within(task, mode, task.seconds_left)
    except StrategyFailed as failed:
        reply = await _fall_back(task, mode, fallback, failed.reason)
    except ModelError as error:
        reply = await _fall_back(task, mode, fallback, error.detail)
    return replace(reply, usage=task.usage)


async def shorter(original: Answer, task: Task, max_bytes: int) -> Answer:
    """Shortens the answer without asking a model again."""
    strategy = STRATEGIES[original.strategy]
    if strategy.NEEDS_MODEL:
        return cap_answer(original, max_bytes)
    if original.status is not ExtractStatus.FALLBACK:
        return replace(await strategy.answer(replace(task, max_bytes=max_bytes)), usage=original.usage)
    warning = original.warnings[0]
    cut = await strategy.answer(replace(task, max_bytes=_room_after(warning, max_bytes)))
    return replace(_warned(cut, warning, original.fallback_reason or ""), usage=original.usage)


async def _within(task: Task, mode: Mode, seconds: float) -> Answer:
    """Raises StrategyFailed, ModelError."""
    # truncate is the last fallback: it has no deadline.
    with anyio.move_on_after(None if mode is Mode.TRUNCATE else seconds):
        strategy = await _chosen(task) if mode is Mode.AUTO else STRATEGIES[mode]
        reply = await strategy.answer(task)
        is_bare = strategy.NEEDS_MODEL and full_chunked.is_bare(reply.body)
        return await _outlined(reply, task) if is_bare else reply
    raise StrategyFailed(DEADLINE_PASSED)


async def _outlined(original: Answer, task: Task) -> Answer:
    """Adds an outline of the data to an answer that only says that nothing was found."""
    body = original.body.rstrip(" .:\n")
    room = min(_OUTLINE_BYTES, max(0, task.max_bytes - len(body.encode()) - 1))
    lines = await run_sync(
        partial(
            outline,
            await task.asked.read(0, retrieve.OUTLINED),
            room,
            task.asked.size,
            task.asked.path,
            tool_name=task.asked.stored.tool_name,
        )
    )
    return replace(original, body=f"{body}\n{lines}" if lines else original.body)


async def _chosen(task: Task) -> Strategy:
    """Raises StrategyFailed."""
    if task.asking is None:
        return retrieve
    if await full_chunked.fits(task) or await _has_long_lines(task.asked, task.limits.avg_line_bytes):
        return full_chunked
    return read_grep


async def _has_long_lines(asked: AskedBytes, avg_line_bytes: int) -> bool:
    measure = asked.stored.measure
    if asked.size == measure.bytes:
        return asked.size >= avg_line_bytes * max(1, measure.lines)
    # The lines of ranges are not counted yet. For short lines, counting a part is enough.
    breaks = 0
    for start in range(0, asked.size, _SLICE):
        breaks += (await asked.read(start, min(start + _SLICE, asked.size))).count(b"\n")
        if asked.size < avg_line_bytes * max(1, breaks):
            return False
    return True


async def _fall_back(task: Task, failed: Mode, fallback: Mode, reason: str) -> Answer:
    """Answers with `fallback`; with truncate if `fallback` is the mode that failed, or fails too."""
    if fallback not in (failed, Mode.TRUNCATE):
        with suppress(StrategyFailed):
            return await _answer_with_warning(task, fallback, reason)
    return await _answer_with_warning(task, Mode.TRUNCATE, reason)


async def _answer_with_warning(task: Task, mode: Mode, reason: str) -> Answer:
    """Raises StrategyFailed."""
    reason = " ".join(reason.split()).removesuffix(".")
    warning = f"WARNING: tool_output fallback to {mode} ({reason})."
    task = replace(task, max_bytes=_room_after(warning, task.max_bytes))
    # Half of the time kept for fallbacks: if this fallback fails, truncate needs the rest.
    seconds = task.seconds_left + FALLBACK_SECONDS / 2
    return _warned(await _within(task, mode, seconds), warning, reason)


def _room_after(warning: str, max_bytes: int) -> int:
    return max(0, max_bytes - len(warning.encode()) - 1)


def _warned(original: Answer, warning: str, reason: str) -> Answer:
    return replace(
        original,
        body=f"{warning}\n{original.body}" if original.body else warning,
        status=ExtractStatus.FALLBACK,
        warnings=(warning, *original.warnings),
        fallback_reason=reason,
    )
