"""A source with its format, which is decided once."""

from functools import cached_property
from typing import Self

from content.formats import identify
from content.formats.format import Format
from content.source import Source


class SourceText(Source):
    @cached_property
    def format(self) -> Format:
        return identify(self)

    def beginning(self, size: int, start: int = 0) -> Self:
        part = super().beginning(size, start)
        if part is not self:
            # The beginning of a whole text may look otherwise.
            part.head, part.format = self.head, self.format
        return part
