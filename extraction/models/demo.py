"""The demo model: deterministic, free; reports the lines that share most words with the instruction."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio
import anyio.to_thread

from content.text import cut_head
from domain.errors import ContextExceeded
from domain.llm import LlmTokens, Message, ModelTerms, Prompt, Reply, Role, ToolCall
from extraction.prompts.fences import inside, outside
from extraction.prompts.final_report import closing, opening
from extraction.prompts.prompts import GREP_TOOL, NOTHING_FOUND, READ_TOOL

Line = tuple[int, str]

_MOST_TERMS = 12
_MOST_LINES = 40
_LINE_CHARS = 400
_FEW_LINES = 10
_MORE_BYTES = 40

_QUOTED = re.compile(r'"([^"\n]{2,80})"|`([^`\n]{2,80})`|(?<!\w)\'([^\'\n]{2,80})\'(?!\w)')
_WORD = re.compile(r"\w+(?:[-./:@]\w+)*")
_ENDING = re.compile(r"(?<=\w{4})(?:ing|ed|es|s)\Z")
_COMMON = """
about all and any are can content count could data describe document does each every extract fetch file find
first for from get give had has have how into its last line lines list log many most much name names not
number out output overview please record records report result return say show summarise summarize summary
tell text than that the their them then there these they this those tool was were what when where which who
why will with would you your
"""
_PASSED_OVER = frozenset(_COMMON.split())

_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
_NUMBERED = re.compile(r"(\d+)[:-]?\t(.*)")
_BETWEEN_RECORDS = re.compile(r"(?<=[}\]]),\s*")
_NONCE = re.compile(re.escape(opening("NONCE")).replace("NONCE", "([0-9A-Za-z]+)"))
_MOST_BYTES = re.compile(r"at most ([\d,]+) bytes")
_FIRST_LINE = re.compile(r"lines ([\d,]+) to")
_GAP = re.compile(r"^bytes [\d,]+ to [\d,]+: .*$", re.MULTILINE)


class DemoModel:
    """Implements domain.ports.Model. Raises ContextExceeded where a prompt is longer than its window."""

    def __init__(
        self, terms: ModelTerms, latency: float = 0.0, count: Callable[[str], int] | None = None
    ) -> None:
        """Each call takes `latency` seconds. `count` counts tokens; without it they have 4 characters."""
        self.terms = terms
        self._latency = latency
        self._count = count or (lambda text: (len(text) + 3) // 4)
        # Pure Python: more threads would only compete with the event loop for the GIL.
        self._thinking = anyio.CapacityLimiter(1)

    async def complete(
        self, prompt: Prompt, note_sent: Callable[[bool], None] = lambda is_sent: None
    ) -> Reply:
        await asyncio.sleep(self._latency)
        # A long prompt takes seconds: the event loop does not wait for it, nor does a cancelled caller.
        return await anyio.to_thread.run_sync(
            self._replied, prompt, limiter=self._thinking, abandon_on_cancel=True
        )

    def _replied(self, prompt: Prompt) -> Reply:
        tokens = sum(self._count(message.content) for message in prompt.messages)
        if tokens + prompt.max_output_tokens > self.terms.context_window:
            raise ContextExceeded("the prompt is longer than the model's window")
        wish = _wished(prompt) if prompt.tools else None
        if wish is not None:
            return Reply("", "tool_calls", (wish,), LlmTokens(tokens, self._count(wish.arguments)))
        text = _reported(prompt)
        return Reply(text, "stop", (), LlmTokens(tokens, self._count(text)))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A prompt, read back. `terms` are what the instruction looks for, in lower case, with their weight."""

    terms: dict[str, int]
    nonce: str
    max_bytes: int
    first_line: int
    own_words: str


def _read(prompt: Prompt) -> _Asked:
    told = [message.content for message in prompt.messages if message.role is Role.USER]
    own_words = outside(told[0]) if told else ""
    nonces = [nonce for text in told for nonce in _NONCE.findall(outside(text))]
    sizes, lines = _MOST_BYTES.findall(own_words), _FIRST_LINE.findall(own_words)
    return _Asked(
        _terms(next(iter(inside("instruction", told[0])), "")) if told else {},
        nonces[-1] if nonces else "",
        min(_number(sizes[-1]) if sizes else 4096, 4 * prompt.max_output_tokens),
        _number(lines[0]) if lines else 1,
        own_words,
    )


def _terms(instruction: str) -> dict[str, int]:
    found = {"".join(groups).lower(): 4 for groups in _QUOTED.findall(instruction)}
    for word in _WORD.findall(instruction.lower()):
        named = not word.isalpha()
        if word not in _PASSED_OVER and (named or len(word) > 2):
            found.setdefault(word if named else _ENDING.sub("", word), 3 if named else 1)
    return dict(sorted(found.items(), key=lambda item: -item[1])[:_MOST_TERMS])


