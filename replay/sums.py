"""Figures that are added up, field by field."""

from collections import Counter
from dataclasses import fields
from typing import Any, Self


class Addable:
    """A dataclass whose instances are added with `+=`."""

    def __iadd__(self, other: Self) -> Self:
        for one in fields(self):  # type: ignore[arg-type]
            setattr(self, one.name, _sum(getattr(self, one.name), getattr(other, one.name)))
        return self


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and not isinstance(one, Counter):
        for key, value in other.items():
            one[key] = _sum(one[key], value) if key in one else value
        return one
    one += other
    return one
