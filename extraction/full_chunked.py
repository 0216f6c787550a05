"""full-chunked: every chunk, or every one that is chosen, is asked; one report is made of what they said."""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import anyio

from domain.errors import ModelError
from domain.extraction import Answer, Coverage, ExtractStatus, Gap, Mode
from extraction import bodies, choosing, chunking, pace, prompts, reducing, windows
from extraction.chunking import Chunk
from extraction.inquiry import Inquiry, inquire
from extraction.mapping import Mapped, Mapping, pieces, too_little
from extraction.prompts import NOTHING_FOUND, Finding
from extraction.source import Source
from extraction.task import Progress, StrategyFailed, Task

_NOT_CHOSEN = "not chosen by retrieval"

_Choice = Callable[[Task, Sequence[Chunk]], Awaitable[Sequence[Chunk]]]


async def answer(task: Task) -> Answer:
    """Raises StrategyFailed."""
    return await _answered(task, _all)


async def answer_of_chosen(task: Task) -> Answer:
    """Out of many chunks it may read a few. Raises StrategyFailed."""
    return await _answered(task, choosing.chosen)


async def _all(task: Task, planned: Sequence[Chunk]) -> Sequence[Chunk]:
    return planned


async def _answered(task: Task, choose: _Choice) -> Answer:
    inquiry = await inquire(task)
    planned = await _plan(inquiry, chunk_tokens(inquiry))
    chosen = set(await choose(task, planned))
    fields = {"strategy": Mode.FULL_CHUNKED, "chunks": len(chosen), "bytes": task.source.size}
    task.progress(Progress("plan", fields))
    if not planned:
        return _answer(task, f"{NOTHING_FOUND}\nThe data is empty.", Coverage(0, 0, 1.0))
    one = len(planned) == 1
    max_bytes = task.max_bytes if one else windows.finding_bytes(inquiry.terms, task.max_bytes)
    parts = await pieces(inquiry, planned, len(planned))
    mapped = await Mapping(inquiry, [part for part in parts if part.chunk in chosen], max_bytes).run()
    mapped += [Mapped(part, None, _NOT_CHOSEN) for part in parts if part.chunk not in chosen]
    mapped.sort(key=lambda one: one.piece.chunk.start)
    return await _concluded(inquiry, mapped, _coverage(task.source, mapped))


async def fits(task: Task) -> bool:
    """Whether it takes no more chunks than the policy's `max_chunks`. Raises StrategyFailed."""
    inquiry = await inquire(task)
    tokens, most = chunk_tokens(inquiry), task.terms.max_chunks
    # A token has seldom more than a few bytes: the cuts of what is far too long need not be looked for.
    if task.source.size > 16 * tokens * most:
        return False
    return len(await _plan(inquiry, tokens)) <= most


def chunk_tokens(inquiry: Inquiry) -> int:
    """What is left of the window for data. Raises StrategyFailed where that is nothing."""
    around = inquiry.asking.count(prompts.overhead(inquiry.document, inquiry.task.extract))
    return windows.data_tokens(inquiry.terms, around)


async def _plan(inquiry: Inquiry, tokens: int) -> list[Chunk]:
    task = inquiry.task
    return await chunking.plan(task.source, inquiry.kind, tokens, task.terms.overlap_percent)


async def _concluded(inquiry: Inquiry, mapped: Sequence[Mapped], coverage: Coverage) -> Answer:
    task = inquiry.task
    findings = [Finding(one.piece.part, one.text) for one in mapped if one.text is not None]
    relevant = [one for one in findings if not one.text.startswith(NOTHING_FOUND)]
    warnings = _warnings(mapped)
    if len(mapped) == 1:
        return _answer(task, findings[0].text, coverage)
    if not relevant:
        return _answer(task, _nothing(task, findings, coverage.missing), coverage, *warnings)
    try:
        with anyio.fail_after(pace.seconds_left(inquiry.asking) - pace.MARGIN_SECONDS):
            body = await reducing.merged(inquiry, relevant, _lost(mapped))
        return _answer(task, body, coverage, *warnings)
    except TimeoutError:
        reason = pace.LATE
    except ModelError as error:
        reason = error.detail
    warning = f"the findings were not merged ({reason})"
    return _answer(task, _unmerged(task, relevant, coverage.missing), coverage, *warnings, warning)


