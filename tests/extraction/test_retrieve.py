"""retrieve: the passages that answer, verbatim, within the cap; and what is said when there are none."""

import asyncio
import json
import re
import threading
from dataclasses import replace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from content.formats.binary import is_binary, opaque
from content.passages import split
from content.source_text import SourceText
from domain.extraction import Answer, ByteRange, ExtractStatus, Mode, UnreadRange
from extraction import ladder, passage_index
from extraction.asked_bytes import AskedBytes
from extraction.index_cache import IndexCache
from extraction.passage_index import PassageIndex, Stopped
from extraction.retrieve import strategy as retrieve
from extraction.retrieve.excerpts import Excerpts
from extraction.task import StrategyFailed
from tests.extraction.acting import stored_text, task_of

pytestmark = pytest.mark.anyio

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")
FILLER = "".join(
    f"{n:05} {WORDS[n % 10]} {WORDS[n // 10 % 10]} {WORDS[n // 100 % 10]} did nothing of note\n"
    for n in range(3000)
)


def with_needle(needle: str, line: int = 2000) -> str:
    lines = FILLER.splitlines(keepends=True)
    return "".join((*lines[:line], needle + "\n", *lines[line:]))


async def asked(text: str, extract: str, max_bytes: int = 4000, ranges: tuple[ByteRange, ...] = ()) -> Answer:
    return await retrieve.answer(
        await task_of(text, None, extract=extract, max_bytes=max_bytes, ranges=ranges)
    )


FOUND = [
    ("the negotiation with the peer failed", "Why did negotiating fail?"),
    ("getUserName returned null", "get user name"),
    ("see getUserName there", "What does `getUserName` say?"),
    ("user_name=anna", "the userName"),
    ("redis 7.0.15 server", "Which release of Redis is running?"),
    ("Straße nach Köln", "koln"),
    ("score 0.4413 at iteration 27", "score 0.4413"),
    ("shard-7 in 122 ms", "partition shard-7"),
    ("connection timed out", "connection refused|connection timed out|broken pipe"),
    ("price: 12.50", "the price"),
    ("青岛北 -> 烟台 历时：01:05", "从青岛北到烟台多长时间？"),
    ("東京都の天気は晴れ", "東京の天気"),
    ("서울에서 부산까지 두 시간", "부산까지 얼마나"),
    ("Москва: снег", "москва"),
    (r'{"log": "first\nneedle here\tand"}', "needle"),
    (r'{"name": "caf\u00e9 central"}', "café"),
    ('quoted "exactly these words" here', 'find "exactly these words"'),
    ("ratio=50% of [x] (y) * {z}", "ratio 50% [x] (y) * {z} \" ' NEAR AND OR NOT"),
]


@pytest.mark.parametrize(("needle", "extract"), FOUND)
async def test_what_is_asked_for_is_found(needle: str, extract: str) -> None:
    answer = await asked(with_needle(needle), extract)
    assert needle in answer.body
    assert (answer.strategy, answer.status) == (Mode.RETRIEVE, ExtractStatus.COMPLETE)
    assert answer.coverage.ratio == 1
    assert 1 < answer.coverage.chunks_ok == answer.coverage.chunks_total


HEAD = re.compile(r"^\[lines? (\d+)(?:-(\d+))?\]\n(.*?)(?=^\[)", re.MULTILINE | re.DOTALL)


async def test_the_best_passage_comes_first_each_under_its_lines() -> None:
    lines = with_needle(
        "a first needle is in a haystack, or so it was said by all of those who were there", 500
    )
    lines = lines.splitlines()
    lines[1500] = "a second needle is in the haystack"
    body = (await asked("\n".join(lines), "Which needles are in the haystack?")).body
    assert body.index("a second needle") < body.index("a first needle")
    heads = HEAD.findall(body)
    assert len(heads) >= 2
    for first, last, shown in heads:
        assert shown == "".join(f"{line}\n" for line in lines[int(first) - 1 : int(last or first)])
    tail, query = body.splitlines()[-2:]
    assert re.fullmatch(r"\[2 of [\d,]+ passages; “needl…” is in 2 lines\.\]", tail)
    assert query == "[To count, sum or compare: query over lines(line, text).]"


