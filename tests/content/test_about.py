"""about: one to three lines of at most 300 bytes that tell a model how to ask."""

import io
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from content.describe import MAX_BYTES, about, source_of
from content.natural_language import may_be_in
from content.text import ABOUT_HEAD_BYTES as HEAD_BYTES
from content.text import ABOUT_TAIL_BYTES as TAIL_BYTES
from extraction.queries import Query
from extraction.query_child import Answerer

ROWS = [{"id": n, "name": f"item {n}", "price": n * 3} for n in range(248)]
LOG = "".join(
    f"2026-11-20 08:{n // 60:02}:{n % 60:02} {('INFO', 'WARN', 'ERROR')[n % 3]} request {n}\n"
    for n in range(900)
)
PAGE = "<!DOCTYPE html><html><head><title>Prices &amp; hours</title><script>let der = 'die';</script></head>"


def said(text: str, tool: str = "t", path: str | None = None) -> str:
    data = text.encode()
    return about(source_of(data, data[-TAIL_BYTES:], len(data), text.count("\n") + 1, tool, path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            json.dumps({"total": 248, "items": ROWS}),
            "JSON, object with keys total, items; items: 248 objects with keys id, name, price",
        ),
        (
            json.dumps({"meta": {"next": "x"}, "answer": {"items": ROWS}}),
            "JSON, object with keys meta, answer; answer.items: 248 objects with keys id, name, price",
        ),
        (json.dumps([1, 2, 3] * 900), "JSON, array of 2,700 numbers"),
        (
            f"{PAGE}<body>{'<p>the price of it is in the list</p>' * 90}</body>",
            "HTML page\n“Prices & hours”",
        ),
        (json.dumps(["a", "b"] * 90), "JSON, array of 180 strings"),
        (
            json.dumps({"title": "Orders of May", "rows": [1]}),
            "JSON, object with keys title, rows\n“Orders of May”",
        ),
        ("[('Rome', 12), ('Oslo', 7)]", "Python list of 2 tuples\n“[('Rome', 12), ('Oslo', 7)]”"),
    ],
)
def test_it_names_the_kind_and_the_shape(text: str, expected: str) -> None:
    assert said(text) == expected


LOST = "\ufffd"
IMAGE, ARCHIVE = "a tool that shows images", "a tool that unpacks archives"
DOCUMENT, MEDIA = "a tool that reads office documents", "a tool that plays media"
FILES = [
    ("%PDF-1.7\n1 0 obj", "PDF file", "a tool that reads PDF files"),
    (f"{LOST}PNG\r\n\x1a\n", "PNG image", IMAGE),
    ("GIF89a\x01\x00", "GIF image", IMAGE),
    (f"{LOST * 4}\x00\x10JFIF", "JPEG image", IMAGE),
    (f"RIFF\x24{LOST}\x00\x00WEBPVP8 ", "WebP image", IMAGE),
    ("II*\x00\x08", "TIFF image", IMAGE),
    ("\x00\x00\x00\x1cftypheic", "image", IMAGE),
    ("\x00\x00\x00\x20ftypisom", "sound or video", MEDIA),
    ("ID3\x04\x00", "sound or video", MEDIA),
    ("PK\x03\x04\x14\x00\x06[Content_Types].xml\x00PK\x03\x04word/document.xml", "Word document", DOCUMENT),
    ("PK\x03\x04\x14\x00\x06xl/workbook.xml", "Excel workbook", "a tool that reads spreadsheets"),
    ("PK\x03\x04\x14\x00\x06ppt/slides/slide1.xml", "PowerPoint presentation", DOCUMENT),
    ("PK\x03\x04\x14\x00\x06mimetypeapplication/epub+zip", "office document", DOCUMENT),
    ("PK\x03\x04\x14\x00\x06src/main.c", "ZIP archive", ARCHIVE),
    (f"{LOST * 2}\x11\u0871\x1a{LOST}", "old office document", DOCUMENT),
    (f"\x1f{LOST}\x08", "gzip data", ARCHIVE),
    (f"{LOST}7zXZ\x00", "archive", ARCHIVE),
    ("name.txt" + "\x00" * 249 + "ustar\x0000", "tar archive", ARCHIVE),
    ("\x7fELF\x02", "program file", "a disassembler"),
    ("SQLite format 3\x00", "SQLite database", "an SQLite client"),
    ("PAR1\x15\x04", "Parquet file", "a tool that reads Parquet files"),
    ("iVBORw0KGgo" + "AAAANSUhEUgAA" * 90, "PNG image in base64", IMAGE),
    ("UEsDBBQABgAI" + "AAAAIQAdEUgAA" * 90, "ZIP archive or an office document in base64", ARCHIVE),
    ("QmFzZTY0IGlzIG5vIHRleHQ" * 90, "base64", "a tool that decodes it"),
]


