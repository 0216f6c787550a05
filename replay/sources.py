"""Files of transcripts: found below the paths given, and read record by record."""

import codecs
import gzip
import io
import json
import os
import sqlite3
import stat
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import msgspec

from app.files import why_unreadable
from content.text import without_surrogates
from domain.errors import ConfigError
from replay.readers import FORMATS, LOOKED_AT, recognised
from replay.runs import Notes, Run

MOST_DOCUMENT_BYTES = 256 << 20
"""A larger JSON document, or line of JSON lines, is left out."""

MOST_RUN_CHARS = 64 << 20
"""A run with more text than this is left out: `retrieve` searches no larger result either."""

_SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".traj.gz")
_DATABASE = "opencode.db"
_CHUNK = 1 << 20

NOT_A_TRANSCRIPT = "files of no known format"
UNREADABLE = "files that cannot be read"
NOT_JSON = "lines that are not JSON"
CUT_LINE = "last lines that are incomplete"
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
    TOO_DEEP: "document or line that is nested too deeply",
    TOO_LARGE: "document or line above 256 MB, or run above 64 MB",
    EMPTY: "empty file",
    LINK_CYCLE: "link to a folder that was seen before",
    NO_RUN: "file without a turn of a model",
}
"""What each reason is called of one file or line."""


def printable(name: str) -> str:
    """A name that does nothing to a terminal."""
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
                    folder.name == "storage" and entry.name != "message" and (folder / "message").is_dir()
                ):
                    waiting.append(Path(entry.path))
            elif entry.name.endswith(_SUFFIXES) or entry.name == _DATABASE:
                yield Path(entry.path)


def is_opencode_session(folder: Path) -> bool:
    """A folder `storage/message/ses_…`, beside `storage/part`."""
    return (
        folder.name.startswith("ses_")
        and folder.parent.name == "message"
        and (folder.parents[1] / "part").is_dir()
    )


def size_of(path: Path) -> int:
    """Bytes that are read of the disk; 0 if that is not known."""
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
        elif not path.is_file():
            # A pipe or a device might never end.
            notes.fault(UNREADABLE, str(path))
            return
        elif path.name == _DATABASE or _is_sqlite(path):
            records = _database(path, notes)
        else:
            records = _records(path, notes)
        yield from _read(path, records, notes, format_name)
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
    """Holds none of the first for longer than it is needed."""
    while first:
        yield first.popleft()
    yield from others


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _records(path: Path, notes: Notes) -> Iterator[Any]:
    """Lines of JSON; or one document, if the first line alone is not JSON."""
    with path.open("rb") as raw:
        is_compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with io.BufferedReader(gzip.GzipFile(fileobj=raw), _CHUNK) if is_compressed else raw as file:
            lines = _lines(file, raw, path, notes)
            first = next(lines, None)
            if first is None:
                notes.fault(EMPTY, str(path))
                return
            first = first.removeprefix(codecs.BOM_UTF8)
            value = _value(first)
            if value in _UNREAD:
                yield from _document(first, file, path, notes)
                return
            if not (isinstance(value, dict | list) or first.endswith(b"\n")):
                notes.fault(NOT_A_TRANSCRIPT, str(path))
                return
            del first
            yield value
            yield from _values(lines, path, notes)


def _values(lines: Iterable[bytes], path: Path, notes: Notes) -> Iterator[Any]:
    for line in lines:
        value = _value(line)
        if value not in _UNREAD:
            yield value
        elif value is _TOO_DEEP:
            notes.fault(TOO_DEEP, str(path))
        else:
            notes.fault(NOT_JSON if line.endswith(b"\n") else CUT_LINE, str(path))


def _lines(file: IO[bytes], raw: IO[bytes], path: Path, notes: Notes) -> Iterator[bytes]:
    """Lines that are not blank; of a line that is too long nothing is held. `raw` is the file on the disk."""
    while line := file.readline(MOST_DOCUMENT_BYTES):
        notes.position = raw.tell()
        if len(line) == MOST_DOCUMENT_BYTES and not line.endswith(b"\n"):
            notes.fault(TOO_LARGE, str(path))
            while (rest := file.readline(_CHUNK)) and not rest.endswith(b"\n"):
                pass
        elif line.strip():
            yield line


def _document(first: bytes, file: IO[bytes], path: Path, notes: Notes) -> Iterator[Any]:
    """One document; or lines of JSON after a first line that is none."""
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
    lines = [line for line in data.splitlines(keepends=True) if line.strip()]
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
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return without_surrogates(json.loads(line.decode("utf-8", "replace")))
    except ValueError:
        return _NOT_JSON
    except RecursionError:
        return _TOO_DEEP


def _stored_session(folder: Path, notes: Notes) -> Iterator[Any]:
    """A session that OpenCode stores as one file for each message and part, in the shape of its export."""
    messages = []
    for file in sorted(folder.glob("*.json")):
        info = _value(file.read_bytes())
        if not isinstance(info, dict):
            notes.fault(NOT_JSON, str(file))
            continue
        parts = folder.parents[1] / "part" / file.stem
        if not parts.is_dir():
            parts = folder.parents[1] / "part" / folder.name / file.stem
        values = [_value(part.read_bytes()) for part in sorted(parts.glob("*.json"))]
        messages.append({"info": info, "parts": [one for one in values if isinstance(one, dict)]})
    yield {"info": {"id": folder.name}, "messages": messages}


_SESSIONS = "SELECT DISTINCT session_id FROM message ORDER BY session_id"
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY id"
_PARTS = "SELECT data FROM part WHERE message_id = ? ORDER BY id"


def _database(path: Path, notes: Notes) -> Iterator[Any]:
    """The sessions in OpenCode's database. It is opened to be read only, and may be in use."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if not {"message", "part"} <= names:
            notes.fault(NOT_A_TRANSCRIPT, str(path))
            return
        for (session,) in database.execute(_SESSIONS).fetchall():
            messages = []
            for message, info in database.execute(_MESSAGES, (session,)).fetchall():
                values = [_value(_bytes(data)) for (data,) in database.execute(_PARTS, (message,))]
                parts = [one for one in values if isinstance(one, dict)]
                messages.append({"info": _value(_bytes(info)), "parts": parts})
            yield {"info": {"id": session}, "messages": messages}


def _bytes(data: str | bytes) -> bytes:
    return data.encode("utf-8", "replace") if isinstance(data, str) else data