async def test_each_part_of_a_joined_question_has_a_passage() -> None:
    text = with_needle("the ferry to Lucca leaves at nine", 300)
    text += with_needle("a visa is valid for a year", 9)
    body = (await asked(text, "When does the ferry to Lucca leave, and how long is a visa valid?")).body
    assert "leaves at nine" in body
    assert "valid for a year" in body


async def test_a_name_in_a_list_is_shown_under_the_heading_of_the_list() -> None:
    names = ",\n".join(f"{WORDS[n % 10]}-{n}" for n in range(100))
    text = f"{FILLER}\nMembers that were admitted:\n{names}\n\n{FILLER}"
    body = (await asked(text, "kappa-79")).body
    assert re.search(r"under line 3002\]\nMembers that were admitted:\n", body), body


async def test_a_rare_word_that_the_first_passage_lacks_brings_the_passage_that_has_it() -> None:
    text = with_needle("theta theta kappa alpha beta: the alpha kappa theta of beta") + "the walrus sleeps\n"
    body = (await asked(text, "alpha, beta, kappa or theta of the walrus")).body
    assert "the walrus sleeps" in body


async def test_up_to_four_more_passages_that_hold_as_much_are_all_shown() -> None:
    lines = [f"{number:05} nothing of note was said here by anybody at any time" for number in range(900)]
    for number in range(5):
        lines[number * 150 + 60] = f"valve {number} of the pump is open"
    body = (await asked("\n".join(lines), "open valve of the pump")).body
    assert [number for number in range(5) if f"valve {number} of" in body] == [0, 1, 2, 3, 4]
    lines[850] = "valve 5 of the pump is open"
    more = (await asked("\n".join(lines) + "\n" + "\n".join(lines[:850] * 9), "open valve of the pump")).body
    assert re.search(r"; \d+ more hold as much; “open” is in 51 lines\.\]", more)


ITEMS = [{"name": f"item {n}", "price": n * 7, "note": "nothing of note " * 5} for n in range(300)]


async def test_words_in_tags_of_a_page_do_not_count() -> None:
    lines = ["<p>Nothing at all is said in here, at any time.</p>"] * 300
    lines[50] = '<p class="price ticket euro">Nothing at all is said here.</p>'
    lines[250] = "<p>The ticket for a ride on the lake with a meal has a price, to be paid in euro.</p>"
    page = "<!DOCTYPE html><html><body>" + "\n".join(lines)
    body = (await asked(page, "price of the ticket in euro")).body
    assert lines[250].removeprefix("<p>").removesuffix("</p>") in body.split("\n[")[0]


async def test_what_only_resembles_a_quoted_phrase_or_an_identifier_is_left_out() -> None:
    text = with_needle("shard test-2 rolled", 100) + with_needle("shard test-3 rolled", 2500)
    body = (await asked(text, "When was shard test-2 rolled?")).body
    assert "test-2" in body
    assert "test-3" not in body


EXACT = [
    ("shard test-2 rolled", "shard test-20 rolled", "When was shard test-2 rolled?"),
    ("order 4711 failed", "order 47110 failed", "Why did order 4711 fail?"),
    ("order 4711 failed", "order 4712 failed", "Why did order 4711 fail?"),
    ("see the quick brown fox", "see the brown quick fox", 'Where is the "Quick Brown  fox"?'),
    ("open /var/log/app.log now", "open /var/log/app.log2 now", "Who opens /var/log/app.log?"),
    ("getUserName returned null", "getUserNames returned null", "What does getUserName return?"),
    ("version 1.4.2 of it", "version 1.4.20 of it", "Where is version 1.4.2?"),
]


@pytest.mark.parametrize(("held", "alike", "extract"), EXACT)
async def test_what_is_written_exactly_is_found_without_what_is_longer(
    held: str, alike: str, extract: str
) -> None:
    lines = FILLER.splitlines(keepends=True)
    body = (
        await asked(
            "".join((*lines[:900], f"{held}\n", *lines[900:1800], f"{alike}\n", *lines[1800:])), extract
        )
    ).body
    assert held in body
    assert alike not in body


async def test_an_answer_is_seldom_longer_than_usual() -> None:
    names = ("".join(chr(ord("a") + int(digit)) for digit in str(n)) for n in range(3000))
    text = "".join(f"the disk of host {name} is full of logs\n" for name in names)
    task = await task_of(text, None, extract="full disk", max_bytes=12_000)
    usual, more = [await retrieve.answer(replace(task, usual_bytes=size)) for size in (2560, 9000)]
    assert len(usual.body.encode()) <= 2000
    assert 3000 < len(more.body.encode()) <= 9000