@pytest.mark.parametrize(("text", "name", "opener"), FILES, ids=[name for _, name, _ in FILES])
def test_it_names_a_file_and_what_opens_it(text: str, name: str, opener: str) -> None:
    filler = "" if "base64" in name else f"{LOST}\x00\x01" * 900
    assert said(text + filler) == f"binary: {name}; to open it, use {opener}"


def test_it_names_the_title_of_a_pdf_file() -> None:
    text = f"%PDF-1.7\n{LOST * 900}\n9 0 obj <</Title (Annual report) /Author (A)>>\n%%EOF\n"
    assert said(text).splitlines()[1] == "“Annual report”"


@pytest.mark.parametrize(
    ("page", "said_of_it"),
    [
        (
            '<html lang="de-AT"><title>Preise</title><script>var a = 1</script>',
            ["“Preise”", "mostly German: ask in German"],
        ),
        ("<html lang=en><title>Prices</title>", ["“Prices”"]),
        ("<html lang=xx><title>Prices</title>", ["“Prices”"]),
    ],
)
def test_a_page_is_in_the_language_that_it_declares(page: str, said_of_it: list[str]) -> None:
    assert said(page + "<div></div>" * 90).splitlines() == ["HTML page", *said_of_it]


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
        about(source_of(data[:9000], data[-TAIL_BYTES:], len(data), 1))
        == "JSON, array of objects with keys id, name, price"
    )


@given(st.text(max_size=3000), st.sampled_from(["", "{", "[", "<html>", "a,b\n", "# "]), st.integers(0, 9000))
def test_it_has_one_to_three_lines_within_its_bytes(text: str, start: str, more: int) -> None:
    data = (start + text).encode("utf-8", "replace")
    told = about(source_of(data, data[-TAIL_BYTES:], len(data) + more, data.count(b"\n") + 1))
    assert 0 < len(told.encode()) <= MAX_BYTES
    assert 1 <= told.count("\n") + 1 <= 3


@pytest.mark.parametrize(
    "piece",
    [
        *("<h1>", "<script", "<title", "<h1><", "<a>", "<!--", "# a\n", "[", "{", '{"a":', "[],", "a,b\n"),
        *("('", "\u4e2d", '"', " ", "\t", "\n", "-", "-" * 80 + "\n"),
    ],
)
def test_hostile_text_is_described_in_its_time(piece: str) -> None:
    """Processor time, so that a busy machine does not matter: ordinary text of this size takes 1 to 5 ms."""
    for start in ("", "<!doctype html>", "[", "<a>"):
        data = (start + piece * (HEAD_BYTES // len(piece.encode()))).encode()
        began = time.thread_time()
        about(source_of(data, data[-TAIL_BYTES:], len(data), 1))
        assert time.thread_time() - began < 1.0


@pytest.mark.parametrize(("start", "bracket"), [(b"# a\n\n", b"["), (b"<html>\n", b"<")])
def test_brackets_that_do_not_end_are_read_in_linear_time(start: bytes, bracket: bytes) -> None:
    """The text is written on the event loop. Each bracket might begin a link of Markdown or a tag."""

    def seconds(piece: bytes) -> float:
        data = start + piece * 16384
        began = time.thread_time()
        about(source_of(data, data[-TAIL_BYTES:], len(data), 1))
        return time.thread_time() - began

    assert min(seconds(bracket) for _ in range(3)) < 80 * min(seconds(b"w") for _ in range(3))


@pytest.mark.parametrize(
    ("question", "language", "expected"),
    [
        ("Wer hat den Tutor geschrieben und an welcher Universität?", "German", True),
        ("Wie speichere ich die Datei?", "German", True),
        ("Combien de temps faut-il pour le faire ?", "French", True),
        ("¿Quién escribió el tutorial?", "Spanish", True),
        ("上海", "Chinese", True),
        ("Who wrote the tutorial?", "German", False),
        ("price of a seat", "Chinese", False),
        ("", "German", False),
    ],
)
def test_a_question_that_may_be_in_the_datas_language_gets_no_hint(
    question: str, language: str, expected: bool
) -> None:
    assert may_be_in(question, language) is expected


def how(text: str) -> str:
    """How to ask, which is the last line."""
    data = text.encode()
    said = about(source_of(data, data[-TAIL_BYTES:], len(data), text.count("\n") + 1), names_arguments=True)
    assert len(said.encode()) <= MAX_BYTES
    assert said.count("\n") < 3
    return said.split("\n")[-1]


PARTS = "part(text, 'regex') p, count(*) FROM data WHERE p > ''"
UNLEVELLED = "".join(f"2026-11-24 10:00:{n % 60:02} host sshd[{n}]: opened {n}\n" for n in range(90))


CITIES = ("Rome", "Oslo", "Rome")
LIVING = [{"n": n, "who": f"name {n}", "city": CITIES[n % 3], "tags": []} for n in range(90)]


def counts(rows: str) -> str:
    query = f"SELECT {rows} GROUP BY 1"
    return f"Count, group, compare: query = {query}; a literal: pattern = …"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (json.dumps(ROWS), "name, count(*) FROM data"),
        (json.dumps([row | {"order state": "open"} for row in ROWS]), '"order state", count(*) FROM data'),
        (
            json.dumps({"total": 9, "items": [{"id": n, "type": "a"} for n in range(99)]}),
            "type, count(*) FROM data",
        ),
        ("".join(f'{{"id": {n}, "Category": "a"}}\n' for n in range(99)), "Category, count(*) FROM data"),
        ("id,name,Status\n" + "1,a,open\n" * 90, "Status, count(*) FROM data"),
        (repr([(f"city {n}", n) for n in range(90)]), "column_1, count(*) FROM data"),
        *(
            (text, "city, count(*) FROM data")
            for text in (
                "number,who,city\n" + "".join(f"{n},name {n},{CITIES[n % 3]}\n" for n in range(90)),
                json.dumps(LIVING),
                json.dumps({"items": LIVING}),
                json.dumps({"meta": {"links": [{"a": 1}]}, "answer": {"of": {"items": LIVING}}}),
                json.dumps({"meta": {"links": [{"a": 1}]}, "answer": {"items": LIVING * 400}}),
                "".join(f"{json.dumps(one)}\n" for one in LIVING),
                json.dumps(LIVING * 400)[:-1],
            )
        ),
    ],
)
def test_how_to_count_is_said_with_a_column_of_the_data(text: str, rows: str) -> None:
    assert how(text) == counts(rows)


