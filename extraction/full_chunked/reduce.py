"""The reduce phase: merges findings into one report, in levels if they exceed one prompt."""

from collections.abc import Sequence
from functools import partial

from domain.errors import ContextExceeded
from domain.extraction import Gap
from extraction.prompts import prompts
from extraction.prompts.fences import new_nonce
from extraction.prompts.inquiry import Inquiry, built, gather
from extraction.prompts.prompts import Finding, Part
from extraction.task import answer_text
from extraction.task.task import MARGIN_SECONDS, Progress, finding_bytes, input_tokens

# Tokens of the heading and the fence of a finding.
_FRAME_TOKENS = 100

_LEAST_ROOM = 500


async def merged(inquiry: Inquiry, findings: Sequence[Finding], gaps: Sequence[Gap]) -> str:
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
    finding is cut to half of that, so that every group but the last has at least two, and each level has
    fewer."""
    # A token has a byte at least.
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
        text = answer_text.cap_text(text, len(text.encode()) * most // (tokens + 1))
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


async def _reduced(inquiry: Inquiry, findings: Sequence[Finding], gaps: Sequence[Gap], max_bytes: int) -> str:
    spans = [span for one in findings for span in inquiry.task.source.located(one.part.start, one.part.end)]
    named = [(gap.start, gap.end, gap.reason) for gap in gaps]
    key = inquiry.key("reduce", spans, [one.text for one in findings], named, max_bytes)
    known = await inquiry.known(key)
    if known:
        return known
    nonce = new_nonce()
    build = partial(
        prompts.reduce_prompt, inquiry.document, inquiry.task.extract, findings, gaps, nonce, max_bytes
    )
    messages = await built(build, sum(map(_bytes, findings)))
    report = await inquiry.report(messages, nonce, inquiry.task.seconds_left - MARGIN_SECONDS)
    await inquiry.keep(key, report)
    return report.text
