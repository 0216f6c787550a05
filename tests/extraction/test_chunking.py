import csv
import io
import json

import pytest
from acting import stored_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from content.kind import Kind
from content.source_text import SourceText
from content.tokens import load_encoding
from domain.extraction import ByteRange
from extraction.asked_bytes import AskedBytes
from extraction.full_chunked.chunking import halves, plan, with_lines
from extraction.prompts import Part
from tests.counts import count

pytestmark = pytest.mark.anyio

COUNT = load_encoding("o200k_base").count

TEXTS = {
    "json": json.dumps([{"id": n, "name": f"Ann é {n}", "tags": ["a, b", "c"]} for n in range(900)]),
    "pretty json": json.dumps({f"k{n}": {"a": [n, n + 1], "b": "x"} for n in range(600)}, indent=2),
    "ndjson": "".join(json.dumps({"id": n, "text": "two\nlines"}) + "\n" for n in range(900)),
    "log": "".join(f"2024-05-01 10:{n % 60:02}:00 ERROR no {n}\n  at a.b\n  at c.d\n" for n in range(700)),
    "prose": "".join(f"Sentence {n} is here. " + "\n\n" * (n % 9 == 0) for n in range(1500)),
    "windows": "".join(f"{n} windows line\r\n" for n in range(1500)),
    "chinese": "数据是数据，不是命令。" * 1500,
    "no break": "0123456789abcdef" * 1500,
    "emoji": "😀" * 4000,
}
every_text = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())


class Watched(AskedBytes):
    """Knows how many bytes were read of it."""

    taken = 0

    async def read(self, start: int, end: int) -> bytes:
        data = await super().read(start, end)
        self.taken += len(data)
        return data


async def source_of(text: str, *ranges: ByteRange) -> Watched:
    return Watched(*await stored_text(text, COUNT(text)), ranges)


def table(rows: int) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        [["id", "name", "text"], *([n, f"Ann {n}", 'two\nlines, "so"'] for n in range(rows))]
    )
    return out.getvalue()


async def read(asked: AskedBytes, chunk: Part) -> bytes:
    return await asked.read(chunk.read_from, chunk.end)


def assert_covers(chunks: list[Part], start: int, end: int) -> None:
    assert [chunk.start for chunk in chunks] == [start, *(chunk.end for chunk in chunks[:-1])]
    assert chunks[-1].end == end
    assert all(chunk.start < chunk.end and chunk.read_from >= 0 for chunk in chunks)


@every_text
@pytest.mark.parametrize("percent", [0, 10, 50])
async def test_chunks_are_balanced_overlap_as_asked_and_fit_their_budget(text: str, percent: int) -> None:
    source = await source_of(text)
    kind = SourceText(text.encode()).format.kind
    chunks = await plan(source, kind, 2000, percent)
    assert len(chunks) > 2
    assert [chunk.number for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert_covers(chunks, 0, source.size)
    own = [chunk.end - chunk.start for chunk in chunks]
    assert max(own) <= 1.25 * min(own)
    for chunk in chunks:
        assert COUNT((await read(source, chunk)).decode()) <= 2000
    average = sum(own) / len(own)
    asked = average * percent / (100 - percent)
    for chunk in chunks[1:]:
        assert min(asked, chunk.start) - 0.06 * average <= chunk.overlap < asked + 4
    assert await plan(source, kind, 2000, percent) == chunks


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(min_size=1, max_size=60) | st.text('aé漢😀\r\n ,"{}[]', min_size=1, max_size=60),
    st.integers(1, count(12, 40)),
    st.integers(1, 60),
    st.integers(0, 50),
    st.sampled_from([*Kind]),
)
async def test_any_text_is_covered_and_no_character_cut(
    piece: str, times: int, budget: int, percent: int, kind: Kind
) -> None:
    source = await source_of(piece * times)
    chunks = await plan(source, kind, budget, percent)
    assert_covers(chunks, 0, source.size)
    for chunk in chunks:
        assert (await read(source, chunk)).decode()
        for place in (chunk.read_from, chunk.start):
            assert await source.read(max(0, place - 1), place + 1) != b"\r\n"


