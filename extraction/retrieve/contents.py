"""The headings below a heading that a question names: `which work packages does the plan have`."""

import re
from itertools import takewhile

from content.kind import Kind
from content.source import Source
from content.text import count_of
from extraction.retrieve.asking import words_of
from extraction.retrieve.instruction import ParsedInstruction
from extraction.retrieve.words import stem

_ASKS = words_of(
    r"\b(?:which|what|list|how many|all|name|welche|was|qué|cuáles|quels|quelles|quali|quais)\b|哪些|什么"
)
_WORD = re.compile(r"[^\W\d_]+")
_KINDS = (Kind.MARKDOWN, Kind.HTML)
_LEAST, _MOST_BYTES = 3, 1300
_MOST_MARKS = 5000


def contents(text: Source, instruction: ParsedInstruction) -> str:
    """The headings of one level below the one whose title the question holds, of several the longest title;
    "" without such a heading, or with fewer than three below it."""
    if text.format.kind not in _KINDS or not _ASKS.search(instruction.text):
        return ""
    marks = [
        mark for mark, _ in zip(text.format.marks(text.data), range(_MOST_MARKS), strict=False) if mark[1] > 0
    ]
    question = {stem(word.lower()) for word in _WORD.findall(instruction.text)}
    best, listing = 0, ""
    for place, (at, level, title) in enumerate(marks):
        words = {stem(word.lower()) for word in _WORD.findall(title)}
        below = list(takewhile(lambda mark: mark[1] > level, marks[place + 1 :]))  # noqa: B023
        top = [mark for mark in below if mark[1] == min(one[1] for one in below)]
        if words <= question and len(words) > best and len(top) >= _LEAST:
            best, listing = len(words), _told(text, at, title, top)
    return listing


def _told(text: Source, at: int, title: str, below: list[tuple[int, int, str]]) -> str:
    lines = [f"{mark[2]} (line {text.line(mark[0])})" for mark in below]
    fitting = list(lines)
    while len("\n".join(fitting).encode()) > _MOST_BYTES:
        fitting.pop()
    more = f"\n… {len(lines) - len(fitting)} more" if len(fitting) < len(lines) else ""
    head = f"[{count_of(len(lines), 'heading')} below “{title}” (line {text.line(at)}):]"
    return "\n".join((head, *fitting)) + more + "\n"