def test_the_query_that_is_said_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extraction.query_child._bound_time", lambda seconds: None)
    for text in (json.dumps(ROWS), LOG, UNLEVELLED, "id,name,Status\n" + "1,a,open\n" * 90):
        sql = how(text).partition("query = ")[2].partition(";")[0].replace("regex", ".")
        answer = Answerer(io.BytesIO(text.encode()).read).answer(Query(sql, 2000))
        assert answer.slice.total


@pytest.mark.parametrize(
    ("text", "query", "more"),
    [
        (LOG, "level, count(*) FROM data WHERE matches(text, 'regex')", "line, text, time, level"),
        ("A sentence of prose. " * 90, PARTS, "line, text"),
        ("import os\n" * 90, PARTS, "line, text"),
        (PAGE, PARTS, "line, text"),
        (UNLEVELLED, PARTS, "line, text, time"),
    ],
)
def test_lines_are_counted_by_a_part_and_their_columns_are_named(text: str, query: str, more: str) -> None:
    order = " ORDER BY 2 DESC" if query == PARTS else ""
    said = f"query = SELECT {query} GROUP BY 1{order}; columns {more}"
    assert how(text) == f"Count, group, compare: {said}; a literal: pattern = …"


@pytest.mark.parametrize("room", [60, 100, 150])
def test_in_little_room_how_to_ask_is_left_out_before_the_language(room: int) -> None:
    text = "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему. " * 90
    data = text.encode()
    told = about(source_of(data, data, len(data), 1), room, names_arguments=True)
    assert told.splitlines()[-1] == "mostly Russian: ask in Russian"
    assert len(told.encode()) <= room


def test_the_language_of_escaped_json_is_told() -> None:
    rows = [{"n": n, "text": "Все счастливые семьи похожи друг на друга"} for n in range(90)]
    assert "mostly Russian: ask in Russian" in said(json.dumps(rows))


def test_of_what_has_no_rows_a_pattern_is_said() -> None:
    assert how(json.dumps({"a": 1})) == "Find or count a literal: pattern = …"


def test_how_to_ask_is_whole_beside_long_names_and_titles() -> None:
    rows = [{f"a long name of a column {n}": n for n in range(40)}]
    assert how(json.dumps({"title": "A title of the data " * 9, "rows": rows})).endswith("pattern = …")
    assert how("性别,城市,名称\n" + "男,青岛市,张三的商店\n" * 90).endswith("pattern = …")
