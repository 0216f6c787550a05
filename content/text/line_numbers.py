"""Removes the line numbers that a read tool puts before each line, and keeps them."""

import re
from dataclasses import dataclass
from itertools import pairwise

_NUMBER = re.compile(rb"[ ]{0,8}(\d{1,7})(?:\t|\xe2\x86\x92|\||:)")
_LOOKED_AT = 60
_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Numbered:
    """`text` is the text without numbers, with as many rows; rows without a number are empty. `numbers` has a
    number for each row, None if the text had none: then rows count from `first`."""

    text: bytes
    numbers: list[int] | None = None
    first: int = 1

    def line(self, row: int) -> int:
        """The line number of the 0-based `row`."""
        return row + self.first if self.numbers is None else self.numbers[min(row, len(self.numbers) - 1)]


def unnumbered(data: bytes, first_line: int = 1) -> Numbered:
    """Removes line numbers if half of the first lines begin with growing numbers. `first_line` is the number
    of the first line in its file, used if the text has no numbers."""
    first = [line for line in data.split(b"\n", _LOOKED_AT)[:_LOOKED_AT] if line.strip()]
    found = [match for match in map(_NUMBER.match, first) if match]
    numbers = [int(match[1]) for match in found]
    if len(numbers) < max(2, _SHARE * len(first)) or any(b <= a for a, b in pairwise(numbers)):
        return Numbered(data, first=first_line)
    # A table with a header whose first column counts the rows.
    if found[0][0].endswith(b"\t") and found[0].string is not first[0]:
        return Numbered(data, first=first_line)
    return _taken_off(data.split(b"\n"))


def _taken_off(lines: list[bytes]) -> Numbered:
    texts: list[bytes] = []
    numbers: list[int] = []
    for line in lines:
        match = _NUMBER.match(line)
        texts.append(line[match.end() :] if match else b"")
        numbers.append(int(match[1]) if match else (numbers[-1] if numbers else 0))
    # Some tools put a space after the mark.
    if all(text.startswith(b" ") for text in texts if text.strip()):
        texts = [text[1:] for text in texts]
    return Numbered(b"\n".join(texts), numbers)
