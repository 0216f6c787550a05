"""full-chunked: plans the chunks, has them read, merges the findings, and reports what was covered."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial

import anyio

from content.threads import in_thread_if_long
from domain.errors import ContextExceeded, ModelError
from domain.extraction import Answer, Coverage, ExtractStatus, Mode, UnreadRange
from extraction import prompts
from extraction.asked_bytes import AskedBytes
from extraction.full_chunked import chunking
from extraction.full_chunked.map_phase import Mapped, MapPhase, too_little
from extraction.prompts import NOTHING_FOUND, Finding, Part, new_nonce
from extraction.reports import Inquiry, gather, inquire
from extraction.task import (
    DEADLINE_PASSED,
    MARGIN_SECONDS,
    Progress,
    StrategyFailed,
    Task,
    cap_answer,
    cap_text,
    cap_texts,
    data_tokens,
    finding_bytes,
    input_tokens,
)

NEEDS_MODEL = True

_CAPPED = "the session's cap of model calls"

# Tokens of the heading and the fence of a finding.
_FRAME_TOKENS = 100

_LEAST_ROOM = 500

NOT_READ = "[Not read: "
"""Begins the line about the bytes that were not read."""

_MOST_NAMED = 20
_NOTHING_IN_PART = f"{NOTHING_FOUND} in the part that was read."


async def answer(task: Task) -> Answer:
    """Reads every chunk, or as many as the session's cap of model calls allows. Raises StrategyFailed."""
    inquiry = await inquire(task)
    planned = await _plan(inquiry, chunk_tokens(inquiry))
    if not planned:
        task.progress(_planned(task, 0))
        return _answer(task, f"{NOTHING_FOUND}\nThe data is empty.", Coverage(0, 0, 1.0))
    one = len(planned) == 1
    max_bytes = task.max_bytes if one else finding_bytes(inquiry.terms, task.max_bytes)
    parts = await chunking.with_lines(task.asked, planned)
    chosen = await _affordable(inquiry, parts, max_bytes)
    task.progress(_planned(task, len(chosen)))
    mapped = await MapPhase(inquiry, chosen, max_bytes).run()
    mapped += [Mapped(part, None, _CAPPED) for part in parts if part not in chosen]
    mapped.sort(key=lambda one: one.part.start)
    return await _concluded(inquiry, mapped, _coverage(task.asked, mapped))


def _planned(task: Task, chunks: int) -> Progress:
    return Progress("plan", {"strategy": Mode.FULL_CHUNKED, "chunks": chunks, "bytes": task.asked.size})


async def _affordable(inquiry: Inquiry, parts: Sequence[Part], max_bytes: int) -> list[Part]:
    """Returns the chunks to read within the session's cap of calls. Chunks with a stored finding cost no call
    and are always among them. The other calls, except one for the reduce, go to chunks at equal distances in
    the document. If no call is left and no finding is stored, returns all chunks: the first call is then
    refused, and the error says why. Raises StrategyFailed before any call if the caller requires a complete
    answer and the calls are too few."""
    calls = inquiry.asking.calls_left
    if calls is None or len(parts) + (len(parts) > 1) <= calls:
        return list(parts)
    phase = MapPhase(inquiry, parts, max_bytes)
    unknown = [part for part in parts if not await phase.has_finding(part)]
    if len(unknown) < calls or not unknown or (not calls and len(unknown) == len(parts)):
        return list(parts)
    if inquiry.task.whole:
        raise StrategyFailed(f"{_CAPPED} leaves {calls} for {len(unknown)} chunks")
    # Two findings are shown without merging, which would cost one of the two calls.
    keeps_one = len(unknown) < len(parts) or calls > 2
    count = max(0, calls - keeps_one)
    step = (len(unknown) - 1) / max(1, count - 1)
    paid = {unknown[round(step * number)] for number in range(count)}
    return [part for part in parts if part in paid or part not in unknown]


async def fits(task: Task) -> bool:
    """True if the data fits the policy's `max_chunks`. Raises StrategyFailed."""
    inquiry = await inquire(task)
    tokens, most = chunk_tokens(inquiry), task.limits.max_chunks
    # A token seldom has more than a few bytes: much longer data needs no plan to decide.
    if task.asked.size > 16 * tokens * most:
        return False
    return len(await _plan(inquiry, tokens)) <= most


def chunk_tokens(inquiry: Inquiry) -> int:
    """The tokens of data in one prompt. Raises StrategyFailed if the window is too small."""
    around = inquiry.asking.count(prompts.overhead(inquiry.document, inquiry.task.extract))
    return data_tokens(inquiry.terms, around)


async def _plan(inquiry: Inquiry, tokens: int) -> list[Part]:
    task = inquiry.task
    return await chunking.plan(task.asked, inquiry.kind, tokens, task.limits.overlap_percent)


