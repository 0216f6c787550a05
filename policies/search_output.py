"""Search output: how many matches its rows hold, and in which files and directories these are."""

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

_FOOTER = (
    r"\((?:Showing (?:lines|rows) \d+[–-]\d+ of (?P<lines>\d+) total"
    r"|Showing \d+ of (?P<matches>\d+) matches\.[^\n()]{0,200}"
    r"|Results limited to \d+ [^\n()]{1,200})\)"
)
_SUMMARY = r"Found \d+ (?:files?|total occurrences? across \d+ files?\.)"

LAST_LINES = re.compile(rf"(?:\A|\n)(?:\r?\n)?(?P<footer>(?:{_SUMMARY} )?{_FOOTER})\r?\n?\Z")
"""The footer below the rows, written by a tool with view caps of its own, or by an earlier view."""

FOOTER_CHARS = 512
"""The most characters of a footer, including the line ends around it."""

_NO_MATCH = re.compile(rf"\s*(?:--|{_SUMMARY}|(?:{_SUMMARY} )?{_FOOTER})?\s*")
"""A separator, a summary, a footer or an empty row."""

PREFIX = re.compile(
    r"(?:(?:[A-Za-z]:)?[^\s:]{1,300}?\.\w{1,10}[:-])?\d{1,9}[:-]|[^\s:]{1,300}?[:-]\d{1,9}[:-]"
)
"""The file and the line number before the text of a match (`:`) or of a context line (`-`)."""

_MATCH = re.compile(r"(?:(?!\d{1,9}:)((?:[A-Za-z]:)?[^:]{1,300}+):)?(\d{1,9}):")
_CONTEXT = re.compile(r"(?:^|(?<=[:-]))(\d{1,9})(?=-)")
_EXTENSION = re.compile(r"\.\w{1,10}([:-])")
_ENDING = re.compile(r"\.\w{1,10}$")
_NO_PATH = re.compile(r"[\s:]")
_SEPARATOR = "--"
_PREFIX_CHARS = 300
_MOST_PARSES = 12
_MOST_FILES = 10_000
_MOST_DOUBTED = 1000
_SURE_ROWS = 256
_PATH = re.compile(r"[^\s:*?\"<>|]{1,400}")
_MOST_LISTED = 5


class PathCount(NamedTuple):
    """A file or a directory, how many matches or files are in it, and how many of them are shown."""

    name: str
    size: int
    shown: int


@dataclass(slots=True)
class Tally:
    """Matches, in all and among the rows that are shown, and the files that they are in."""

    total: int = 0
    shown: int = 0
    files: Counter[str] = field(default_factory=Counter)
    shown_files: Counter[str] = field(default_factory=Counter)

    def add(self, is_shown: bool, file: str = "", count: int = 1) -> None:
        self.total += count
        self.shown += count * is_shown
        if file and (file in self.files or len(self.files) < _MOST_FILES):
            self.files[file] += count
            self.shown_files[file] += count * is_shown


Number = tuple[str, int]
"""A file, "" if the row names none, and the number of a line in it."""


class _Row(NamedTuple):
    """A row, and what its beginning may be: a match, or one of several lines of context."""

    text: str
    is_shown: bool
    match: Number | None = None
    contexts: Sequence[Number] = ()


def _parsed(text: str, is_shown: bool) -> _Row:
    found, contexts = _MATCH.match(text), []
    file = found[1] or "" if found else ""
    if " " in file and not _ENDING.search(file):
        found = None
    if "-" in (head := text[:_PREFIX_CHARS]):
        # The name of a file may contain numbers.
        numbers = islice(_CONTEXT.finditer(head), _MOST_PARSES)
        contexts = [(text[: max(0, one.start(1) - 1)], int(one[1])) for one in numbers]
    return _Row(text, is_shown, (file, int(found[2])) if found else None, contexts)


