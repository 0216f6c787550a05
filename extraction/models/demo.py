"""The demo model: deterministic, free; reports the lines that share most words with the instruction."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio
import anyio.to_thread

from content.model_text import NUMBERED
from content.patterns import escaped
from content.text import cut_head
from domain.errors import ContextExceeded
from domain.llm import LlmTokens, Message, ModelTerms, Prompt, Reply, Role, ToolCall
from extraction.prompts import GREP_TOOL, NOTHING_FOUND, READ_TOOL, closing, inside, opening, outside
from extraction.retrieve.instruction import parse
from extraction.retrieve.words import stem

Line = tuple[int, str]

_MOST_TERMS = 12
_MOST_LINES = 40
_LINE_CHARS = 400
_FEW_LINES = 10
_MORE_BYTES = 40

_BETWEEN_RECORDS = re.compile(r"(?<=[}\]]),\s*")
_NONCE = re.compile(re.escape(opening("NONCE")).replace("NONCE", "([0-9A-Za-z]+)"))
_MOST_BYTES = re.compile(r"at most ([\d,]+) bytes")
_FIRST_LINE = re.compile(r"lines ([\d,]+) to")
_GAP = re.compile(r"^bytes [\d,]+ to [\d,]+: .*$", re.MULTILINE)


class DemoModel:
    """Implements domain.ports.Model. Raises ContextExceeded where a prompt is longer than its window."""

    def __init__(self, terms: ModelTerms) -> None:
        self.terms = terms
        # Pure Python: more threads would only compete with the event loop for the GIL.
        self._thinking = anyio.CapacityLimiter(1)

    async def complete(
        self, prompt: Prompt, note_sent: Callable[[bool], None] = lambda is_sent: None
    ) -> Reply:
        # A long prompt takes seconds: the event loop does not wait for it, nor does a cancelled caller.
        return await anyio.to_thread.run_sync(
            self._replied, prompt, limiter=self._thinking, abandon_on_cancel=True
        )

    def _replied(self, prompt: Prompt) -> Reply:
        tokens = sum(_tokens(message.content) for message in prompt.messages)
        if tokens + prompt.max_output_tokens > self.terms.context_window:
            raise ContextExceeded("the prompt is longer than the model's window")
        call = _tool_call(prompt) if prompt.tools else None
        if call is not None:
            return Reply("", "tool_calls", (call,), LlmTokens(tokens, _tokens(call.arguments)))
        text = _report(prompt)
        return Reply(text, "stop", (), LlmTokens(tokens, _tokens(text)))


def _tokens(text: str) -> int:
    return (len(text) + 3) // 4


@dataclass(frozen=True, slots=True)
class _Question:
    """A prompt, read back. `terms` are the words and phrases of the instruction, in lower case."""

    terms: tuple[str, ...]
    nonce: str
    max_bytes: int
    first_line: int
    gaps: list[str]


def _read(prompt: Prompt) -> _Question:
    texts = [message.content for message in prompt.messages if message.role is Role.USER] or [""]
    own_words = outside(texts[0])
    nonces = [nonce for text in texts for nonce in _NONCE.findall(outside(text))]
    sizes, lines = _MOST_BYTES.findall(own_words), _FIRST_LINE.findall(own_words)
    return _Question(
        _terms(next(iter(inside("instruction", texts[0])), "")),
        nonces[-1] if nonces else "",
        min(_number(sizes[-1]) if sizes else 4096, 4 * prompt.max_output_tokens),
        _number(lines[0]) if lines else 1,
        _GAP.findall(own_words),
    )


def _terms(instruction: str) -> tuple[str, ...]:
    parsed = parse(instruction)
    words = map(stem, parsed.words)
    return tuple(dict.fromkeys((*map(str.lower, parsed.exact), *words)))[:_MOST_TERMS]


def _tool_call(prompt: Prompt) -> ToolCall | None:
    """The next tool call: first Grep, then Read around the first match, then None."""
    terms = _read(prompt).terms
    turn = sum(1 for message in prompt.messages if message.tool_calls)
    if turn == 0 and terms:
        pattern = "|".join(map(escaped, terms))
        return _call(turn, GREP_TOOL.name, pattern=pattern, context=0, ignore_case=True)
    if turn == (1 if terms else 0):
        hits = _shown(prompt.messages)
        first = max(1, hits[0][0] - _FEW_LINES) if hits else 1
        return _call(turn, READ_TOOL.name, offset=first, limit=2 * _FEW_LINES + 1)
    return None


def _call(turn: int, name: str, **arguments: object) -> ToolCall:
    return ToolCall(f"call-{turn}", name, json.dumps(arguments, ensure_ascii=False))


def _report(prompt: Prompt) -> str:
    question = _read(prompt)
    user = next((message.content for message in prompt.messages if message.role is Role.USER), "")
    if findings := inside("finding", user):
        report = _merged(question, findings)
    elif data := inside("data", user):
        report = _found(question, list(enumerate("\n".join(data).split("\n"), question.first_line)))
    else:
        report = _found(question, _shown(prompt.messages))
    return f"{opening(question.nonce)}\n{report}\n{closing(question.nonce)}"


def _shown(messages: Sequence[Message]) -> list[Line]:
    """The lines that the tools returned, without duplicates."""
    answers = [message.content for message in messages if message.role is Role.TOOL]
    texts = [text for answer in answers for text in inside("data", answer) or [answer]]
    rows = [row_match for text in texts for row in text.split("\n") if (row_match := NUMBERED.fullmatch(row))]
    return sorted({int(row[1]): row[2] for row in rows}.items())


def _found(question: _Question, lines: Sequence[Line]) -> str:
    """The lines with the most terms; a long line of JSON counts by its records."""
    records = [
        (number, part)
        for number, text in lines
        for part in ([text] if len(text) <= _LINE_CHARS else _BETWEEN_RECORDS.split(text))
    ]
    scores = [sum(term in text.lower() for term in question.terms) for _, text in records]
    top = max(scores, default=0)
    best = [record for record, score in zip(records, scores, strict=True) if 0 < score == top]
    if best:
        rows = [_placed(record, question.terms) for record in best[:_MOST_LINES]]
        return _within(question.max_bytes, rows, len(best) - len(rows))
    begins = [_placed(line, ()) for line in lines[:_FEW_LINES]]
    missed = [NOTHING_FOUND, f"Nothing in it has any of: {', '.join(question.terms)}."]
    head = missed if question.terms else ["The instruction names nothing to look for."]
    return _within(
        question.max_bytes, [*head, f"The data has {len(lines):,} lines here. It begins:", *begins]
    )


def _placed(line: Line, terms: Sequence[str]) -> str:
    """The line with its number; of a long line, the text around the first term."""
    number, text = line
    if len(text) > _LINE_CHARS:
        hits = [offset for term in terms if (offset := text.lower().find(term)) >= 0]
        start = max(0, min(hits, default=0) - _LINE_CHARS // 4)
        text = f"… {text[start : start + _LINE_CHARS]} …"
    return f"line {number}: {text}"


def _merged(question: _Question, findings: Sequence[str]) -> str:
    """The lines of all findings without duplicates, and without empty findings if others found something."""
    telling = [text for text in findings if text.strip() and not text.startswith(NOTHING_FOUND)]
    lines = dict.fromkeys(line for text in telling or findings for line in text.split("\n"))
    gaps = [f"Not covered: {gap}" for gap in question.gaps]
    return _within(question.max_bytes, [*gaps, *lines] if telling else [*lines, *gaps])


def _within(max_bytes: int, rows: Sequence[str], more: int = 0) -> str:
    """The rows that fit, and the number of the others."""
    fitting: list[str] = []
    left = max_bytes - _MORE_BYTES
    for row in rows:
        left -= len(row.encode(errors="replace")) + 1
        if left < 0 and fitting:
            break
        fitting.append(row)
    more += len(rows) - len(fitting)
    text = "\n".join([*fitting, f"[{more:,} more lines]"] if more else fitting)
    return cut_head(text.encode(errors="replace"), max_bytes).decode()


def _number(text: str) -> int:
    return int(text.replace(",", ""))
