"""The rows of search output: which are matches, and how they spread over files and directories."""

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_FOOTER = (
    r"\((?:Showing lines \d+[–-]\d+ of (?P<lines>\d+) total"
    r"|Showing \d+ of (?P<matches>\d+) matches\.[^\n()]{0,200}"
    r"|Results limited to \d+ [^\n()]{1,200})\)"
)
_SUMMARY = r"Found \d+ (?:files?|total occurrences? across \d+ files?\.)"

LAST_LINES = re.compile(rf"(?:\A|\n)(?:\r?\n)?(?P<footer>(?:{_SUMMARY} )?{_FOOTER})\r?\n?\Z")
"""The footer that a tool with view caps of its own, or an earlier view, puts below the rows."""

FOOTER_CHARS = 512
"""No footer is longer, with the line ends around it."""

_NO_MATCH = re.compile(rf"\s*(?:--|{_SUMMARY}|(?:{_SUMMARY} )?{_FOOTER})?\s*")
"""A separator, a summary, a footer or an empty row."""

PREFIX = re.compile(
    r"(?P<file>(?:[A-Za-z]:)?[^\s:]{1,300}?\.\w{1,10})[:-]\d{1,9}([:-])"
    r"|\d{1,9}([:-])|(?P<bare_file>[^\s:]{1,300}?)[:-]\d{1,9}([:-])"
)
"""The file and the line number before the text of a match (`:`) or of a context line (`-`)."""

_FILE = re.compile(r"((?:[A-Za-z]:)?[^\s:]{1,300}\.\w{1,10}):")
_PATH = re.compile(r"[^\s:*?\"<>|]{1,400}")
_SCANNED_CHARS = 400
_MOST_LISTED = 5


class PathCount(NamedTuple):
    """A file or a directory, and how many matches or files are in it."""

    name: str
    size: int


def is_match(row: str, *, has_context: bool) -> bool:
    """`has_context`: the output may hold context lines, whose number ends in `-`."""
    if _NO_MATCH.fullmatch(row):
        return False
    prefix = PREFIX.match(row) if has_context else None
    return prefix is None or "-" not in (prefix[2], prefix[3], prefix[5])


def matches_by_file(rows: Iterable[str]) -> list[PathCount]:
    """The files with the most matches, most first. Rows without a file are not counted."""
    counts = Counter(file for row in rows if is_match(row, has_context=True) and (file := _file_of(row)))
    return [PathCount(*one) for one in counts.most_common()]


def files_by_directory(rows: Iterable[str]) -> list[PathCount]:
    """The directories below the one that all listed files have in common, most files first."""
    directories = [posixpath.dirname(path) for path in paths(rows)]
    if not any(directories):
        return []
    common = posixpath.commonpath(directories) if len({one[:1] == "/" for one in directories}) == 1 else ""
    return [PathCount(*one) for one in Counter(_below(common, one) for one in directories).most_common()]


def files_by_extension(rows: Iterable[str]) -> list[PathCount]:
    """The extensions of the listed files, with their dot, most files first."""
    extensions = (posixpath.splitext(path)[1] for path in paths(rows))
    return [PathCount(*one) for one in Counter(filter(None, extensions)).most_common()]


def paths(rows: Iterable[str]) -> Iterator[str]:
    """The rows that are nothing but a path."""
    for row in rows:
        path = row.strip()
        if _PATH.fullmatch(path) and not _NO_MATCH.fullmatch(path):
            yield path.removeprefix("./")


def listed(shares: Sequence[PathCount], noun: str, plural: str) -> list[str]:
    """The largest shares as lines of a list, and how many others there are."""
    lines = [f"  - {name}: {size} {noun if size == 1 else plural}" for name, size in shares[:_MOST_LISTED]]
    others = len(shares) - len(lines)
    return [*lines, f"  - ... {others} more"] if others else lines


def _file_of(row: str) -> str | None:
    prefix = PREFIX.match(row) or _FILE.match(row, 0, _SCANNED_CHARS)
    if prefix is None:
        return None
    return prefix[1] if prefix.re is _FILE else prefix["file"] or prefix["bare_file"]


def _below(common: str, directory: str) -> str:
    """`common` with the next part of the directory."""
    rest = directory.removeprefix(common).lstrip("/")
    return posixpath.join(common, rest.partition("/")[0]).rstrip("/") or "."