class _Numbered:
    """Rows with a line number. A row with `-` and digits is a line of context only if the row before or after
    it has the neighbouring number of the same file. A date in a name of a file does not fulfil this."""

    def __init__(self) -> None:
        self.tally = Tally()
        # How many rows have no number.
        self.others = 0
        self._names_none = False
        self._heading = ""
        self._before: Number | None = None
        self._doubted: list[tuple[str, str, bool]] = []

    def end_group(self) -> None:
        self._before = None

    def look(self, row: _Row, following: _Row, *, begins_block: bool) -> None:
        found = row.match
        if (context := self._context(row, following)) is not None:
            self._before = context
            if found and len(self._doubted) < _MOST_DOUBTED:
                self._doubted.append((context[0], found[0], row.is_shown))
        elif found:
            self._before = found
            self._names_none = self._names_none or not found[0]
            self.tally.add(row.is_shown, found[0] or self._heading)
        elif begins_block and _has_bare_number(following):
            self._heading = row.text.strip()
        else:
            self.others += 1
            self.tally.add(row.is_shown)

    def _context(self, row: _Row, following: _Row) -> Number | None:
        for file, number in row.contexts:
            after = file, number + 1
            if (file, number - 1) == self._before or after == following.match or after in following.contexts:
                return file, number
        return None

    def found(self, rows: int) -> Tally | None:
        """Returns None if most rows have no number, or no row is a match."""
        if self.tally.total <= self.others or 10 * self.others > rows:
            return None
        # A line of context of a file without a match is in truth a match in a file with a date in its name.
        for context, file, is_shown in self._doubted:
            if context not in self.tally.files and not (context == "" and self._names_none):
                self.tally.add(is_shown, file)
        self._doubted = []
        return self.tally


def _has_bare_number(row: _Row) -> bool:
    return (row.match is not None and not row.match[0]) or any(not file for file, _ in row.contexts)


class _Counted:
    """One row for each file: its path and the number of its matches."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._before = ""

    def look(self, row: _Row, *, begins_block: bool) -> bool:
        file, _, count = row.text.rstrip("\r").rpartition(":")
        if (
            file == self._before
            or not ("." in file or "/" in file)
            or not (count.isdecimal() and len(count) < 10)
        ):
            return False
        self._before = file
        self.tally.add(row.is_shown, file, int(count))
        return True

    def found(self) -> Tally | None:
        return self.tally


def _is_path(text: str) -> bool:
    return "." in text or "/" in text or "\\" in text


class _Named:
    """Rows with a file and without numbers; `-` before lines of context."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.contexts: set[str] = set()

    def look(self, row: _Row, *, begins_block: bool) -> bool:
        named = _EXTENSION.search(row.text, 0, _PREFIX_CHARS)
        file = row.text[: named.start(1)] if named else ""
        if named is None or _NO_PATH.search(file, 2):
            return False
        if named[1] == ":":
            self.tally.add(row.is_shown, file)
        elif len(self.contexts) < _MOST_FILES:
            self.contexts.add(file)
        return True

    def found(self) -> Tally | None:
        return self.tally if self.tally.total and self.contexts <= self.tally.files.keys() else None


