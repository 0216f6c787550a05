"""What models were shown of stored results: lines that an answer names instead of repeating them."""

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from content.model_text import NUMBERED

_MOST_RESULTS = 200
_MOST_LINES = 500
_MOST_CALLS = 50

_PLACE = re.compile(r"lines? (\d+)(?:-(\d+))?(?: under line \d+)?(?:, bytes (\d+)-\d+)?(?: · .*)?")
_LEAST_CHARS, _MOST_OF_IT = 200, 0.6


@dataclass(slots=True, eq=False)
class Shown:
    """The lines of one result that answers have shown, and the calls that were answered."""

    lines: dict[int, None] = field(default_factory=dict)
    calls: dict[int, None] = field(default_factory=dict)

    def before(self, call: str) -> "Shown":
        """What was shown before this call; nothing if the same call was answered before: a model that makes
        it again has lost the answer."""
        return NOTHING if hash(call) in self.calls else self

    def is_known(self, number: int, text: str) -> bool:
        return hash((number, text)) in self.lines

    def is_known_passage(self, place: str, body: str) -> bool:
        """True if most of the passage was shown. `place` is its place as the answer names it. A short one is
        shown again."""
        if not self.lines or len(body) < _LEAST_CHARS:
            return False
        lines = _of_passage(place, body.rstrip("\n").split("\n"))
        return sum(len(line[1]) for line in lines if self.is_known(*line)) >= _MOST_OF_IT * len(body)

    def add(self, call: str, text: str) -> None:
        """`text` is an answer as the model was given it."""
        self.calls[hash(call)] = None
        self.lines.update((hash(line), None) for line in _lines_in(text))
        for memory, most in ((self.lines, _MOST_LINES), (self.calls, _MOST_CALLS)):
            while len(memory) > most:
                del memory[next(iter(memory))]


NOTHING = Shown()


class ShownTexts:
    """Kept in the memory of this process for the results used last. If it is lost, a line is shown again."""

    def __init__(self) -> None:
        self._by_handle: OrderedDict[tuple[str, str], Shown] = OrderedDict()

    def of(self, tenant: str, handle: str) -> Shown:
        shown = self._by_handle.setdefault((tenant, handle), Shown())
        self._by_handle.move_to_end((tenant, handle))
        while len(self._by_handle) > _MOST_RESULTS:
            self._by_handle.popitem(last=False)
        return shown


def _lines_in(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines of an answer, and those below the places of passages."""
    place = ""
    passage: list[str] = []
    for line in (*text.split("\n"), "["):
        if line.startswith("["):
            yield from _of_passage(place, passage)
            place, passage = line[1:-1], []
        elif _PLACE.fullmatch(place):
            passage.append(line)
        elif numbered := NUMBERED.fullmatch(line):
            yield int(numbered[1]), numbered[2]


def _of_passage(place: str, lines: list[str]) -> Iterator[tuple[int, str]]:
    """The lines of a passage with their numbers. A part of a long line is one line, whose number is the
    negative offset of its first byte. The last line has the last number: above the first may be a header."""
    match = _PLACE.fullmatch(place)
    if match is None:
        return
    if match[3]:
        yield -int(match[3]), "\n".join(lines)
    else:
        yield from zip(range(int(match[2] or match[1]), 0, -1), reversed(lines), strict=False)
