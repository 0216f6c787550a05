"""Patterns in RE2 syntax that match single lines, in linear time."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from content import MAX_PATTERN_CHARS
from domain.errors import BadPattern

_MAX_MEMORY = 8 << 20
_MAX_PROGRAM = 20_000

_PART = re.compile(
    r"\\Q.*?(?:\\E|\Z)"
    r"|(?P<class>\[\^?\]?(?>(?:\\.|\[:\^?\w+:\]|[^\]\\])*)\])"
    r"|\\(?P<escape>.)"
    r"|\(\?(?P<on>[a-zA-Z]*)-(?P<off>[a-zA-Z]+)(?=[:)])",
    re.DOTALL,
)
# A pattern that can match no newline may be part of a pattern for a run of lines.
_WITHIN_LINE = re.compile(r"(?>(?:[^\\\[(]|\((?!\?)|\\[^A-Za-z0-9\n]|\\[wdSbB])*)")

_PLAIN_TEXT = r"A \ before . * + ? ( ) [ ] { } | ^ $ takes it as it is."
_REASONS = {
    b"invalid perl operator": "RE2 has no lookahead or lookbehind, nor other Perl-only groups.",
    b"invalid escape sequence": "It has an escape that RE2 does not know; RE2 has no backreferences.",
    b"missing ]": "A character class is not closed by ].",
    b"missing )": "A group is not closed by ).",
    b"unexpected )": "There is a ) without its (.",
    b"trailing \\": "It ends in a single backslash.",
    b"no argument for repetition operator": "A * + ? or { stands where there is nothing to repeat.",
    b"bad repetition operator": "Two repetition operators follow each other; RE2 has no possessive ones.",
    b"invalid repetition size": "RE2 repeats at most 1,000 times.",
    b"invalid character class range": "A character class has a range or name that RE2 does not know.",
    b"invalid named capture group": "A group has a name that RE2 does not accept.",
}


PatternFinder = Callable[[bytes | bytearray, int, int], list[tuple[int, int]]]
"""Finds the spans of the first match in a text from an offset to before another, and of its groups: -1 and -1
for what does not match."""


class Pattern:
    """Finds matching lines in blocks of whole lines, as UTF-8 bytes."""

    def __init__(self, pattern: str, ignore_case: bool = False, literal: bool = False) -> None:
        """Raises BadPattern."""
        _check(pattern)
        if "\n" in pattern:
            raise _multi_line()
        source = escaped(pattern) if literal else _PART.sub(_for_line, pattern)
        self._one = compiled(f"(?m){source}", ignore_case, within_line=True)
        self._run = None
        if _WITHIN_LINE.fullmatch(source):
            run = rf"(?m)(?:{source})[^\n]*(?:\n[^\n]*(?:{source})[^\n]*)*"
            self._run = compiled(run, ignore_case)

    def find(self, block: bytes | bytearray, start: int, end: int) -> int:
        """The offset of the first match at or after `start`, -1 without a match. ^, $ and \\b see the bytes
        around `start` and `end`."""
        return self._one(block, start, end)[0][0]

    def occurrences(self, data: bytes, most: int) -> int:
        """The number of matches that are not empty, 0 if there are more than `most`."""
        at, count = 0, 0
        while count <= most and at <= len(data):
            start, end = self._one(data, at, len(data))[0]
            if start < 0:
                return count
            count += end > start
            at = max(end, start + 1)
        return 0

    def windows(self, data: bytes, most: int, side: int) -> Iterator[tuple[int, int, int]]:
        """Where the first `most` matches begin, between the offsets of `side` bytes on each side of them in
        their lines."""
        at, after = 0, -1
        for _ in range(most):
            start, after = self._one(data, at, len(data))[0]
            if start < 0:
                return
            low, high = max(0, start - side), min(len(data), after + side)
            newline = data.find(b"\n", after, high)
            yield data.rfind(b"\n", low, start) + 1 or low, start, newline if newline >= 0 else high
            at = max(after, start + 1)

    def spans(self, line: str, most: int) -> list[tuple[int, int]]:
        """Where the first `most` matches in a line begin and end, in characters, without empty ones."""
        data, at = line.encode("utf-8", "replace"), 0
        spans: list[tuple[int, int]] = []
        while len(spans) < most and at <= len(data):
            start, end = self._one(data, at, len(data))[0]
            if start < 0:
                break
            if end > start:
                first = len(data[:start].decode("utf-8", "ignore"))
                spans.append((first, first + len(data[start:end].decode("utf-8", "ignore"))))
            at = end if end > start else start + 1
        return spans

    def count(self, block: bytes, start: int, end: int) -> int:
        """The number of matching lines. `start` is the start of a line, `end` the end of one. A run of
        matching lines takes one call if the pattern allows it, else 1.2 µs a line."""
        find = self._run or self._one
        total = 0
        while start <= end:
            first, last = find(block, start, end)[0]
            if first < 0:
                break
            total += 1 + block.count(b"\n", first, last)
            start = block.find(b"\n", last, end) + 1 or end + 1
        return total


def _check(pattern: str) -> None:
    """Raises BadPattern."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise BadPattern(f"The pattern has more than {MAX_PATTERN_CHARS:,} characters. Use a shorter one.")
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise BadPattern("The pattern holds a lone surrogate, which is no character.") from None