async def _concluded(inquiry: Inquiry, mapped: Sequence[Mapped], coverage: Coverage) -> Answer:
    task = inquiry.task
    findings = [Finding(one.part, one.text) for one in mapped if one.text is not None]
    relevant = [one for one in findings if not one.text.startswith(NOTHING_FOUND)]
    warnings = _warnings(mapped)
    if len(_chosen(mapped)) == 1:
        return _answer(task, naming_gaps(findings[0].text, coverage.missing), coverage, *warnings)
    if not relevant:
        return _answer(task, _nothing(task, findings, coverage.missing), coverage, *warnings)
    try:
        with anyio.fail_after(inquiry.task.seconds_left - MARGIN_SECONDS):
            body = await merged(inquiry, relevant, _lost(mapped))
        return _answer(task, naming_gaps(body, coverage.missing), coverage, *warnings)
    except TimeoutError:
        reason = DEADLINE_PASSED
    except ModelError as error:
        reason = error.detail
    warning = f"the findings were not merged ({reason})"
    return _answer(task, _unmerged(task, relevant, coverage.missing), coverage, *warnings, warning)


def _answer(task: Task, body: str, coverage: Coverage, *warnings: str) -> Answer:
    """The capped answer: complete without warnings, else partial."""
    status = ExtractStatus.PARTIAL if warnings else ExtractStatus.COMPLETE
    whole = Answer(body, Mode.FULL_CHUNKED, status, coverage, warnings=warnings)
    return cap_answer(whole, task.max_bytes)


def _coverage(asked: AskedBytes, mapped: Sequence[Mapped]) -> Coverage:
    """Raises StrategyFailed if less than half of the data was read."""
    covered = sum(one.part.size for one in mapped if one.text is not None)
    wanted = sum(one.part.size for one in _chosen(mapped))
    if too_little(covered, wanted):
        share = math.floor(100 * covered / wanted)
        raise StrategyFailed(f"only {share} % of the data could be read: {_cause(mapped)}")
    ratio = math.floor(10_000 * covered / asked.size) / 10_000
    ok = sum(one.text is not None for one in mapped)
    missing = (
        UnreadRange(span.start, span.end, gap.reason)
        for gap in _lost(mapped)
        for span in asked.located(gap.start, gap.end)
    )
    return Coverage(len(mapped), ok, ratio, tuple(missing))


def _lost(mapped: Sequence[Mapped]) -> list[UnreadRange]:
    """The ranges without a finding, in bytes of what was asked about. Adjacent ones with the same reason are
    merged."""
    gaps: list[UnreadRange] = []
    for one in mapped:
        start, end = one.part.start, one.part.end
        if one.text is None and gaps and (gaps[-1].end, gaps[-1].reason) == (start, one.failure):
            gaps[-1] = UnreadRange(gaps[-1].start, end, one.failure)
        elif one.text is None:
            gaps.append(UnreadRange(start, end, one.failure))
    return gaps


def _chosen(mapped: Sequence[Mapped]) -> list[Mapped]:
    return [one for one in mapped if one.failure != _CAPPED]


def _warnings(mapped: Sequence[Mapped]) -> tuple[str, ...]:
    chosen = _chosen(mapped)
    failed = sum(one.text is None for one in chosen)
    warnings = []
    if len(chosen) < len(mapped):
        warnings.append(f"{len(chosen)} of {len(mapped)} chunks were read: {_CAPPED} allows no more")
    if failed:
        warnings.append(f"{failed} of {len(chosen)} parts are missing ({_cause(mapped)})")
    return tuple(warnings)


def _cause(mapped: Sequence[Mapped]) -> str:
    """The most frequent reason of the failures."""
    causes = Counter(one.failure for one in _chosen(mapped) if one.failure)
    return causes.most_common(1)[0][0]


def _nothing(task: Task, findings: Sequence[Finding], gaps: Sequence[UnreadRange]) -> str:
    """The body if nothing was found: what the chunks hold instead, without duplicates, as far as it fits."""
    contents = dict.fromkeys(one.text.removeprefix(NOTHING_FOUND).strip(" .:\n") for one in findings)
    text = naming_gaps(NOTHING_FOUND, gaps)
    left = task.max_bytes - len(text.encode())
    for line in filter(None, contents):
        left -= len(line.encode()) + 1
        if left < 0:
            break
        text += f"\n{line}"
    return text


def _unmerged(task: Task, findings: Sequence[Finding], gaps: Sequence[UnreadRange]) -> str:
    """Each finding under its byte range, all with an equal share of the room."""
    missing = [not_read(gaps)] if gaps else []
    located = [task.asked.located(one.part.start, one.part.end) for one in findings]
    heads = [f"[Bytes {spans[0].start} to {spans[-1].end}]\n" for spans in located]
    room = task.max_bytes - sum(len(line.encode()) + 2 for line in (*missing, *heads))
    texts = cap_texts([one.text for one in findings], room)
    return "\n\n".join((*missing, *(head + text for head, text in zip(heads, texts, strict=True))))


