"""The conditions on numbers in a question, such as `more than 800 ms`, in the unit of the data."""

import operator
from collections.abc import Callable
from typing import NamedTuple

from extraction.retrieve.asking import MONTHS, words_of

UNIT = (
    r"(ns|nanoseconds?|[uµ]s|microseconds?|ms|milliseconds?|s|secs?|seconds?|mins?|minutes?|hours?"
    r"|bytes?|[kKMGT]?B|[KMGT]iB)"
)
_SECONDS = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "mic": 1e-6, "ms": 1e-3, "mil": 1e-3, "s": 1, "m": 60, "h": 3600}
_BYTES = {"b": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
"""By the beginning of a word that UNIT matches."""

_SIGNS = {
    ">=": (
        r"\b(?:at least|(?:no|not) (?:less|fewer|smaller|lower) than|mindestens|al menos|au moins)\b"
        r"|至少|>="
    ),
    "<=": (
        r"\b(?:at most|up to|(?:no|not) (?:more|greater|larger|longer|higher) than|höchstens)\b"
        r"|至多|<="
    ),
    ">": (
        r"(?<!\bno )(?<!\bnot )"
        r"\b(?:more than|over|above|(?:greater|larger|bigger|longer|slower|higher) than|exceed\w*|über"
        r"|mehr als|más de|plus de|mais de|più di)\b|超过|大于|高于|(?<![=-])>(?!=)"
    ),
    "<": (
        r"(?<!\bno )(?<!\bnot )"
        r"\b(?:less than|under|below|(?:fewer|smaller|shorter|faster|lower) than|unter|weniger als"
        r"|menos de|moins de|meno di)\b|低于|小于|少于|<(?![=-])"
    ),
}
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_NUMBER = rf"\s*[$€£¥]?\s*(\d[\d,]*(?:\.\d+)?)(?: ?{UNIT}\b|(?![A-Za-z\d]))(?:\s+([a-z]{{3,}}s)\b)?"
_COMPARISONS = {sign: words_of(f"(?:{words}){_NUMBER}") for sign, words in _SIGNS.items()}


class Unit(NamedTuple):
    """`size` in bytes if it `is_of_bytes`, else in seconds."""

    is_of_bytes: bool
    size: float


def unit_of(word: str) -> Unit:
    """The unit of a word that UNIT matches."""
    lower = word.lower()
    table = _BYTES if lower.endswith(("b", "byte", "bytes")) else _SECONDS
    return Unit(table is _BYTES, table[max(filter(lower.startswith, table), key=len)])


class Comparison(NamedTuple):
    """A condition on a number, as in `more than 800 ms` and `fewer than 3 retries`: `sign` is of
    SQL, `noun` what is counted, "" for none, `text` the condition as it stands."""

    sign: str
    number: float
    unit: Unit | None
    noun: str
    text: str

    def limit(self, unit: Unit | None) -> float | None:
        """The number in a unit of the data. None if they do not compare. Numbers without a unit are taken for
        bytes, never for a time."""
        if self.unit is None:
            return self.number
        if unit is None:
            return self.number * self.unit.size if self.unit.is_of_bytes else None
        if unit.is_of_bytes is not self.unit.is_of_bytes:
            return None
        return self.number * self.unit.size / unit.size

    def is_met(self, number: float, limit: float) -> bool:
        return _OPERATORS[self.sign](number, limit)


def comparisons(text: str) -> list[Comparison]:
    """At most one of each sign."""
    matches = ((sign, match) for sign, one in _COMPARISONS.items() if (match := one.search(text)))
    return [
        Comparison(
            sign,
            float(match[1].replace(",", "")),
            unit_of(match[2]) if match[2] else None,
            (match[3] or "").lower(),
            match[0],
        )
        for sign, match in matches
    ]


def without_comparisons(text: str) -> str:
    for one in comparisons(text):
        text = text.replace(one.text, " ")
    return text


def compared_in(text: str) -> str:
    """The comparisons as they stand in the text."""
    return " ".join(one.text for one in comparisons(text))


_NAMES = [f"{name[:3]}(?:{name[3:]})?" if name != "september" else "sep(?:t|tember)?" for name in MONTHS]
_IN_MONTH = words_of(
    rf"\b(?:in|of|for|during) (?:the month of )?(?:{'|'.join(f'({one})' for one in _NAMES)})\b"
    r"(?:,? (?P<year>\d{4}))?(?! \d)"
)

_ANY_MONTH = words_of(rf"\b(?:{'|'.join(one for one in _NAMES if one[:3] != 'may')}|in may)\b")


class Month(NamedTuple):
    """A month in a question, such as `in March 2026`: its name, its words and abbreviation, and a pattern of
    LIKE, `2026-03-%`."""

    name: str
    words: str
    pattern: str


def month_in(text: str) -> Month | None:
    """None where the text names several months."""
    match = _IN_MONTH.search(text)
    if match is None or len(_ANY_MONTH.findall(text)) > 1:
        return None
    number = next(number for number in range(1, 13) if match[number])
    name = match[number].lower()
    return Month(name, f"{match[0]} {name[:3]}", f"{match['year'] or '____'}-{number:02}-%")