def matcher(pattern: str) -> Callable[[bytes], list[tuple[int, int]]]:
    """Finds the spans of the first match in a text and of its groups, [] without one. Raises BadPattern."""
    _check(pattern)
    find = compiled(pattern, captures=True)

    def spans(text: bytes) -> list[tuple[int, int]]:
        groups = find(text, 0, len(text))
        return groups if groups[0][0] >= 0 else []

    return spans


_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


def escaped(text: str) -> str:
    """The pattern that finds the text as it is."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def _for_line(part: re.Match[str]) -> str:
    """Turns anchors of the whole text into anchors of a line, since a pattern sees many lines."""
    if part["class"]:
        return part[0]
    if part["off"]:
        off = part["off"].replace("m", "")
        return f"(?m{part['on'].replace('m', '')}" + (f"-{off}" if off else "")
    if part["escape"] == "n":
        raise _multi_line()
    return {"A": "(?m:^)", "z": "(?m:$)", "C": "."}.get(part["escape"] or "", part[0])


def _multi_line() -> BadPattern:
    return BadPattern(
        "A pattern is matched line by line: it cannot hold a line break. Use `context` instead."
    )


def compiled(
    source: str, ignore_case: bool = False, *, within_line: bool = False, captures: bool = False
) -> PatternFinder:
    """Raises BadPattern."""
    # It takes 15 ms and 2 MB: a process that matches no pattern is spared both.
    from re2 import _re2 as re2

    options = re2.RE2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    options.case_sensitive = not ignore_case
    options.never_capture = not captures
    options.never_nl = within_line
    compiled = re2.RE2(source.encode(), options)
    if not compiled.ok():
        kind = compiled.error().partition(b": ")[0]
        reason = _REASONS.get(kind, "It is not RE2 syntax, or too large for it.")
        raise BadPattern(f"RE2 cannot take this pattern. {reason} {_PLAIN_TEXT}")
    if compiled.ProgramSize() > _MAX_PROGRAM:
        raise BadPattern("The pattern is too costly: use fewer or smaller repetitions.")
    return partial(compiled.Match, re2.RE2.Anchor.UNANCHORED)


def starts(patterns: Iterable[str]) -> Callable[[bytes], list[int] | None]:
    """Finds which of the patterns match at the start of a text, by number; no list if none does. Takes a
    quarter of the time of one pattern after the other."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    every = re2.Set.MatchSet(options)
    for pattern in patterns:
        every.Add(pattern)
    every.Compile()
    match: Callable[[bytes], list[int] | None] = every.Match
    return match
