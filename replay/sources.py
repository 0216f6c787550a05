"""Files of transcripts: found below the paths given, and read record by record."""

import codecs
import gzip
import io
import json
import os
import sqlite3
import stat
import zlib
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import msgspec

from app.files import why_unreadable
from content.text import without_surrogates
from domain.errors import ConfigError
from replay.readers import FORMATS, LOOKED_AT, recognised
from replay.runs import Notes, Run, is_too_deep

MOST_DOCUMENT_BYTES = 256 << 20
"""A larger JSON document, line of JSON lines, or session of OpenCode is left out."""

MOST_LINES_WITHOUT_RECORD = 1_000_000
"""The most records of a file. The rest is left out: a compressed file of 1 MB can hold a thousand million
records."""

MOST_RUN_CHARS = 64 << 20
"""A run with more text than this is left out: `retrieve` searches no larger result either."""

_SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".traj.gz")
_DATABASE = "opencode.db"
_CHUNK = 1 << 20
_READ_BYTES = 1 << 16

NOT_A_TRANSCRIPT = "files of no known format"
UNREADABLE = "files that cannot be read"
NOT_JSON = "lines that are not JSON"
CUT_LINE = "last lines that are incomplete"
NO_RECORD = "files that go on for 1,000,000 lines without a record"
TOO_DEEP = "documents or lines that are nested too deeply"
TOO_LARGE = "documents or lines above 256 MB, or runs above 64 MB"
EMPTY = "empty files"
LINK_CYCLE = "links to a folder that was seen before"
NO_RUN = "files without a turn of a model"

SINGULAR = {
    NOT_A_TRANSCRIPT: "file of no known format",
    UNREADABLE: "file that cannot be read",
    NOT_JSON: "line that is not JSON",
    CUT_LINE: "last line that is incomplete",
    NO_RECORD: "file that goes on for 1,000,000 lines without a record",
    TOO_DEEP: "document or line that is nested too deeply",
    TOO_LARGE: "document or line above 256 MB, or run above 64 MB",
    EMPTY: "empty file",
    LINK_CYCLE: "link to a folder that was seen before",
    NO_RUN: "file without a turn of a model",
}
"""The reason, in words for one file or line."""


def printable(name: str) -> str:
    """Returns a name without control characters of a terminal."""
    return "".join(char if char.isprintable() else "?" for char in name)


def found_files(paths: list[Path], notes: Notes) -> Iterator[Path]:
    """The files given, and those below the folders given that may hold a transcript. Follows links, and
    visits each folder once. A folder in which OpenCode stores a session is yielded as it is. Raises
    ConfigError for a path that does not exist."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:
            raise ConfigError(f"{why_unreadable(error, printable(str(path)))}.") from None
        if is_folder:
            yield from _below(path, seen, notes)
        else:
            yield path


def _below(top: Path, seen: set[tuple[int, int]], notes: Notes) -> Iterator[Path]:
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            where = folder.stat()
            if (where.st_dev, where.st_ino) in seen:
                notes.fault(LINK_CYCLE, str(folder))
                continue
            seen.add((where.st_dev, where.st_ino))
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            notes.fault(UNREADABLE, str(folder))
            continue
        if is_opencode_session(folder):
            yield folder
            continue
        for entry in entries:
            try:
                is_folder = entry.is_dir()
            except OSError:
                is_folder = False
            if is_folder:
                if not (
                    folder.name == "storage" and entry.name != "message" and os.path.isdir(folder / "message")
                ):
                    waiting.append(Path(entry.path))
            elif entry.name.endswith(_SUFFIXES) or entry.name == _DATABASE:
                yield Path(entry.path)


def is_opencode_session(folder: Path) -> bool:
    """A folder `storage/message/ses_…`, beside `storage/part`."""
    return (
        folder.name.startswith("ses_")
        and folder.parent.name == "message"
        and os.path.isdir(folder.parents[1] / "part")
    )


def size_of(path: Path) -> int:
    """Returns the bytes that are read of the disk; 0 if that is not known."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def runs_of(path: Path, notes: Notes, format_name: str | None = None) -> Iterator[Run]:
    """The runs of a file, one by one. What cannot be read is noted."""
    records: Iterator[Any]
    try:
        if path.is_dir():
            records = _stored_session(path, notes)
        elif _is_sqlite(path):
            records = _database(path, notes)
        else:
            records = _records(path, notes)
        yield from _read(path, records, notes, format_name)
    except sqlite3.DataError:
        notes.fault(TOO_LARGE, str(path))
    except (OSError, EOFError, zlib.error, sqlite3.Error):
        notes.fault(UNREADABLE, str(path))


