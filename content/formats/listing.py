"""Lists of files, one a line."""

import re

from content.formats.format import Description, Format, Sample, SketchForm
from content.kind import Kind
from content.source import Source

_PERMISSIONS = re.compile(rb"[-dlbcps][-rwxsStT]{9}[ .+@]")
_ENTRY = re.compile(b"\n" + _PERMISSIONS.pattern)
_PATH = re.compile(
    rb"\s*+(?:[A-Za-z]:)?[\w@~.+-]{0,100}+(?>(?:[/\\][\w@.+ -]{0,100}+)+):?\s*+\Z"
    rb"|[\w@+-]{1,80}+\.(?=\w{0,7}[A-Za-z])\w{1,8}+\s*+\Z"
)
_FIRST_LINES = 24


class ListingFormat(Format):
    kind = Kind.LISTING
    is_records = True
    noun = "a list of files"
    sketch_form = SketchForm.LINES
    has_structure = False

    def matches(self, sample: Sample) -> bool:
        lines = sample.lines[:_FIRST_LINES]
        return len(lines) > 3 and (
            sum(map(bool, map(_PERMISSIONS.match, lines))) > 0.6 * len(lines)
            or sum(map(bool, map(_PATH.match, lines))) > 0.8 * len(lines)
        )

    def shape(self, source: Source) -> Description:
        if not _ENTRY.search(b"\n" + source.head):
            return Description("list of paths")
        if not source.is_whole:
            return Description("directory listing")
        entries = len(_ENTRY.findall(b"\n" + source.data))
        return Description("directory listing", [f"{entries:,} {'entry' if entries == 1 else 'entries'}"])