def naming_gaps(report: str, gaps: Sequence[UnreadRange]) -> str:
    """The report below the bytes that were not read. A report of nothing found keeps its first line, which
    then says that it is about a part."""
    if not gaps:
        return report
    if not report.startswith(NOTHING_FOUND):
        return f"{not_read(gaps)}\n\n{report}"
    contents = report.removeprefix(NOTHING_FOUND).strip(" .:\n")
    return "\n".join(filter(None, (_NOTHING_IN_PART, not_read(gaps), contents)))


def is_bare(body: str) -> bool:
    """True if the body says that nothing was found, and not what the data holds."""
    first, *others = body.strip(" .:\n").split("\n")
    is_nothing = first.strip(" .:") in (NOTHING_FOUND, _NOTHING_IN_PART.strip("."))
    return is_nothing and all(line.startswith(NOT_READ) for line in others)


def not_read(gaps: Sequence[UnreadRange]) -> str:
    """The line about the bytes that were not read, at most 20 ranges of each reason."""
    by_reason: dict[str, list[UnreadRange]] = {}
    for gap in gaps:
        by_reason.setdefault(gap.reason, []).append(gap)
    parts = [f"{_ranges(same)} ({reason})" for reason, same in by_reason.items()]
    return f"{NOT_READ}bytes {'; '.join(parts)}]"


def _ranges(gaps: Sequence[UnreadRange]) -> str:
    named = ", ".join(f"{gap.start} to {gap.end}" for gap in gaps[:_MOST_NAMED])
    others = gaps[_MOST_NAMED:]
    size = sum(gap.end - gap.start for gap in others)
    return f"{named} and {size} bytes in {len(others)} other ranges" if others else named


async def merged(inquiry: Inquiry, findings: Sequence[Finding], gaps: Sequence[UnreadRange]) -> str:
    """Merges the findings into one report. Raises ModelError."""
    empty = prompts.reduce_prompt(
        inquiry.document, inquiry.task.extract, (), gaps, new_nonce(), inquiry.task.max_bytes
    )
    fixed = sum(inquiry.asking.count(message.content) for message in empty)
    room = max(_LEAST_ROOM, input_tokens(inquiry.terms) - fixed)
    level = 1
    while True:
        groups = await grouped(inquiry, findings, room)
        inquiry.task.progress(Progress("reduce", {"findings": len(findings), "level": level}))
        try:
            if len(groups) == 1:
                return await _reduced(inquiry, groups[0], gaps, inquiry.task.max_bytes)
            findings = await gather([partial(_joined, inquiry, group) for group in groups])
            level += 1
        except ContextExceeded:
            # The model counts more tokens than our tokenizer.
            room //= 2
            if room < _LEAST_ROOM:
                raise


async def grouped(inquiry: Inquiry, findings: Sequence[Finding], room: int) -> list[list[Finding]]:
    """Groups the findings in order, each group within `room` tokens. If there are several groups, each
    finding is cut to half of `room`: then each group but the last has at least two findings, and each level
    of merging has fewer."""
    # A token has at least one byte.
    if sum(_bytes(finding) + _FRAME_TOKENS for finding in findings) <= room:
        return [list(findings)]
    groups: list[list[Finding]] = []
    left = 0
    for finding in findings:
        kept, tokens = await _halved(inquiry, finding, room // 2)
        if not groups or tokens > left:
            groups.append([])
            left = room
        groups[-1].append(kept)
        left -= tokens
    return groups


async def _halved(inquiry: Inquiry, finding: Finding, most: int) -> tuple[Finding, int]:
    """Cuts a finding to `most` tokens. Returns it with its tokens."""
    text = finding.text
    while (tokens := await inquiry.asking.count_in_thread(text) + _FRAME_TOKENS) > most and text:
        text = cap_text(text, len(text.encode()) * most // (tokens + 1))
    return Finding(finding.part, text), tokens


def _bytes(finding: Finding) -> int:
    return len(finding.text.encode())


async def _joined(inquiry: Inquiry, group: Sequence[Finding]) -> Finding:
    if len(group) == 1:
        return group[0]
    first, last = group[0].part, group[-1].part
    part = Part(first.number, first.total, first.start, last.end, first.first_line, last.last_line)
    most = finding_bytes(inquiry.terms, inquiry.task.max_bytes)
    return Finding(part, await _reduced(inquiry, group, (), most))


async def _reduced(
    inquiry: Inquiry, findings: Sequence[Finding], gaps: Sequence[UnreadRange], max_bytes: int
) -> str:
    spans = [span for one in findings for span in inquiry.task.asked.located(one.part.start, one.part.end)]
    named = [(gap.start, gap.end, gap.reason) for gap in gaps]
    key = inquiry.key("reduce", spans, [one.text for one in findings], named, max_bytes)
    finding = await inquiry.known(key)
    if finding:
        return finding
    nonce = new_nonce()
    build = partial(
        prompts.reduce_prompt, inquiry.document, inquiry.task.extract, findings, gaps, nonce, max_bytes
    )
    messages = await in_thread_if_long(sum(map(_bytes, findings)), build)
    report = await inquiry.report(messages, nonce, inquiry.task.seconds_left - MARGIN_SECONDS)
    await inquiry.keep(key, report)
    return report.text
