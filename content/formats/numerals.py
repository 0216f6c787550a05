"""Numbers as people write them, such as `$1,234.50`, `76,50 €` and `12%`: the form that a column has."""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

_CURRENCY = r"[$€£¥₹]|USD|EUR|GBP|JPY|CHF|CNY|INR|CAD|AUD"
_EURO = ("€", "EUR")
_WRITTEN = re.compile(
    rf"\s*[(−-]?\s?({_CURRENCY}|)\s?[−-]?\d[\d.,]*(?:[eE][+-]?\d+)?\s?({_CURRENCY}|%|)\)?\s*"
)
_ABSENT = frozenset(("-", "–", "—", "n/a", "na", "nan", "null", "none", r"\n"))
"""What stands for no number, in lower case."""


class Form:
    """What stands before and after each number, and the mark of its decimals: "." or ","."""

    def __init__(self, before: str, after: str, decimal: str) -> None:
        self.before, self.after, self.decimal = before, after, decimal
        group = "," if decimal == "." else "."
        # More digits than these are not kept by a float, or by an integer of SQLite.
        digits = (
            rf"(?:[1-9]\d{{0,2}}(?:{re.escape(group)}\d{{3}}){{1,4}}|0|[1-9]\d{{0,14}})"
            rf"(?:{re.escape(decimal)}\d{{1,25}})?(?:[eE][+-]?\d{{1,2}})?"
        )
        sign = rf"(?:[−-]\s?{re.escape(before)}\s?|(\()\s?{re.escape(before)}\s?|{re.escape(before)}\s?[−-]?)"
        self.matches = re.compile(rf"\s*{sign}{digits}\s?{re.escape(after)}(?(1)\))\s*").fullmatch
        self._code = "".join(one for one in (before, after) if one.isalpha())
        deleted = dict.fromkeys(
            f"{group}) \t\u00a0\u202f{before}{after}" if not self._code else f"{group}) \t\u00a0\u202f"
        )
        self._plain = str.maketrans({**deleted, "(": "-", "−": "-", decimal: "."})

    def read(self, cell: str) -> int | float | None:
        """The number of a cell that has the form; None for a blank and for what stands for none."""
        bare = (cell.replace(self._code, "") if self._code else cell).translate(self._plain)
        if bare.isdecimal():
            return int(bare)
        try:
            number = float(bare)
        except ValueError:
            return None
        if math.isnan(number):
            return None
        return number if "." in bare or "e" in bare.lower() else int(number)


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
        self._forms: list[Form] | None = None
        self._written = self._absent = ""
        self._has_comma = self._has_point = self._is_unbracketed = self._is_clear = False

    def take(self, cell: str) -> bool:
        """False if the cell is neither a number in the form of those before nor stands for none."""
        if self._forms and (self._is_clear or self._tells_nothing(cell)) and self._forms[0].matches(cell):
            return True
        forms = self._possible(cell) if self._forms is None else self._forms
        left = [form for form in forms if form.matches(cell)]
        if not left:
            is_blank, is_absent = not cell.strip(), stands_for_none(cell)
            if is_absent:
                self._absent = self._absent or cell.strip()
            return is_blank or is_absent
        self._forms = left
        if not self._written and not cell.removeprefix("-").replace(".", "", 1).isdecimal():
            self._written = cell.strip()
        self._has_comma = self._has_comma or "," in cell
        self._has_point = self._has_point or "." in cell
        self._is_unbracketed = self._is_unbracketed or "(" not in cell
        self._is_clear = len(left) == 1 and self._is_unbracketed and bool(self._written)
        return True

    def _tells_nothing(self, cell: str) -> bool:
        """True for a number that all forms read alike."""
        return self._is_unbracketed and bool(self._written) and "," not in cell and "." not in cell

    def _possible(self, cell: str) -> list[Form]:
        match = _WRITTEN.fullmatch(cell)
        if match is None:
            return []
        before, after = match.groups()
        has_commas = self._has_commas or before or after
        return [Form(before, after, mark) for mark in (".,"[: 2 if has_commas else 1])]

    @property
    def found(self) -> Numbers | None:
        """None if no cell was a number, or if all are in brackets, as footnotes are. Of two marks that may be
        that of decimals, the one before three digits in all cells separates thousands, as in `1,234 USD` and
        `1.234 €`: but for the point of other currencies, and the comma in a table with semicolons."""
        if not self._forms or not self._is_unbracketed:
            return None
        form, other = self._forms[0], self._forms[-1]
        if form is not other:
            is_currency = bool(form.before or form.after)
            has_other = not is_currency if self._has_comma else self._has_point and form.after in _EURO
            form = other if has_other else form
        return Numbers(form, self._written, self._absent)


def numbers_in(cells: Iterable[str | None]) -> Numbers | None:
    """The numbers of a column, None unless all of its cells are numbers in one form."""
    finder = NumbersFinder()
    return finder.found if all(finder.take(cell or "") for cell in cells) else None
