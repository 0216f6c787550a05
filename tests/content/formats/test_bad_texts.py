"""Text that is cut, mixed, huge or hostile: described alike by all, in bounded time, without an exception."""

import json
import time
import tracemalloc
from contextlib import suppress

import pytest

from content.describe import extent, outline, source_of, structure
from content.kind import Kind
from content.passages import split
from content.sketch import sketch
from content.source_text import SourceText
from content.values import read_value
from domain.errors import NotQueryable
from tests.content.ordinary_texts import SHAPES, WRAPS
from tests.counts import FULL

WIDE = ",".join(f"column_{n}" for n in range(10_000))
BAD = {
    "half a document": json.dumps([{"id": n, "text": "a b"} for n in range(500)])[:7000],
    "a cut cell": "id,name,city\n" + "1,Ann,Rome\n" * 40 + '2,"Bo',
    "mixed separators": "a,b,c\n" + "1,2,3\n4;5;6\n7\t8\t9\n" * 30,
    "ten thousand columns": f"{WIDE}\n" + "1," * 9_999 + "2\n" + "3," * 9_999 + "4\n",
    "a header alone": "id,name,city\n",
    "a header and a rule": "| id | name |\n|----|------|\n",
    "numbers that skip": "".join(f"{n * n:6d}\tline {n}\n" for n in range(1, 80)),
    "numbers that restart": "".join(f"{n % 7:6d}\tline {n}\n" for n in range(1, 80)),
    "a mark in the middle": "a,b,c\n1,2,\ufeff3\n" * 40,
    "NULs": "id,name\n" + "1,\0\n" * 90,
    "NUL later": "id,name,x\n" + "1,2,3\n" * 9000 + "\0",
    "lone surrogates": json.dumps({"a": "\ud800", "b": ["\udfff"] * 90}),
    "a lone surrogate in the fourth record": '{"a": 1}\n' * 3
    + '{"a"\t: 1, "b": "\\ud800"}\n'
    + '{"a": 2}\n' * 900,
    "a long number in the fourth record": '{"a": 1}\n' * 3
    + '{"a"\t: 1, "b": '
    + "9" * 400
    + "}\n"
    + '{"a": 2}\n' * 900,
    "a surrogate and a long number in a list": json.dumps(
        [{"a": 10**400, "b\ud800": ["\udfff"]}] * 30, indent=1
    ),
    "a surrogate and a long number in a cut list": json.dumps([{"a": 10**400, "b": "\ud800"}] * 30)[:-90],
    "a literal with a bracket in a name": "{'a': 1, 'b': (1, 2), 'c': No{ne, 'd': [1.5, '" + "9" * 5000,
    "brackets": "[" * 70_000,
    "objects": '{"a":' * 14_000,
    "closing brackets": "[]" + "]" * 70_000,
    "a block cut in an escape": '{"type": "text", "text": "' + "a\\n" * 5000 + "\\u00",
    "escapes without end": "\x1b]" * 30_000,
    "backslashes": '{"type": "text", "text": "' + "\\" * 60_001,
    "numbers alone": "".join(f"{n:6d}\t\n" for n in range(1, 900)),
    "quotes": '"' * 60_001,
    "blank": " \n" * 30_000,
    "one line": "x" * 100_000,
    "blanks before a cell": "name,,id\n" + f"{' ' * 400}x,,1\n" * 8,
    "blanks behind a block": '{"type": "text", "text": "a"}' + " " * 40_000 + "x",
    "blanks behind blocks": '[{"type": "text", "text": "a"}], "structuredContent": null' + " " * 40_000 + "x",
}


def describe_all(data: bytes, tool: str = "") -> tuple[str, str, Kind]:
    """All that is said of a text; fails where two describers name different kinds."""
    said = sketch(SourceText(data, tool))
    source = SourceText(data, tool)
    told = extent(source)
    noun = source.format.shape(source).noun
    assert told.startswith(noun[:40])
    assert len(said.encode()) <= 700
    shown = outline(data, 400, tool_name=tool)
    assert len(shown.encode()) <= 400
    assert source.format.kind in (Kind.CODE, Kind.TEXT) or shown == "" or f"({source.format.kind}" in shown
    structure(None, data)
    passages = list(split(source))
    assert b"".join(source.data[one.start : one.end] for one in passages) == source.data
    with suppress(NotQueryable):
        assert read_value(data, tool)[0] is source.format.kind
    return said, told, source.format.kind


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_described_alike_and_raises_nothing(name: str) -> None:
    wrapped = ("cat -n", "block", "file")
    few = wrapped[list(BAD).index(name) % 3 :][:1]
    for wrap in ("plain", *(wrapped if FULL else few)):
        data = WRAPS[wrap](BAD[name]).encode("utf-8", "replace")
        began = time.thread_time()
        describe_all(data)
        # All describers, passages and the value together take at most 0.2 s.
        assert time.thread_time() - began < 1.5, wrap


@pytest.mark.parametrize("name", SHAPES)
def test_a_text_that_is_cut_anywhere_is_described_alike(name: str) -> None:
    data = SHAPES[name][0].encode()
    for share in (0.1, 0.35, 0.5, 0.77, 0.98):
        describe_all(data[: int(len(data) * share)])


def test_a_name_is_never_cut_and_columns_that_do_not_fit_are_left_out() -> None:
    source = SourceText(BAD["ten thousand columns"].encode())
    said = extent(source)
    assert source.format.kind is Kind.CSV
    assert said.startswith("CSV, 2 rows, 10,000 columns: column_0, column_1, ")
    said = said.rpartition("; ")[0]
    assert said.endswith(", …")
    assert set(said.partition(": ")[2].removesuffix(", …").split(", ")) <= set(WIDE.split(","))


def test_thirty_megabytes_on_one_line_are_described_by_their_beginning() -> None:
    data = b'{"rows": [' + b'{"id": 1, "name": "a b c"}, ' * 1_200_000 + b"{}]}"
    assert len(data) > 33_000_000
    began = time.thread_time()
    tracemalloc.start()
    said = sketch(source_of(data[:16_384], data[-4096:], len(data), 1))
    assert said.startswith('JSON {rows: [{id: 1, name: "a b c"}, …]}')
    # A handle message is written while the whole result may be anywhere but in memory.
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    source = SourceText(data)
    assert extent(source).endswith("; 33,600,014 bytes in 1 line")
    assert len(outline(data, 400).encode()) <= 400
    assert tracemalloc.get_traced_memory()[1] < len(data) // 2
    tracemalloc.stop()
    assert time.thread_time() - began < 11