class _Headed:
    """Blocks of rows, each below the path of its file."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._file = ""

    def look(self, row: _Row, *, begins_block: bool) -> bool:
        text = row.text.rstrip("\r")
        is_path = _is_path(text) and not _NO_PATH.search(text, 2)
        if begins_block:
            self._file = text
        else:
            self.tally.add(row.is_shown, self._file)
        return is_path == begins_block

    def found(self) -> Tally | None:
        return self.tally if self.tally.total else None


class SearchRows:
    """Counts the matches in the output of a search, whatever its form: rows with a number, with a file, or
    with both, with lines of context or without; under headings; a row for each file with its count; or bare
    text and names of files. The form is decided once all rows are fed."""

    def __init__(self) -> None:
        self._bare = Tally()
        self._numbered = _Numbered()
        self._named = _Named()
        self._forms: list[_Counted | _Named | _Headed] = [_Counted(), self._named, _Headed()]
        self._has_separators = False
        self._begins_block = True
        self._waiting: _Row | None = None

    def feed(self, text: str, *, is_shown: bool) -> None:
        row = _parsed(text, is_shown)
        if self._waiting is not None:
            self._look(self._waiting, row)
        self._waiting = row

    def finish(self) -> Tally | None:
        """Returns None if matches cannot be distinguished from lines of context."""
        if self._waiting is not None:
            self._look(self._waiting, _Row("", False))
            self._waiting = None
        # If other rows begin with `a.py:`, then `a.py-12:30` is a line of context that begins with a time.
        is_named = self._named in self._forms and self._named.contexts
        found = self._named.found() if is_named else None
        if found is not None or (found := self._numbered.found(self._bare.total)) is not None:
            return found
        forms = (form.found() for form in self._forms)
        return next(filter(None, forms), None if self._has_separators else self._bare)

    def _look(self, row: _Row, following: _Row) -> None:
        if _NO_MATCH.fullmatch(row.text):
            bare = row.text.strip()
            self._has_separators = self._has_separators or bare == _SEPARATOR
            self._begins_block = not bare
            self._numbered.end_group()
            return
        self._bare.add(row.is_shown)
        begins_block, self._begins_block = self._begins_block, False
        self._numbered.look(row, following, begins_block=begins_block)
        if self._forms:
            self._forms = [one for one in self._forms if one.look(row, begins_block=begins_block)]
            if self._bare.total == _SURE_ROWS and not self._numbered.others and self._named in self._forms:
                self._forms = [self._named]


class FileRows:
    """Counts the rows of a list of files."""

    def __init__(self) -> None:
        self._tally = Tally()

    def feed(self, text: str, *, is_shown: bool) -> None:
        if not _NO_MATCH.fullmatch(text):
            self._tally.add(is_shown)

    def finish(self) -> Tally | None:
        return self._tally


def tally(rows: Sequence[str], shown: int = 0) -> Tally | None:
    """Counts the matches in rows of which the first are shown."""
    found = SearchRows()
    for number, row in enumerate(rows):
        found.feed(row[:FOOTER_CHARS], is_shown=number < shown)
    return found.finish()


def matches_by_file(found: Tally) -> list[PathCount]:
    """Returns the files with the most matches, most first."""
    return [PathCount(*one, found.shown_files[one[0]]) for one in found.files.most_common()]


def files_by_directory(rows: Sequence[str], shown: int) -> list[PathCount]:
    """The directories directly below the one that all listed files share, most files first. The first `shown`
    rows are shown."""
    directories = [posixpath.dirname(path) for path in paths(rows)]
    if not any(directories):
        return []
    common = posixpath.commonpath(directories) if len({one[:1] == "/" for one in directories}) == 1 else ""
    return _most_common(
        lambda some: Counter(_below(common, posixpath.dirname(path)) for path in paths(some)), rows, shown
    )


def files_by_extension(rows: Sequence[str], shown: int) -> list[PathCount]:
    """The extensions of the listed files, with their dot, most files first."""
    return _most_common(
        lambda some: Counter(filter(None, (posixpath.splitext(path)[1] for path in paths(some)))), rows, shown
    )


def _most_common(
    count: Callable[[Sequence[str]], Counter[str]], rows: Sequence[str], shown: int
) -> list[PathCount]:
    visible = count(rows[:shown])
    return [PathCount(*one, visible[one[0]]) for one in count(rows).most_common()]


def paths(rows: Iterable[str]) -> Iterator[str]:
    """Yields the rows that are only a path."""
    for row in rows:
        path = row.strip()
        if _PATH.fullmatch(path) and not _NO_MATCH.fullmatch(path):
            yield path.removeprefix("./")


def listed(shares: Sequence[PathCount], noun: str, plural: str) -> list[str]:
    """The largest shares as lines of a list, and how many others there are."""
    most = shares[:_MOST_LISTED]
    lines = [f"  - {one.name}: {one.size} {noun if one.size == 1 else plural}" for one in most]
    others = len(shares) - len(lines)
    return [*lines, f"  - ... {others} more"] if others else lines


def _below(common: str, directory: str) -> str:
    """Returns `common` with the next part of the directory."""
    rest = directory.removeprefix(common).lstrip("/")
    return posixpath.join(common, rest.partition("/")[0]).rstrip("/") or "."
