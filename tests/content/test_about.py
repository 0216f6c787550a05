"""about: one to three lines of at most 300 bytes that tell a model how to ask."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from content.outline.about import HEAD_BYTES, MAX_BYTES, TAIL_BYTES, about

ROWS = [{"id": n, "name": f"item {n}", "price": n * 3} for n in range(248)]
LOG = "".join(
    f"2026-11-20 08:{n // 60:02}:{n % 60:02} {('INFO', 'WARN', 'ERROR')[n % 3]} request {n}\n"
    for n in range(900)
)
PAGE = "<!DOCTYPE html><html><head><title>Prices &amp; hours</title><script>let der = 'die';</script></head>"


def said(text: str, tool: str = "t", path: str | None = None) -> str:
    data = text.encode()
    return about(data, data[-TAIL_BYTES:], len(data), text.count("\n") + 1, tool, path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps(ROWS), "JSON, 248 objects with keys id, name, price"),
        (
            json.dumps({"total": 248, "items": ROWS}),
            "JSON, object with keys total, items; items: 248 objects with keys id, name, price",
        ),
        (json.dumps([1, 2, 3] * 900), "JSON, array of 2,700"),
        (
            "".join(f"{json.dumps(row)}\n" for row in ROWS),
            "JSON lines, 248 records with keys id, name, price",
        ),
        (
            "id,city,total\n" + "".join(f"{n},x,{n}\n" for n in range(90)),
            "CSV, 90 rows, 3 columns: id, city, total",
        ),
        (LOG, "log, 900 lines, levels WARN, INFO, ERROR, from 2026-11-20 08:00:00 to 2026-11-20 08:14:59"),
        (
            f"{PAGE}<body>{'<p>the price of it is in the list</p>' * 90}</body>",
            "HTML page\n“Prices &amp; hours”",
        ),
        (
            "# Plan\n\nthe text of it\n\n## Status\n\nthe rest is for the other\n" * 9,
            "Markdown, 18 headings\n“Plan”",
        ),
        ("<?xml version='1.0'?><orders><o/></orders>", "XML, root element orders"),
        (
            "import os\n\n\nclass A:\n    def f(self):\n        pass\n" * 9,
            "Python source, 9 classes, 9 other definitions",
        ),
        ("src/a.py\nsrc/b/c.py\nREADME.md\nsrc/d.py\n" * 9, "list of paths, 36 entries"),
        ("-rw-r--r-- 1 a a 12 Nov 20 a.txt\n" * 9, "directory listing, 9 lines"),
        ("[('Rome', 12), ('Oslo', 7)]", "Python list of 2 tuples\n“[('Rome', 12), ('Oslo', 7)]”"),
        ("\ufffdPNG\r\n\x1a\n" + "\ufffd\x00IHDR" * 90, "binary: PNG image"),
    ],
)
def test_it_names_the_kind_and_the_shape(text: str, expected: str) -> None:
    assert said(text) == expected


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("这趟列车从北京到天津，票价五十元。\n" * 90, "Chinese"),
        ("この電車は東京から大阪まで行きます。\n" * 90, "Japanese"),
        ("Der Zug ist nicht mit der Bahn und auch nicht für die Stadt.\n" * 90, "German"),
        ("El tren no es para la ciudad, pero está en la lista de los trenes.\n" * 90, "Spanish"),
        ("Le train est dans la ville et les gens sont pour une fois avec nous.\n" * 90, "French"),
        ("Поезд идёт в город и не стоит долго.\n" * 90, "Russian"),
    ],
)
def test_it_names_a_language_other_than_english(text: str, language: str) -> None:
    assert said(text).splitlines()[-1] == f"mostly {language}: ask in {language}"


def test_english_and_data_have_no_language() -> None:
    assert "ask in" not in said("The train is not in the city, and it is for the rest of us.\n" * 90)
    assert "ask in" not in said(LOG)


def test_only_the_beginning_of_a_larger_result_is_described() -> None:
    data = json.dumps(ROWS * 9).encode()
    assert (
        about(data[:9000], data[-TAIL_BYTES:], len(data), 1)
        == "JSON, array of objects with keys id, name, price"
    )


@given(st.text(max_size=3000), st.sampled_from(["", "{", "[", "<html>", "a,b\n", "# "]), st.integers(0, 9000))
def test_it_has_one_to_three_lines_within_its_bytes(text: str, start: str, more: int) -> None:
    data = (start + text).encode("utf-8", "replace")
    told = about(data, data[-TAIL_BYTES:], len(data) + more, data.count(b"\n") + 1)
    assert 0 < len(told.encode()) <= MAX_BYTES
    assert 1 <= told.count("\n") + 1 <= 3


@pytest.mark.parametrize(
    "piece",
    ["<h1>", "<script", "<title", "<h1><", "# a\n", "[", "{", '{"a":', "[],", "a,b\n", "('", "\u4e2d", '"'],
)
def test_hostile_text_is_described_in_its_time(piece: str) -> None:
    """Processor time, so that a busy machine does not matter: ordinary text of this size takes 1 to 5 ms."""
    for start in ("", "<!doctype html>", "["):
        data = (start + piece * (HEAD_BYTES // len(piece.encode()))).encode()
        began = time.thread_time()
        about(data, data[-TAIL_BYTES:], len(data), 1)
        assert time.thread_time() - began < 1.0
