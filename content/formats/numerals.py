"""Numbers as people write them, such as `$1,234.50`, `76,50 €` and `12%`: the form that a column has."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

_CURRENCY = r"[$€£¥₹]|USD|EUR|GBP|JPY|CHF|CNY|INR|CAD|AUD"
_WRITTEN = re.compile(
    rf"\s*\(?[-−]?\s?({_CURRENCY}|)\s?[-−]?\d[\d.,]*(?:[eE][+-]?\d+)?\s?({_CURRENCY}|%|)\)?\s*"
)
_ABSENT = frozenset(("-", "–", "—", "n/a", "na", "nan", "null", "none", r"\n"))
"""What stands for no number, in lower case."""


class Form(NamedTuple):
    """What stands before and after each number, and the mark of its decimals: "." or ","."""

    before: str
    after: str
    decimal: str

    def read(self, cell: str) -> int | float | None:
        """The number in the cell, None if it has another form."""
        match = _pattern(self).fullmatch(cell)
        if match is None:
            return None
        digits = match["digits"].replace("." if self.decimal == "," else ",", "").replace(",", ".")
        number = int(digits) if digits.isdecimal() else float(digits)
        return -number if match["open"] or match["minus"] or match["inner"] else number


@lru_cache(maxsize=64)
def _pattern(form: Form) -> re.Pattern[str]:
    decimal, group = (r"\.", ",") if form.decimal == "." else (",", r"\.")
    whole = rf"(?:[1-9]\d{{0,2}}(?:{group}\d{{3}}){{1,4}}|0|[1-9]\d{{0,14}})"
    digits = rf"{whole}(?:{decimal}\d{{1,15}})?(?:[eE][+-]?\d{{1,3}})?"
    before, after = re.escape(form.before), re.escape(form.after)
    return re.compile(
        rf"\s*(?P<open>\()?(?P<minus>[-−])?\s?{before}\s?(?P<inner>[-−])?(?P<digits>{digits})\s?{after}"
        r"(?(open)\))\s*"
    )


def stands_for_none(cell: str) -> bool:
    return cell.strip().lower() in _ABSENT


def may_be_written(cell: str) -> bool:
    """True if the cell may be one of a column of numbers."""
    return _WRITTEN.fullmatch(cell) is not None or stands_for_none(cell)


class Numbers(NamedTuple):
    """A column of numbers in one form. `written` is the first that is not plain, `absent` the first cell that
    stands for none; "" where there is none."""

    form: Form
    written: str
    absent: str

    @property
    def note(self) -> str:
        """How the cells are read, such as `$1,234.50 as 1234.5, n/a as null`."""
        written = f"{self.written} as {self.form.read(self.written)}" if self.written else ""
        return ", ".join(filter(None, (written, self.absent and f"{self.absent} as null")))


class NumbersFinder:
    """Takes the cells of a column one by one. `has_commas`: without a currency, too, a comma may be the mark
    of decimals."""

    def __init__(self, *, has_commas: bool = False) -> None:
        self._has_commas = has_commas
        self._forms: tuple[Form, ...] | None = None
        self._written = self._absent = ""
        self._has_comma = False

    def take(self, cell: str) -> bool:
        """False if the cell is neither a number in the form of those before nor stands for none."""
        if not cell or cell.isspace():
            return True
        if stands_for_none(cell):
            self._absent = self._absent or cell.strip()
            return True
        forms = self._possible(cell) if self._forms is None else self._forms
        self._forms = tuple(form for form in forms if _pattern(form).fullmatch(cell))
        if not self._written and not cell.lstrip("-").replace(".", "", 1).isdecimal():
            self._written = cell.strip()
        self._has_comma = self._has_comma or "," in cell
        return bool(self._forms)

    def _possible(self, cell: str) -> tuple[Form, ...]:
        match = _WRITTEN.fullmatch(cell)
        if match is None:
            return ()
        before, after = match.groups()
        marks = ",." if self._has_commas or after not in ("", "%") else ".," if before or after else "."
        return tuple(Form(before, after, mark) for mark in marks)

    @property
    def found(self) -> Numbers | None:
        """None if no cell was a number. Without a comma in the cells, a point is the mark of decimals, unless
        a currency follows: `1.234 €` is 1234."""
        for form in self._forms or ():
            if form.decimal == "." or form.after or self._has_comma:
                return Numbers(form, self._written, self._absent)
        return None


def numbers_in(cells: Iterable[str | None]) -> Numbers | None:
    """The numbers of a column, None unless all of its cells are numbers in one form."""
    finder = NumbersFinder()
    return finder.found if all(finder.take(cell or "") for cell in cells) else None
