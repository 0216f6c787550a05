"""Lines that hold all literal texts of a pattern which matches none of them."""

import re
from typing import NamedTuple

from content.text import clip, count_of

_MOST_CANDIDATES = 20_000
_MOST_LINE_BYTES = 2000
_MOST_TEXTS, _TEXT_CHARS, _LINE_CHARS = 8, 40, 400

_TOKEN = re.compile(
    r"\\(?P<escaped>[^A-Za-z0-9])(?![?*])"
    r"|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|\(\?(?:P?<\w*>|[A-Za-z-]*[:)])|[().*+?|^$]"
    r"|.[?*]|(?P<plain>.)",
    re.DOTALL,
)
"""A literal character of RE2, or something else: also a character that may be missing."""


class Otherwise(NamedTuple):
    """How many lines hold the texts; the number and the text of the last."""

    lines: int
    line: int = 0
    text: str = ""


def literals(pattern: str) -> list[str]:
    """The literal texts of a pattern, without spaces around them, the words of one that stands alone; none
    where there is only one word."""
    text = _TOKEN.sub(lambda token: token["escaped"] or token["plain"] or "\n", pattern)
    parts = dict.fromkeys(map(str.strip, text.split("\n")))
    texts = [part for part in parts if len(part) > 1 or part.isdecimal()]
    texts = texts if len(texts) > 1 else "".join(texts).split()
    return texts if 1 < len(texts) <= _MOST_TEXTS else []


def lines_with_all(data: bytes, texts: list[str]) -> Otherwise:
    """The lines that hold all texts in any order and letter case, of those of at most 2,000 bytes."""
    lowered, count, last = data.lower(), 0, (0, 0)
    needles = sorted((text.lower().encode("utf-8", "replace") for text in texts), key=len, reverse=True)
    end = len(lowered)
    for _ in range(_MOST_CANDIDATES):
        at = lowered.rfind(needles[0], 0, end)
        if at < 0:
            break
        begin = lowered.rfind(b"\n", 0, at) + 1
        stop = lowered.find(b"\n", at, end)
        stop, end = end if stop < 0 else stop, begin
        if stop - begin <= _MOST_LINE_BYTES and all(one in lowered[begin:stop] for one in needles[1:]):
            count, last = count + 1, last if count else (begin, stop)
    if not count:
        return Otherwise(0)
    text = clip(data[slice(*last)].decode("utf-8", "replace"), _LINE_CHARS)
    return Otherwise(count, data.count(b"\n", 0, last[0]) + 1, text)


def otherwise_text(texts: list[str], otherwise: Otherwise) -> str:
    quoted = ", ".join(f"“{clip(text, _TEXT_CHARS)}”" for text in texts)
    hold, which = ("holds", "") if otherwise.lines == 1 else ("hold", " The last:")
    return (
        f"No line matches. {count_of(otherwise.lines, 'line')} {hold} {quoted} in another order or form."
        f"{which}\n{otherwise.line}: {otherwise.text}"
    )
