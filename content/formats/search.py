"""The output of searches: matches with the names of their files and the numbers of their lines."""

import re
from collections import Counter
from collections.abc import Iterator

from content.formats.cuts import AIM, MOST
from content.formats.format import Description, Format, Sample, SketchForm
from content.kind import Kind
from content.source import Source
from content.text import clip, count_of

_HIT = re.compile(rb"[\w./@+~-]{1,300}[:-]\d{1,8}[:-](?!\d)")
_NUMBERED = re.compile(rb"\s{0,8}\d{1,7}[:-]")
_FILE_OF = re.compile(rb"^([\w./@+~-]{1,300}?)[:-]\d{1,8}[:-]", re.MULTILINE)
_FILE = re.compile(rb"[\w./@+~-]{1,300}?[:-](?=\d{1,8}[:-])|[\w./@+~-]{1,300}:")
_FILES = 200


class SearchFormat(Format):
    kind = Kind.GREP
    is_records = True
    noun = "search output"
    sketch_form = SketchForm.OUTLINE
    has_structure = False

    def matches(self, sample: Sample) -> bool:
        if sample.reaches(_HIT, 0.6):
            return True
        return "grep" in sample.tool_name and sample.share(_HIT) + sample.share(_NUMBERED) >= 0.2

    def shape(self, source: Source) -> Description:
        if not source.is_whole:
            return Description("search output")
        files = Counter(_FILE_OF.findall(source.data))
        return Description(
            "search output", [f"{count_of(files.total(), 'line')} in {count_of(len(files), 'file')}"]
        )

    def outline(self, source: Source) -> Iterator[str]:
        files = Counter(_FILE_OF.findall(source.data))
        if files:
            yield f"{files.total()} lines in {len(files)} files"
        for name, count in files.most_common(_FILES):
            yield f"{clip(name)}: {count}"

    def next_place(self, data: bytes, start: int) -> int:
        """After the matches in one file, or after as many as fit."""
        name = _FILE.match(data, start)
        best, place = 0, data.find(b"\n", start, start + MOST) + 1
        while place and place - start <= AIM:
            best = place
            if name is None or not data.startswith(name[0], place):
                break
            place = data.find(b"\n", place, start + MOST) + 1
        return best or super().next_place(data, start)