def _read(path: Path, records: Iterator[Any], notes: Notes, format_name: str | None) -> Iterator[Run]:
    known, first = FORMATS.get(format_name or ""), deque[Any]()
    while known is None and len(first) < LOOKED_AT and (record := next(records, _NO_MORE)) is not _NO_MORE:
        first.append(record)
        known = recognised(first)
    if known is None:
        if first:
            notes.fault(NOT_A_TRANSCRIPT, str(path))
        return
    notes.files += 1
    some = False
    for run in known.runs(_chained(first, records), notes):
        if not any(run.turns):
            continue
        some = True
        if run.chars > MOST_RUN_CHARS:
            notes.fault(TOO_LARGE, str(path))
            continue
        notes.formats[run.format] += 1
        yield run
    if not some:
        notes.fault(NO_RUN, str(path))


def _chained(first: deque[Any], others: Iterator[Any]) -> Iterator[Any]:
    """Frees each of the first records once it was yielded."""
    while first:
        yield first.popleft()
    yield from others


class _Bounded(io.RawIOBase):
    """A file up to the size that it had when it was opened: one that grows ends. `position`: bytes that were
    read."""

    def __init__(self, fd: int) -> None:
        self._fd, self._size = fd, os.fstat(fd).st_size
        self.position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = os.readv(self._fd, [memoryview(buffer)[: self._size - self.position]])
        self.position += count
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


def _opened(path: Path) -> _Bounded:
    """Opens a file. Raises OSError, also for a file that is not regular: a pipe or a device might never
    end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("not a regular file")
    # O_NONBLOCK, so that opening does not wait if a pipe has replaced the file meanwhile.
    return _Bounded(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))


def _is_sqlite(path: Path) -> bool:
    with _opened(path) as file:
        return file.read(16) == b"SQLite format 3\0"


def _records(path: Path, notes: Notes) -> Iterator[Any]:
    """Lines of JSON; or one document, if the first line alone is not JSON."""
    with _opened(path) as raw, io.BufferedReader(raw, _READ_BYTES) as plain:
        is_compressed = plain.peek(2).startswith(b"\x1f\x8b")
        with io.BufferedReader(gzip.GzipFile(fileobj=plain), _CHUNK) if is_compressed else plain as file:
            lines = _lines(file, raw, path, notes)
            first = next(filter(bytes.strip, islice(lines, MOST_LINES_WITHOUT_RECORD)), None)
            if first is None:
                notes.fault(EMPTY, str(path))
                return
            first = first.removeprefix(codecs.BOM_UTF8)
            value = _value(first)
            if value is _NOT_JSON:
                yield from _document(first, file, path, notes)
                return
            if value is _TOO_DEEP:
                notes.fault(TOO_DEEP, str(path))
            elif isinstance(value, dict | list) or first.endswith(b"\n"):
                yield value
            else:
                notes.fault(NOT_A_TRANSCRIPT, str(path))
                return
            del first
            yield from _values(lines, path, notes)


def _values(lines: Iterable[bytes], path: Path, notes: Notes) -> Iterator[Any]:
    since_record = 0
    for line in lines:
        since_record += 1
        if since_record > MOST_LINES_WITHOUT_RECORD:
            notes.fault(NO_RECORD, str(path))
            return
        if not line.strip():
            continue
        value = _value(line)
        if value not in _UNREAD:
            since_record = 0
            yield value
        elif value is _TOO_DEEP:
            notes.fault(TOO_DEEP, str(path))
        else:
            notes.fault(NOT_JSON if line.endswith(b"\n") else CUT_LINE, str(path))


def _lines(file: IO[bytes], raw: _Bounded, path: Path, notes: Notes) -> Iterator[bytes]:
    """Lines; a line that is too long is empty, and not held. `raw` is the file on the disk."""
    while line := file.readline(MOST_DOCUMENT_BYTES):
        notes.position = raw.position
        if len(line) == MOST_DOCUMENT_BYTES and not line.endswith(b"\n"):
            notes.fault(TOO_LARGE, str(path))
            line = b""
            while (rest := file.readline(_CHUNK)) and not rest.endswith(b"\n"):
                pass
        yield line


def _document(first: bytes, file: IO[bytes], path: Path, notes: Notes) -> Iterator[Any]:
    """One document, or lines of JSON whose first line is no JSON."""
    if first.lstrip()[:1] not in (b"{", b"["):
        notes.fault(NOT_A_TRANSCRIPT, str(path))
        return
    data = first + file.read(MOST_DOCUMENT_BYTES)
    if len(data) >= MOST_DOCUMENT_BYTES:
        notes.fault(TOO_LARGE, str(path))
        return
    value = _value(data)
    if value not in _UNREAD:
        del data
        yield value
        return
    lines = data.splitlines(keepends=True)
    if any(_value(line) not in _UNREAD for line in lines[1:50]):
        yield from _values(lines, path, notes)
    else:
        notes.fault(TOO_DEEP if value is _TOO_DEEP else CUT_LINE, str(path))


_NOT_JSON, _TOO_DEEP, _NO_MORE = object(), object(), object()
_UNREAD = (_NOT_JSON, _TOO_DEEP)


def _value(line: bytes) -> Any:
    """The value of a line of JSON, with U+FFFD for what is not UTF-8 and for lone surrogates. _NOT_JSON or
    _TOO_DEEP for anything else."""
    try:
        value = _decoded(line)
    except ValueError:
        return _NOT_JSON
    except RecursionError:
        return _TOO_DEEP
    return _TOO_DEEP if is_too_deep(value) else value


def _decoded(line: bytes) -> Any:
    """Raises ValueError, RecursionError."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(line)
    return without_surrogates(json.loads(line.decode("utf-8", "replace")))