async def test_words_that_the_data_has_nowhere_are_named() -> None:
    body = (await asked(with_needle("the printer is offline"), "Which printer holds the invoice?")).body
    assert body.startswith("Nowhere in the data: holds, invoice.\n[lines ")
    text = "Der Zug ist nicht mit der Bahn und auch nicht für das Land.\n" * 900
    german = (await asked(text, "Zug crocodile")).body
    assert german.startswith("Nowhere in the data: crocodile. The data is mostly German: ask in German.\n")


async def test_nothing_found_says_what_there_is_instead() -> None:
    data = json.dumps({"items": ITEMS, "total": 300})
    answer = await asked(data, "population of France")
    assert answer.body.startswith("NO RELEVANT DATA FOUND\nNowhere in the data: population, France.\n")
    assert f"; items: 300 objects with keys name, price, note; {len(data):,} bytes in 1 line." in answer.body
    assert "items: array of 300" in answer.body
    assert data[:100] not in answer.body
    assert len(answer.body.encode()) <= 1100
    assert (answer.status, answer.strategy) == (ExtractStatus.COMPLETE, Mode.RETRIEVE)
    assert (answer.coverage.ratio, answer.coverage.missing) == (1.0, ())
    assert answer.coverage.chunks_ok == answer.coverage.chunks_total > 1


PNG = "iVBORw0KGgo" + "AAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ" * 300
GARBAGE = [
    (PNG, "a PNG image in base64"),
    (f"data:image/png;base64,{PNG}", "a PNG image in base64"),
    ("QmFzZTY0IGlzIG5vIHRleHQgdGhhdCBhbnlib2R5IGNvdWxkIHJlYWQ" * 90, "base64"),
]


@pytest.mark.parametrize(("data", "name"), GARBAGE)
async def test_garbage_is_named_and_not_shown(data: str, name: str) -> None:
    answer = await asked(data, "image width document stream base64")
    assert answer.body.startswith(f"NO RELEVANT DATA FOUND\nThe data ({len(data.encode())} bytes) is {name}")
    assert len(answer.body) < 300
    assert (answer.status, answer.coverage.ratio) == (ExtractStatus.PARTIAL, 0.0)
    assert answer.coverage.missing == (UnreadRange(0, len(data.encode()), "not text"),)


NOISE = "\ufffd\x01\x02\ufffda\x7f\ufffd\ufffdQx\x00" * 90
FILES = [
    (f"%PDF-1.7\n%\ufffd\ufffd\n{NOISE}", "a PDF file"),
    (f"\ufffdPNG\r\n\x1a\n{NOISE}", "a PNG image"),
    (f"PK\x03\x04\x14\x00{NOISE}", "a ZIP archive"),
    (f"\x7fELF\x02{NOISE}", "a program file"),
    (NOISE, ""),
]


@pytest.mark.parametrize(("data", "name"), FILES, ids=[name or "unknown" for _, name in FILES])
async def test_of_a_file_the_readable_parts_are_searched_and_shown(data: str, name: str) -> None:
    data += f"\x00Author\x02The author is Ada\x00\x03caf\u00e9 society\x00{NOISE}" + NOISE * 9
    answer = await asked(data, "Who is the author?")
    said = f"[The data is {name}" if name else "[Mostly binary: readable parts only.]\n"
    assert answer.body.startswith(said.removeprefix("[").removesuffix("]\n"))
    assert "ostly binary: readable parts only." in answer.body.splitlines()[0]
    assert "\nAuthor\nThe author is Ada\ncaf\u00e9 society\n" in answer.body
    assert not set(answer.body) & set("\ufffd\x00\x01\x02\x7f")
    assert answer.status is (ExtractStatus.PARTIAL if name else ExtractStatus.COMPLETE)
    if name:
        assert 0 < answer.coverage.ratio < 0.1
        assert answer.coverage.missing == (UnreadRange(0, len(data.encode()), "not text"),)
    noise = (await asked(data, "Who is the author of Qx?")).body
    assert noise.startswith("Nowhere in the data: Qx.\n")
    none = (await asked(data, "unicorns")).body
    assert none.startswith("NO RELEVANT DATA FOUND\nNowhere in the data: unicorns.\n")
    assert "\nThe readable parts begin:\n" in none
    assert none.endswith("\nAuthor\nThe author is Ada\ncaf\u00e9 society")


