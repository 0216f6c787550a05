"""Which strategy answers, and what it falls back to when it cannot run."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from domain.extraction import Answer, ExtractStatus, Mode
from extraction import truncate
from extraction.source import Source

Strategy = Callable[[Source, int], Awaitable[Answer]]

STRATEGIES: dict[Mode, Strategy] = {Mode.TRUNCATE: truncate.answer}

_MISSING = {
    Mode.AUTO: "no model is configured",
    Mode.FULL_CHUNKED: "no model is configured",
    Mode.READ_GREP: "no model is configured",
    Mode.RETRIEVE: "retrieve is not available",
}


async def answer(source: Source, mode: Mode, max_bytes: int, fallback: Mode = Mode.TRUNCATE) -> Answer:
    """At most `max_bytes` of body, whatever the strategy; but the warning of a fallback is said whole."""
    strategy = STRATEGIES.get(mode)
    if strategy is not None:
        return await strategy(source, max_bytes)
    warning = f"WARNING: tool_output fallback to {fallback} ({_MISSING[mode]})."
    found = await STRATEGIES[fallback](source, max(0, max_bytes - len(warning) - 1))
    return replace(found, body=f"{warning}\n{found.body}", status=ExtractStatus.FALLBACK, warnings=(warning,))
