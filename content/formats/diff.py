"""Changes of files, as `diff` and version control print them."""

import re
from collections.abc import Iterator

from content.formats.cuts import at_ends, matches_in_slices
from content.formats.format import (
    Description,
    Mark,
    OutlinedFormat,
    Sample,
    SketchForm,
    by_row,
)
from content.kind import Kind
from content.source import Source
from content.text import clip, count_of

# After the message of a commit too, as `git show` prints it.
_CHANGES = re.compile(
    rb"\s*+(?:commit [0-9a-f]{7,64}\b(?>(?:[^\n]*+\n(?!diff )){1,99})[^\n]*+\n(?=diff ))?"
    rb"(?:diff --git |Index: \S|--- [^\n]{1,300}\n\+\+\+ )"
)
_FILE = re.compile(
    rb"^(?:diff --git [^\n]{1,300} b/([^\n]{1,300})|\+\+\+ (?:b/)?([^\n\t]{1,300}))", re.MULTILINE
)
# They begin with a long literal, which is looked for much faster than a beginning of a line.
_GIT_HEAD, _PLAIN_HEAD = (
    re.compile(rb"\ndiff --git ([^\n]{1,600})"),
    re.compile(rb"\n\+\+\+ ([^\n\t]{1,300})"),
)
_HUNK = re.compile(rb"\n(?=@@ |diff --git |Index: )")


class DiffFormat(OutlinedFormat):
    kind = Kind.DIFF
    noun = "a diff"
    sketch_form = SketchForm.OUTLINE
    finds = (at_ends(_HUNK),)

    def matches(self, sample: Sample) -> bool:
        return _CHANGES.match(sample.head) is not None

    def shape(self, source: Source) -> Description:
        counts = []
        if source.is_whole:
            data = b"\n" + source.data
            files = _GIT_HEAD.findall(data) or _PLAIN_HEAD.findall(data)
            counts.append(count_of(len(set(files)), "file"))
        return Description("diff", counts, title=clip(source.data[:400].lstrip().partition(b"\n")[0]))

    def outline(self, source: Source) -> Iterator[tuple[int, str]]:
        return by_row(source.data, {name: (at, name) for at, name in _files(source.data)}.values())

    def marks(self, data: bytes) -> Iterator[Mark]:
        for at, name in _files(data):
            yield at, -1, name


def _files(data: bytes) -> Iterator[tuple[int, str]]:
    for match in matches_in_slices(_FILE, data):
        yield match.start(), clip(match[1] or match[2])
