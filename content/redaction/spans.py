"""Spans of secrets in a text, and how those of several searches become one list."""

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import NamedTuple


class SecretSpan(NamedTuple):
    """A secret in a text: its bytes are those from `start` to before `end`."""

    start: int
    end: int
    kind: str


def merged(sources: Iterable[Iterable[SecretSpan]], generic: frozenset[str]) -> Iterator[SecretSpan]:
    """In order. Of spans that overlap there is one, of the kind of the longest; a `generic` kind gives way.
    Each source is in order."""
    last: SecretSpan | None = None
    for span in merge(*sources):
        if last is None or span.start >= last.end:
            if last is not None:
                yield last
            last = span
            continue
        kind = max(last, span, key=lambda one: (one.kind not in generic, one.end - one.start)).kind
        last = SecretSpan(last.start, max(last.end, span.end), kind)
    if last is not None:
        yield last
