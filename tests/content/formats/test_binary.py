"""Files that are no text: their names, what opens them, and what of them can be read."""

import base64
import gzip
import sqlite3
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from content.formats.binary import readable
from content.kind import Kind
from content.source_text import SourceText
from tests.content.formats.describing import kind_of, outlined, said


def as_text(data: bytes) -> str:
    """As a tool returns a file that it reads as UTF-8."""
    return data.decode("utf-8", "replace")


def zipped() -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", "words " * 400)
    return made.getvalue()


def tarred() -> bytes:
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.size = 2400
        archive.addfile(entry, BytesIO(b"words " * 400))
    return made.getvalue()


def database(folder: Path) -> bytes:
    with sqlite3.connect(folder / "a.db") as made:
        made.execute("CREATE TABLE shop (id INTEGER, name TEXT)")
        made.executemany("INSERT INTO shop VALUES (?, ?)", [(n, f"name {n}") for n in range(99)])
    made.close()
    return (folder / "a.db").read_bytes()


def test_files_of_this_machine_are_named_with_what_opens_them(tmp_path: Path) -> None:
    named = {
        "ZIP archive": zipped(),
        "gzip data": gzip.compress(b"words " * 4000),
        "tar archive": tarred(),
        "SQLite database": database(tmp_path),
        "program file": Path("/bin/sh").read_bytes()[:40_000],
    }
    for name, data in named.items():
        assert said(as_text(data)).startswith(f"binary: {name}; to open it, use "), name
        assert kind_of(as_text(data)) is Kind.BINARY
        assert outlined(as_text(data)) == ["Outline (binary):", "not text"]


@pytest.mark.parametrize("wrap", ["{}", "data:application/zip;base64,{}", "{}\n"])
def test_base64_is_named_by_what_is_in_it(wrap: str) -> None:
    text = wrap.format(base64.b64encode(zipped() * 4).decode())
    assert said(text).startswith("binary: ZIP archive or an office document in base64; ")


@pytest.mark.parametrize(
    "text",
    [
        "PKZIP is a program of words.\n" * 9,
        "A" * 500,
        "-" * 500,
        "MZ\nMZ\n",
        "words \x1b[1mbold\x1b[0m\n" * 9,
    ],
)
def test_words_that_begin_like_a_file_are_text(text: str) -> None:
    assert kind_of(text) is not Kind.BINARY


def test_what_can_be_read_of_a_file_is_found(tmp_path: Path) -> None:
    runs = readable(as_text(database(tmp_path)).encode()).splitlines()
    assert any(b"CREATE TABLE shop" in run for run in runs)
    assert all(run.isprintable() for run in (one.decode("utf-8", "replace") for one in runs))


def test_a_program_is_no_source_for_a_query(tmp_path: Path) -> None:
    source = SourceText(database(tmp_path))
    assert source.format.kind is Kind.BINARY
    assert not source.format.has_structure
