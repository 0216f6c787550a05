"""The SQL over the lines of a log, a listing or a search that answers a question for a count or groups."""

import re
from collections import Counter

from content.formats.log import levels
from content.kind import Kind
from content.relation import text_of
from content.source import Source
from extraction.retrieve.asking import EXTENT, is_of_asking
from extraction.retrieve.instruction import ParsedInstruction
from extraction.retrieve.ranking import stem

_KINDS = (Kind.LOG, Kind.LISTING, Kind.GREP)
_READ_BYTES = 1 << 20
_LEAST_LINES = 10
_LEAST_CHARS = 3
_SHOWN = 10
_LEAST_KEYS = 2
_UNITS = frozenset(
    ("line", "lines", "event", "events", "entry", "entries", "message", "messages", "times", "log")
)

_IP = r"\d{1,3}(?:\.\d{1,3}){3}"
_KEYS = (
    (
        re.compile(r"\b(?:ips?|ip[- ]?addr\w*|addresse?s?|clients?|attackers?|hosts?)\b|地址", re.IGNORECASE),
        _IP,
    ),
    (re.compile(r"\b(?:status(?:es)?|status codes?|http codes?)\b", re.IGNORECASE), r'" (\d{3}) '),
    (
        re.compile(r"\b(?:extensions?|file types?|endings?|suffix(?:es)?)\b", re.IGNORECASE),
        r"\.(\w{1,8})(?::|$)",
    ),
    (re.compile(r"\bhours?\b", re.IGNORECASE), r"(\d\d):\d\d:\d\d"),
)
"""What a question asks for by a name that does not stand before it, and the pattern of it."""


def line_query(text: Source, instruction: ParsedInstruction, *, groups: bool, descending: bool | None) -> str:
    """The query, "" where no word of the question is in the lines, nor a level."""
    if text.format.kind not in _KINDS or text.data.count(b"\n", 0, _READ_BYTES) < _LEAST_LINES:
        return ""
    head = text.data[:_READ_BYTES].decode("utf-8", "replace")
    named = [name for name, _ in levels(text)] if text.format.kind is Kind.LOG else []
    where, of_where = _condition(head, instruction, named)
    if groups or descending is not None:
        key = _key(head, instruction, of_where, named)
        if key:
            where = " AND ".join(filter(None, (where, "found IS NOT NULL")))
            order = "ASC" if descending is False else "DESC"
            return (
                f"SELECT {key} AS found, count(*) FROM data WHERE {where} "  # noqa: S608
                f"GROUP BY found ORDER BY 2 {order} LIMIT {_SHOWN}"
            )
    if where and not _asks_by_level(instruction):
        return f"SELECT count(*) FROM data WHERE {where}"  # noqa: S608
    if not named or EXTENT.search(instruction.text):
        return ""
    return "SELECT level, count(*) FROM data GROUP BY level ORDER BY 2 DESC"


def _asks_by_level(instruction: ParsedInstruction) -> bool:
    return re.search(r"\b(?:levels?|severit\w+)\b", instruction.text, re.IGNORECASE) is not None


def _condition(head: str, instruction: ParsedInstruction, named: list[str]) -> tuple[str, str]:
    """The condition for the level or the words that the question names, and these words."""
    for word in instruction.words:
        level = next((name for name in named if stem(word.lower()) == stem(name.lower())), "")
        if level:
            return f"level = {text_of(level)}", word.lower()
    lowered, most = head.lower(), head.count("\n")
    asked = [*instruction.exact, *instruction.phrases, *instruction.words]
    found = []
    for place, phrase in enumerate(asked):
        bare = phrase.lower()
        if len(bare) < _LEAST_CHARS or bare in _UNITS or any(map(is_of_asking, bare.split())):
            continue
        count = lowered.count(bare) or lowered.count(bare := stem(bare))
        if len(bare) >= _LEAST_CHARS and 0 < count < most:
            found.append((-len(bare.split()), count, place, bare))
    if not found:
        return "", ""
    bare = min(found)[-1]
    at = lowered.find(bare)
    spelled = head[at : at + len(bare)]
    case = "" if head.count(spelled) == lowered.count(bare) else "(?i)"
    return f"matches(text, {text_of(case + _literal(spelled))})", bare


def _literal(text: str) -> str:
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text)


def _key(head: str, instruction: ParsedInstruction, of_where: str, named: list[str]) -> str:
    """The expression of what the question groups by: a known form, or what stands behind a word of it."""
    if named and _asks_by_level(instruction):
        return "level"
    known = [pattern for name, pattern in _KEYS if name.search(instruction.text)]
    behind = [
        rf"\b{_literal(bare)}[=: ]+(\S+)"
        for word in instruction.words
        if len(bare := stem(word.lower())) >= _LEAST_CHARS and bare not in of_where and not is_of_asking(word)
    ]
    for pattern in (*known, *behind):
        found = Counter(re.findall(pattern, head, re.MULTILINE))
        if len(found) >= _LEAST_KEYS and found.total() > len(found):
            return f"part(text, {text_of(pattern)})"
    return ""
