"""A source with its format, which is decided once."""

from functools import cached_property
from typing import TYPE_CHECKING, Self

from content.source import Source

if TYPE_CHECKING:
    from content.formats.format import Format


class SourceText(Source):
    @cached_property
    def format(self) -> "Format":
        # The formats take a twentieth of the start (bench/README.md, start).
        from content.formats import identify

        return identify(self)

    def beginning(self, size: int, start: int = 0) -> Self:
        part = super().beginning(size, start)
        if part is not self:
            # The beginning of a whole text may look different.
            part.head, part.format = self.head, self.format
        return part