def _answer(task: Task, body: str, coverage: Coverage, *warnings: str) -> Answer:
    """Complete, unless there is something to warn of."""
    status = ExtractStatus.PARTIAL if warnings else ExtractStatus.COMPLETE
    found = Answer(body, Mode.FULL_CHUNKED, status, coverage, warnings=warnings)
    return bodies.within(found, task.max_bytes)


def _coverage(source: Source, mapped: Sequence[Mapped]) -> Coverage:
    """Raises StrategyFailed where an answer would rest on too little."""
    covered = sum(one.piece.size for one in mapped if one.text is not None)
    wanted = sum(one.piece.size for one in _chosen(mapped))
    if too_little(covered, wanted):
        share = math.floor(100 * covered / wanted)
        raise StrategyFailed(f"only {share} % of the data could be read: {_cause(mapped)}")
    ratio = math.floor(10_000 * covered / source.size) / 10_000
    ok = sum(one.text is not None for one in mapped)
    missing = (
        Gap(span.start, span.end, gap.reason)
        for gap in _lost(mapped)
        for span in source.located(gap.start, gap.end)
    )
    return Coverage(len(mapped), ok, ratio, tuple(missing))


def _lost(mapped: Sequence[Mapped]) -> list[Gap]:
    """Bytes of the source; neighbours with the same reason are one gap."""
    gaps: list[Gap] = []
    for one in mapped:
        start, end = one.piece.part.start, one.piece.part.end
        if one.text is None and gaps and (gaps[-1].end, gaps[-1].reason) == (start, one.failure):
            gaps[-1] = Gap(gaps[-1].start, end, one.failure)
        elif one.text is None:
            gaps.append(Gap(start, end, one.failure))
    return gaps


def _chosen(mapped: Sequence[Mapped]) -> list[Mapped]:
    return [one for one in mapped if one.failure != _NOT_CHOSEN]


def _warnings(mapped: Sequence[Mapped]) -> tuple[str, ...]:
    chosen = _chosen(mapped)
    failed = sum(one.text is None for one in chosen)
    warnings = []
    if len(chosen) < len(mapped):
        warnings.append(
            f"{len(chosen)} of {len(mapped)} chunks were chosen by retrieval; "
            "ask mode full-chunked to read all"
        )
    if failed:
        warnings.append(f"{failed} of {len(chosen)} parts are missing ({_cause(mapped)})")
    return tuple(warnings)


def _cause(mapped: Sequence[Mapped]) -> str:
    """Of most failures."""
    causes = Counter(one.failure for one in _chosen(mapped) if one.failure)
    return causes.most_common(1)[0][0]


def _nothing(task: Task, findings: Sequence[Finding], gaps: Sequence[Gap]) -> str:
    """What the chunks hold instead, each thing said once, as far as there is room: none of it was asked."""
    held = dict.fromkeys(one.text.removeprefix(NOTHING_FOUND).strip(" .:\n") for one in findings)
    text = "\n".join((NOTHING_FOUND, *map(_named, gaps)))
    left = task.max_bytes - len(text.encode())
    for line in filter(None, held):
        left -= len(line.encode()) + 1
        if left < 0:
            break
        text += f"\n{line}"
    return text


def _unmerged(task: Task, findings: Sequence[Finding], gaps: Sequence[Gap]) -> str:
    """Each finding under its range, all of them with a fair share of the room."""
    missing = [_named(gap) for gap in gaps]
    heads = [_head(task.source, one) for one in findings]
    room = task.max_bytes - sum(len(line.encode()) + 2 for line in (*missing, *heads))
    texts = bodies.shared([one.text for one in findings], room)
    return "\n\n".join((*missing, *(head + text for head, text in zip(heads, texts, strict=True))))


def _head(source: Source, finding: Finding) -> str:
    spans = source.located(finding.part.start, finding.part.end)
    return f"[Bytes {spans[0].start} to {spans[-1].end}]\n"


def _named(gap: Gap) -> str:
    return f"[Not read: bytes {gap.start} to {gap.end} ({gap.reason})]"