_Data = bytes | None
"""Returns the value of a JSON file; None if the file does not exist or cannot be read."""


def _session(
    name: str, messages: Iterable[tuple[_Data, Iterable[_Data]]], path: Path, notes: Notes
) -> Iterator[Any]:
    """A session of OpenCode in the shape of its export: each message with its parts. Yields nothing for one
    that is too large."""
    whole, size = [], 0
    for info, parts in messages:
        values = []
        for data in chain((info,), parts):
            size += len(data or b"")
            if size > MOST_DOCUMENT_BYTES:
                notes.fault(TOO_LARGE, str(path))
                return
            values.append(_object(data, path, notes))
        if values[0] is not None:
            whole.append({"info": values[0], "parts": [one for one in values[1:] if one is not None]})
    yield {"info": {"id": name}, "messages": whole}


def _object(data: _Data, path: Path, notes: Notes) -> dict[str, Any] | None:
    value = None if data is None else _value(data)
    if isinstance(value, dict):
        return value
    if data is not None:
        notes.fault(TOO_DEEP if value is _TOO_DEEP else NOT_JSON, str(path))
    return None


def _stored_session(folder: Path, notes: Notes) -> Iterator[Any]:
    """A session that OpenCode stores as one file for each message and part."""
    return _session(folder.name, _stored_messages(folder, notes), folder, notes)


def _stored_messages(folder: Path, notes: Notes) -> Iterator[tuple[_Data, Iterator[_Data]]]:
    for file in sorted(folder.glob("*.json")):
        parts = folder.parents[1] / "part" / file.stem
        if not os.path.isdir(parts):
            parts = folder.parents[1] / "part" / folder.name / file.stem
        yield _content(file, notes), (_content(part, notes) for part in sorted(parts.glob("*.json")))


def _content(path: Path, notes: Notes) -> _Data:
    """Reads at most MOST_DOCUMENT_BYTES and one more byte, which shows that the file is larger."""
    try:
        with _opened(path) as raw, io.BufferedReader(raw) as file:
            return file.read(MOST_DOCUMENT_BYTES + 1)
    except OSError:
        notes.fault(UNREADABLE, str(path))
        return None


_COLUMNS = {"message": {"id", "session_id", "data"}, "part": {"id", "message_id", "data"}}
_PARTS = "SELECT message_id, rowid FROM part ORDER BY id"
_MESSAGES = "SELECT session_id, id, rowid FROM message ORDER BY session_id, id"
_MESSAGE = "SELECT CAST(data AS BLOB) FROM message WHERE rowid = ?"
_PART = "SELECT CAST(data AS BLOB) FROM part WHERE rowid = ?"


def _database(path: Path, notes: Notes) -> Iterator[Any]:
    """The sessions in OpenCode's database. It is opened to be read only, and may be in use. Each row is read
    once, by its number: without an index a query for each message would read all parts each time."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        if not all(_has_columns(database, table, columns) for table, columns in _COLUMNS.items()):
            notes.fault(NOT_A_TRANSCRIPT, str(path))
            return
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_DOCUMENT_BYTES)
        database.set_authorizer(_reads_a_table)
        database.text_factory = partial(str, encoding="utf-8", errors="replace")
        part = partial(_cell, database, _PART)
        parts = defaultdict[Any, list[int]](list)
        for message, row in database.execute(_PARTS):
            parts[message].append(row)
        for session, rows in groupby(database.execute(_MESSAGES).fetchall(), itemgetter(0)):
            messages = (
                (_cell(database, _MESSAGE, row), map(part, parts.pop(message, ())))
                for _, message, row in rows
            )
            yield from _session(str(session), messages, path, notes)


def _has_columns(database: sqlite3.Connection, table: str, columns: set[str]) -> bool:
    """True if these are stored: computed ones may be as large as their author wants. False with a column
    that takes the place of the row's number."""
    rows = database.execute(f"PRAGMA table_xinfo({table})")
    stored = {name.lower() for _, name, _, _, _, _, hidden in rows if not hidden}
    return columns <= stored and "rowid" not in stored


def _reads_a_table(action: int, table: str | None, column: str | None, name: str | None, view: Any) -> int:
    """Allows reads of tables and refuses those of views: a table has an end, a view may have none."""
    is_read = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    return sqlite3.SQLITE_OK if is_read and view is None else sqlite3.SQLITE_DENY


def _cell(database: sqlite3.Connection, query: str, row: int) -> _Data:
    """Returns None for a row that was deleted after its number was read."""
    found = database.execute(query, (row,)).fetchone()
    return None if found is None else found[0] or b""
