"""Fields that differ from their defaults, for records and rows."""

from collections.abc import Callable, Collection
from dataclasses import fields
from operator import attrgetter
from typing import Any


def set_fields(kind: type[Any], but: Collection[str] = ()) -> Callable[[Any], dict[str, object]]:
    """Returns a function that lists the fields of a `kind` which differ from their defaults, without those in
    `but`."""
    defaults = tuple((field.name, field.default) for field in fields(kind) if field.name not in but)
    values = attrgetter(*(name for name, _ in defaults))

    def differing(one: object) -> dict[str, object]:
        pairs = zip(defaults, values(one), strict=True)
        return {name: value for (name, default), value in pairs if value != default}

    return differing