async def test_what_fits_is_one_chunk_and_what_is_empty_none() -> None:
    source = await source_of("a few words\n" * 10)
    assert await plan(source, Kind.TEXT, COUNT("a few words\n" * 10), 10) == [Part(1, 1, 0, source.size)]
    assert await plan(await source_of(""), Kind.TEXT, 100, 10) == []


async def test_records_stay_whole() -> None:
    starts = {"json": b'{"id"', "ndjson": b'{"id"', "pretty json": b'  "k', "log": b"2024", "windows": b""}
    for name, start in starts.items():
        source = await source_of(TEXTS[name])
        for chunk in (await plan(source, SourceText(TEXTS[name].encode()).format.kind, 2000, 10))[1:]:
            found = await source.read(chunk.start - 1, chunk.end)
            assert found[1:].strip(b" " if name == "json" else b"").startswith(start)
            assert found[:1] == (b"," if name == "json" else b"\n")


async def test_rows_of_a_table_stay_whole() -> None:
    text = table(900)
    source = await source_of(text)
    chunks = await plan(source, Kind.CSV, 2000, 10)
    rows = [row for chunk in chunks for row in csv.reader(io.StringIO(text[chunk.start : chunk.end]))]
    assert rows == list(csv.reader(io.StringIO(text)))
    assert len(chunks) > 5


async def test_only_ranges_that_are_asked_about_are_cut() -> None:
    text = TEXTS["log"]
    source = await source_of(text, ByteRange(1000, 9000), ByteRange(20_000, 29_000))
    chunks = await plan(source, Kind.LOG, 2000, 10)
    assert 1 < len(chunks) < 9
    assert_covers(chunks, 0, 17_000)


async def test_a_long_line_is_cut_between_its_records_with_little_reading() -> None:
    text = json.dumps([{"id": n, "name": f"n{n}", "more": {"tags": ["a, b", "c"]}} for n in range(60_000)])
    store, stored = await stored_text(text, len(text) // 3)
    source = Watched(store, stored)
    chunks = await plan(source, Kind.JSON, 100_000, 10)
    assert len(text) > 3_800_000
    assert 10 < len(chunks) < 20
    assert all([(await source.read(chunk.start, chunk.start + 7)) == b' {"id":' for chunk in chunks[1:]])
    assert source.taken < source.size / 4


@every_text
@pytest.mark.parametrize("percent", [0, 10, 50])
async def test_halves_are_the_same_bytes_in_two_smaller_reads(text: str, percent: int) -> None:
    source = await source_of(text)
    kind = SourceText(text.encode()).format.kind
    for chunk in await plan(source, kind, 2000, percent):
        both = await halves(source, kind, chunk, percent)
        assert_covers(both, chunk.start, chunk.end)
        assert {half.number for half in both} == {chunk.number}
        whole = chunk.end - chunk.read_from
        assert all(half.end - half.read_from < 0.75 * whole for half in both)
        assert both[0].overlap <= chunk.overlap
        for half in both:
            (await read(source, half)).decode()


async def test_halving_comes_to_an_end() -> None:
    source = await source_of(TEXTS["emoji"])
    chunks, rounds = await plan(source, Kind.TEXT, 10_000_000, 10), 0
    while chunks:
        rounds += 1
        chunks = [half for chunk in chunks for half in await halves(source, Kind.TEXT, chunk, 10)]
    assert rounds == 5


@given(st.text("a\n", max_size=200), st.integers(1, 20))
async def test_every_chunk_knows_its_lines(text: str, budget: int) -> None:
    source = await source_of(text)
    chunks = await plan(source, Kind.TEXT, budget, 10)
    expected = [
        (1 + text.count("\n", 0, chunk.start), 1 + text.count("\n", 0, chunk.end - 1)) for chunk in chunks
    ]
    first = expected[1][0] if chunks[1:] else 1
    found = await with_lines(source, chunks), await with_lines(source, chunks[1:], first)
    lines = [[(chunk.first_line, chunk.last_line) for chunk in some] for some in found]
    assert lines == [expected, expected[1:]]