@pytest.mark.parametrize(
    "text",
    ["", "a" * 9000, "-" * 9000, "supercalifragilistic", "aB3" * 2700 + "!", FILLER, json.dumps(ITEMS)],
)
def test_text_is_no_garbage(text: str) -> None:
    assert opaque(text.encode()) is None


async def test_what_is_mostly_no_text_is_searched_and_said_to_be_so() -> None:
    body = (await asked("\x01\x02\x03\x04 junk\n" * 2000 + "serial: 4711\n", "serial")).body
    assert body.startswith("Mostly binary: readable parts only.\n")
    assert "serial: 4711" in body


async def test_what_fits_is_shown_whole() -> None:
    answer = await asked("just this\n", "something else")
    below = "[To count, sum or compare: query over lines(line, text).]"
    assert answer.body == f"Nowhere in the data: something.\njust this\n{below}"
    assert (answer.status, answer.coverage.ratio) == (ExtractStatus.COMPLETE, 1.0)
    tight = await asked("just this\n", "something else", max_bytes=40)
    assert tight.body == "just this\n"
    assert (await asked("", "anything")).body == "NO RELEVANT DATA FOUND\nThe data is empty."


async def test_a_word_that_is_part_of_longer_ones_is_not_told_to_be_nowhere() -> None:
    rows = "".join(f"lib{name}-{n}/stable 1.{n} amd64\n" for n in range(300) for name in ("ssl", "z"))
    body = (await asked(rows, "How many packages begin with lib?")).body
    head, _, passage = body.partition("\n")
    assert head == "Nowhere in the data: packages, begin."
    assert "libssl-0/stable" in passage
    assert body.endswith("[To count, sum or compare: query over lines(line, text).]")


async def test_of_passages_that_hold_as_much_the_first_ones_are_shown() -> None:
    lines = "".join(
        f"10:00:{n % 60:02} {'ERROR' if n % 40 == 5 else 'INFO '} job {n:03} ended\n" for n in range(900)
    )
    body = (await asked(lines, "all errors")).body
    assert "ERROR job 005 ended" in body


async def test_a_record_is_shown_to_its_end() -> None:
    item = '- listitem:\n  - link "Product {0}":\n    - /url: /p/{0}\n  - button "Add" [ref=e{0}]\n'
    body = (await asked("".join(map(item.format, range(400))), "the button of Product 277")).body
    assert 'link "Product 277"' in body
    assert "[ref=e277]" in body


async def test_where_nothing_is_found_the_columns_are_named() -> None:
    rows = "USER  PID  %MEM  RSS\n" + "".join(f"root {n:4} {n % 9:5} {n * 3:4}\n" for n in range(900))
    body = (await asked(rows, "which process uses most memory?")).body
    assert body.startswith("NO RELEVANT DATA FOUND\nNowhere in the data: process, uses, memory.\n")
    assert '\n[To count, sum or compare: query over data(USER, PID, "%MEM", RSS)' in body


async def test_only_the_ranges_asked_about_are_looked_at() -> None:
    text = with_needle("the needle", 100) + with_needle("the other needle", 2500)
    span = ByteRange(len(text) // 2, len(text))
    body = (await asked(text, "needle", ranges=(span,))).body
    assert "the other needle" in body
    assert "the needle" not in body
    head = re.search(r"\[bytes (\d+)-(\d+)[^\]\n]*\]\n(?:(?!\[).*\n)*?the other needle", body)
    assert head
    assert text.encode()[int(head[1]) : int(head[2])].decode() in body


async def test_what_is_too_large_to_hold_is_left_to_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieve, "MOST_BYTES", 1000)
    with pytest.raises(StrategyFailed, match="too many to search at once; ask about `ranges`"):
        await asked(FILLER, "needle")


async def test_without_full_text_search_the_fallback_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage_index, "_SCHEMA", "CREATE VIRTUAL TABLE passages USING fts99(body);")
    answer = await ladder.answer(await task_of(FILLER, None), Mode.AUTO)
    warning = (
        "WARNING: tool_output fallback to truncate (the full-text search of this machine's SQLite failed)."
    )
    assert answer.body.startswith(f"{warning}\n00000")


