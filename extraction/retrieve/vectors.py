"""Vectors of passages and instructions from an embedding model, and the order that they put passages in."""

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import anyio

_OBJECT_BYTES = 160

_MOST_NEAR = 10
_NEAR_SHARE = 0.7
_STEP = 0.25


@dataclass(frozen=True, slots=True)
class Likeness:
    """How like an instruction the passages are. `near` are the numbers of those that are nearly as like it as
    the most like one, best first. `stands_out`: the best is far more like it than chance explains. `places`
    are the places of all that were compared in the order of likeness, from 0."""

    near: Sequence[int]
    stands_out: bool
    places: dict[int, int]


class Vectors:
    """The vectors of one result's passages, by passage number, and that of the latest instruction. Each has
    length 1, in float32: a passage takes 4 bytes for each dimension. `lock` is held while some are added."""

    def __init__(self) -> None:
        self.of_passages: dict[int, array[float]] = {}
        self.lock = anyio.Lock()
        self._instruction = ""
        self._of_instruction: array[float] | None = None

    @property
    def size(self) -> int:
        """Approximate bytes of memory."""
        sample = next(iter(self.of_passages.values()), ())
        return len(self.of_passages) * (_OBJECT_BYTES + 4 * len(sample)) if sample else 0

    def of_instruction(self, instruction: str) -> "array[float] | None":
        return self._of_instruction if instruction == self._instruction else None

    def keep_instruction(self, instruction: str, vector: "array[float]") -> None:
        """Drops the vectors of passages if they have another length: then the model was replaced."""
        self._instruction, self._of_instruction = instruction, vector
        if any(len(one) != len(vector) for one in self.of_passages.values()):
            self.of_passages = {}

    def forget_all_but(self, numbers: Iterable[int]) -> None:
        """So that no result keeps more vectors than one question compares."""
        self.of_passages = {one: self.of_passages[one] for one in numbers if one in self.of_passages}

    def likeness(self, instruction: "array[float]", numbers: Iterable[int]) -> Likeness | None:
        """Compares the passages of these numbers that have a vector. None if fewer than two have one. Takes
        20 ms for 1,000 passages of 1,536 dimensions."""
        asked = tuple(instruction)
        kept = self.of_passages
        # For vectors of length 1, the cosine is 1 - distance² / 2; math.dist is the fastest loop over them.
        cosines = {
            number: 1 - math.dist(kept[number], asked) ** 2 / 2 for number in numbers if number in kept
        }
        if len(cosines) < 2:
            return None
        order = sorted(cosines, key=lambda number: -cosines[number])
        best, others = cosines[order[0]], [cosines[number] for number in order[1:]]
        mean = sum(others) / len(others)
        deviation = math.sqrt(sum((one - mean) ** 2 for one in others) / len(others))
        # The largest of n values by chance is about sqrt(2 ln n) deviations above their mean. Among lines
        # that are nearly the same a deviation is tiny: the best has to be a good deal nearer to 1, too.
        is_rare = best - mean > (1 + math.sqrt(2 * math.log(len(order)))) * deviation
        stands_out = is_rare and best - mean > _STEP * (1 - mean)
        least = mean + _NEAR_SHARE * (best - mean)
        near = [number for number in order[:_MOST_NEAR] if cosines[number] >= least]
        return Likeness(near, stands_out, {number: place for place, number in enumerate(order)})
