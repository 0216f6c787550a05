"""Decorators of the values that are built for each result: about fifteen of them."""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Protocol, TypeVar, cast, dataclass_transform

import msgspec
from msgspec import structs

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def frozen_struct(cls: type[T]) -> type[T]:
    """Makes a frozen dataclass as a msgspec struct. It is read, replaced, compared and described as any other
    dataclass, and built in a fifth of the time: 6 % of the instructions of a result of 2 KB that passes
    (bench/README.md, speed of `POST /results`)."""
    return _struct_of(cls)


@dataclass_transform(frozen_default=True)
def sparse_struct(cls: type[T]) -> type[T]:
    """A frozen_struct whose JSON and MessagePack leave out the fields that have their default."""
    return _struct_of(cls, omit_defaults=True)


def _struct_of(cls: type[T], *, omit_defaults: bool = False) -> type[T]:
    members = fields(dataclass(init=False, repr=False, eq=False)(cls))  # type: ignore[arg-type]
    namespace = {name: member for name, member in vars(cls).items() if name not in _NOT_COPIED}
    for field in members:
        namespace.pop(field.name, None)
    struct = msgspec.defstruct(
        cls.__name__,
        map(_member, members),
        namespace=namespace,
        module=cls.__module__,
        frozen=True,
        omit_defaults=omit_defaults,
    )
    return cast(type[T], struct)


def _member(field: Field[Any]) -> tuple[str, Any] | tuple[str, Any, Any]:
    if field.default_factory is not MISSING:
        return field.name, field.type, msgspec.field(default_factory=field.default_factory)
    return (field.name, field.type) if field.default is MISSING else (field.name, field.type, field.default)


class _Replace(Protocol):
    def __call__(self, struct: T, /, **changes: Any) -> T: ...


replace = cast(_Replace, structs.replace)
"""Returns a copy with `changes`. That of dataclasses takes ten times as long: 2 % of a result of 2 KB that
passes (bench/README.md)."""

fields_of = cast(Callable[[object], dict[str, object]], structs.asdict)
"""The fields by name. That of dataclasses copies each value."""

_NOT_COPIED = frozenset({"__dict__", "__weakref__", "__annotations__", "__module__"})