def _wished(prompt: Prompt) -> ToolCall | None:
    """The next tool call: first Grep, then Read around the first match, then None."""
    terms = _read(prompt).terms
    turn = sum(1 for message in prompt.messages if message.tool_calls)
    if turn == 0 and terms:
        pattern = "|".join(_SPECIAL.sub(r"\\\g<0>", term) for term in terms)
        return _call(turn, GREP_TOOL.name, pattern=pattern, context=0, ignore_case=True)
    if turn == (1 if terms else 0):
        hits = _shown(prompt.messages)
        first = max(1, hits[0][0] - _FEW_LINES) if hits else 1
        return _call(turn, READ_TOOL.name, offset=first, limit=2 * _FEW_LINES + 1)
    return None


def _call(turn: int, name: str, **arguments: object) -> ToolCall:
    return ToolCall(f"call-{turn}", name, json.dumps(arguments, ensure_ascii=False))


def _reported(prompt: Prompt) -> str:
    asked = _read(prompt)
    user = next((message.content for message in prompt.messages if message.role is Role.USER), "")
    if findings := inside("finding", user):
        report = _merged(asked, findings)
    else:
        shown = _shown(prompt.messages)
        data = inside("data", user)
        lines = list(enumerate("\n".join(data).split("\n"), asked.first_line)) if data else shown
        report = _found(asked, lines)
    return f"{opening(asked.nonce)}\n{report}\n{closing(asked.nonce)}"


def _shown(messages: Sequence[Message]) -> list[Line]:
    """The lines that the tools returned, without duplicates."""
    answers = [message.content for message in messages if message.role is Role.TOOL]
    texts = [text for answer in answers for text in inside("data", answer) or [answer]]
    rows = [found for text in texts for row in text.split("\n") if (found := _NUMBERED.fullmatch(row))]
    return sorted({int(row[1]): row[2] for row in rows}.items())


def _found(asked: _Asked, lines: Sequence[Line]) -> str:
    holds = f"The data has {len(lines):,} lines here. It begins:"
    begins = [_placed(line, asked.terms) for line in lines[:_FEW_LINES]]
    if not asked.terms:
        return _within(asked.max_bytes, ["The instruction names nothing to look for.", holds, *begins])
    pieces = [piece for line in lines for piece in _pieces(line)]
    scored = [(_score(text, asked.terms), (number, text)) for number, text in pieces]
    best = max((score for score, _ in scored), default=0)
    if best == 0:
        missed = f"Nothing in it has any of: {', '.join(asked.terms)}."
        return _within(asked.max_bytes, [NOTHING_FOUND, missed, holds, *begins])
    good = [(score, index) for index, (score, _) in enumerate(scored) if 2 * score >= best]
    kept = sorted(index for _, index in sorted(good, key=lambda item: (-item[0], item[1]))[:_MOST_LINES])
    rows = [_placed(scored[index][1], asked.terms) for index in kept]
    return _within(asked.max_bytes, rows, len(good) - len(kept))


def _pieces(line: Line) -> list[Line]:
    """Splits a long line of JSON into records."""
    number, text = line
    if len(text) <= _LINE_CHARS:
        return [line]
    return [(number, piece) for piece in _BETWEEN_RECORDS.split(text)]


def _score(text: str, terms: dict[str, int]) -> int:
    lowered = text.lower()
    return sum(weight for term, weight in terms.items() if term in lowered)


def _placed(line: Line, terms: dict[str, int]) -> str:
    """The line with its number; of a long line, the text around the first term."""
    number, text = line
    if len(text) > _LINE_CHARS:
        lowered = text.lower()
        hits = [place for term in terms if (place := lowered.find(term)) >= 0]
        start = max(0, min(hits, default=0) - _LINE_CHARS // 4)
        text = f"… {text[start : start + _LINE_CHARS]} …"
    return f"line {number}: {text}"


def _merged(asked: _Asked, findings: Sequence[str]) -> str:
    """The lines of all findings without duplicates, and without empty findings if others found something."""
    found = [text for text in findings if text.strip() and not text.startswith(NOTHING_FOUND)]
    lines = dict.fromkeys(line for text in found or findings for line in text.split("\n"))
    gaps = [f"Not covered: {gap}" for gap in _GAP.findall(asked.own_words)]
    return _within(asked.max_bytes, [*gaps, *lines] if found else [*lines, *gaps])


def _within(max_bytes: int, rows: Sequence[str], more: int = 0) -> str:
    """The rows that fit, and the number of the others."""
    kept: list[str] = []
    left = max_bytes - _MORE_BYTES
    for row in rows:
        left -= len(row.encode(errors="replace")) + 1
        if left < 0 and kept:
            break
        kept.append(row)
    more += len(rows) - len(kept)
    text = "\n".join([*kept, f"[{more:,} more lines]"] if more else kept)
    return cut_head(text.encode(errors="replace"), max_bytes).decode()


def _number(text: str) -> int:
    return int(text.replace(",", ""))
