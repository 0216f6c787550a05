"""Which strategy answers, and what it falls back to when it cannot."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio

from domain.errors import ModelError
from domain.extraction import Answer, ExtractStatus, Mode
from extraction import bodies, full_chunked, pace, read_grep, truncate
from extraction.source import Source
from extraction.task import StrategyFailed, Task

Strategy = Callable[[Task], Awaitable[Answer]]

STRATEGIES: dict[Mode, Strategy] = {
    Mode.FULL_CHUNKED: full_chunked.answer,
    Mode.READ_GREP: read_grep.answer,
    Mode.TRUNCATE: truncate.answer,
}

_NO_MODEL = "no model is configured"

_SLICE = 1 << 20


async def answer(task: Task, mode: Mode, fallback: Mode = Mode.TRUNCATE) -> Answer:
    """At most `max_bytes` of body, whatever the strategy; but the warning of a fallback is said whole."""
    fallback = fallback if fallback in STRATEGIES else Mode.TRUNCATE
    try:
        # The fallback itself needs no model; cutting it short for its own sake would help nobody.
        seconds = pace.seconds_left(task.asking) if task.asking and mode is not fallback else None
        found = await _within(seconds, task, mode)
    except StrategyFailed as failed:
        found = await _fall_back(task, fallback, failed.reason)
    except ModelError as error:
        found = await _fall_back(task, fallback, error.detail)
    return found if task.asking is None else replace(found, usage=task.asking.usage)


async def shorter(found: Answer, source: Source, max_bytes: int) -> Answer:
    """The same answer in fewer bytes, without asking a model again."""
    if found.strategy is not Mode.TRUNCATE:
        return bodies.within(found, max_bytes)
    if found.status is not ExtractStatus.FALLBACK:
        return replace(await truncate.truncated(source, max_bytes), usage=found.usage)
    warning = found.warnings[0]
    cut = await truncate.truncated(source, _room_after(warning, max_bytes))
    return replace(_warned(cut, warning), usage=found.usage)


async def _within(seconds: float | None, task: Task, mode: Mode) -> Answer:
    """Raises StrategyFailed, ModelError."""
    with anyio.move_on_after(seconds):
        mode = await _chosen(task) if mode is Mode.AUTO else mode
        strategy = STRATEGIES.get(mode)
        if strategy is None:
            raise StrategyFailed(f"{mode} is not available")
        return await strategy(task)
    raise StrategyFailed(pace.LATE)


async def _chosen(task: Task) -> Mode:
    """Raises StrategyFailed."""
    if task.asking is None:
        if Mode.RETRIEVE in STRATEGIES:
            return Mode.RETRIEVE
        raise StrategyFailed(_NO_MODEL)
    if await full_chunked.fits(task) or await _has_long_lines(task.source, task.terms.avg_line_bytes):
        return Mode.FULL_CHUNKED
    return Mode.READ_GREP


async def _has_long_lines(source: Source, avg_line_bytes: int) -> bool:
    measure = source.stored.measure
    if source.size == measure.bytes:
        return source.size >= avg_line_bytes * max(1, measure.lines)
    # Nobody has counted the lines of ranges yet. Of short ones, a part tells already.
    breaks = 0
    for start in range(0, source.size, _SLICE):
        breaks += (await source.read(start, min(start + _SLICE, source.size))).count(b"\n")
        if source.size < avg_line_bytes * max(1, breaks):
            return False
    return True


async def _fall_back(task: Task, mode: Mode, reason: str) -> Answer:
    warning = f"WARNING: tool_output fallback to {mode} ({' '.join(reason.split()).removesuffix('.')})."
    found = await STRATEGIES[mode](replace(task, max_bytes=_room_after(warning, task.max_bytes)))
    return _warned(found, warning)


def _room_after(warning: str, max_bytes: int) -> int:
    return max(0, max_bytes - len(warning.encode()) - 1)


def _warned(found: Answer, warning: str) -> Answer:
    body = f"{warning}\n{found.body}" if found.body else warning
    return replace(found, body=body, status=ExtractStatus.FALLBACK, warnings=(warning, *found.warnings))