@pytest.mark.parametrize("max_bytes", [0, 1, 20, 60, 100, 150, 300, 1000, 12_000])
@pytest.mark.parametrize("extract", ["needle", "nowhere to be found"])
async def test_the_body_is_within_its_cap(max_bytes: int, extract: str) -> None:
    answer = await asked(with_needle("日本語 needle"), extract, max_bytes)
    assert len(answer.body.encode()) <= max_bytes
    if extract == "needle":
        assert answer.status is (ExtractStatus.COMPLETE if max_bytes >= 300 else ExtractStatus.PARTIAL)


TEXTS = st.text(max_size=6000) | st.lists(st.text("abc é", max_size=90), max_size=99).map("\n".join)


@given(TEXTS, st.integers(0, 3000))
def test_whatever_the_text_what_is_shown_is_its_own(text: str, max_bytes: int) -> None:
    data = text.encode("utf-8", "replace")
    asked = AskedBytes(*asyncio.run(stored_text(data.decode())))
    text_of_data = SourceText(data)
    excerpts = Excerpts(asked, text_of_data, max_bytes)
    for one in split(text_of_data):
        excerpts.add(one)
    shown = excerpts.text("")
    assert len(shown.encode()) <= max_bytes
    repeated = re.compile(r"^(.*)\n\[The same line (\d+) times\.\]$", re.MULTILINE)
    shown = repeated.sub(lambda one: "\n".join([one[1]] * int(one[2])), shown)
    for start, end in re.findall(r"^\[.*, bytes (\d+)-(\d+).*\]$", shown, re.MULTILINE):
        assert data[int(start) : int(end)].decode() in shown
    if is_binary(data) or not text_of_data.is_verbatim:
        # The readable parts are shown, or lines that a carriage return began.
        return
    lines = data.decode().split("\n")
    for first, last in re.findall(r"^\[lines? (\d+)(?:-(\d+))?[^,]*\]$", shown, re.MULTILINE):
        assert int(last or first) <= len(lines)
        assert "]\n" + "\n".join(lines[int(first) - 1 : int(last or first)]) in shown


HOSTILE = [
    "[" * 20_000,
    '{"a":' * 14_000,
    '{"a": "' + "\\" * 60_000,
    '["' + '"' * 60_000,
    "<h1>" * 17_000,
    "# a\n" * 17_000,
    "a\n" * 35_000,
    "aB" * 35_000,
    "[" + "1," * 35_000,
    "\n" * 60_000,
    "😀" * 17_000,
    "a" * 70_000,
]


QUESTIONS = ["a", '"', "\\", "(((", "*", "a|b", "[" * 300, "\x00", "x" * 60_000, "NOT NEAR("]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:8]))
async def test_hostile_text_and_questions_are_answered(text: str) -> None:
    """The index is built once for all questions."""
    task = await task_of(text, None, max_bytes=2000)
    for extract in QUESTIONS:
        answer = await retrieve.answer(replace(task, extract=extract))
        assert answer.strategy is Mode.RETRIEVE
        assert len(answer.body.encode()) <= 2000


async def test_an_index_that_nobody_waits_for_is_not_built_to_its_end() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        PassageIndex(SourceText(FILLER.encode()), stop)
    task = await task_of(FILLER * 10, None)
    with anyio.move_on_after(0.01):
        await task.indexes.of(task.asked, SourceText((FILLER * 10).encode()))
    assert task.indexes.size == 0
    assert "kappa" in (await retrieve.answer(replace(task, extract="kappa"))).body


async def test_indexes_are_kept_as_far_as_there_is_room_and_while_their_result_lives() -> None:
    store, stored = await stored_text(FILLER)
    task = await task_of(FILLER, None)
    data = SourceText(FILLER.encode())
    nothing = IndexCache(max_bytes=1000)
    await nothing.of(task.asked, data)
    assert nothing.size == 0
    one = (await IndexCache().of(task.asked, data)).size
    few = IndexCache(max_bytes=int(one * 1.5))
    await few.of(task.asked, data)
    await few.of(
        (await task_of(FILLER, None, ranges=[ByteRange(0, len(FILLER) - 1)])).asked,
        SourceText(data.data[:-1]),
    )
    assert 0 < few.size <= 1.5 * one
    await few.sweep(store)
    assert few.size > 0
    await store.delete(stored.tenant, stored.handle)
    await few.sweep(store)
    assert few.size == 0
