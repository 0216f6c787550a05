import json
import re
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest
from acting import stored_text
from hypothesis import given
from hypothesis import strategies as st

from content.kind import Kind
from content.tokens import load_encoding
from domain.extraction import UnreadRange
from domain.llm import Message, Role, ToolSpec
from extraction import prompts
from extraction.prompts import (
    NOTHING_FOUND,
    Document,
    Finding,
    Part,
    closing,
    fenced,
    inside,
    neutralised,
    opening,
    outside,
)
from extraction.reports import parse_report

NONCE = "4be1c07a99d2f365"
DOCUMENT = Document("read_log", '{"path": "/var/log/ü.log"}', 123_456, 2_345, 33_000, "log")
PART = Part(2, 7, 1000, 2000, 40, 80)
ASKED = 'Which errors mention "db timeout"?'
GAP = UnreadRange(70, 90, "the model timed out")

Build = Callable[[Document, str], tuple[Message, ...]]
ALL: dict[str, Build] = {
    "chunk": lambda about, asked: prompts.chunk_prompt(about, asked, "a line\n", PART, NONCE, 12_288),
    "reduce": lambda about, asked: prompts.reduce_prompt(
        about, asked, [Finding(PART, "one"), Finding(PART, "two")], [GAP], NONCE, 12_288
    ),
    "read-grep": lambda about, asked: prompts.read_grep_prompt(about, asked, NONCE, 12_288, 15, 10),
}
every_prompt = pytest.mark.parametrize("prompt", ALL.values(), ids=ALL.keys())

NONCES = st.text("0123456789abcdefABCDEFxyz_- ", max_size=20)
GAPS = st.text(" \t\n\r\u00a0\u200b", max_size=3)
LOOKALIKES = st.builds(
    lambda before, slash, after, name: f"<{before}{slash}{after}{name}>",
    GAPS,
    st.sampled_from(["", "/"]),
    GAPS,
    st.one_of(
        NONCES.map(lambda nonce: f"ai-agent-{nonce}-FINAL"),
        NONCES.map(lambda nonce: f'Ai-Agent-{nonce}-final format="text"'),
        NONCES.map(lambda nonce: f"spillgate-data-{nonce}"),
        NONCES.map(lambda nonce: f"SPILLGATE-instruction-{nonce}"),
        st.just(opening(NONCE)[1:-1]),
        st.just(closing(NONCE)[1:-1]),
        st.just(fenced("data", "", NONCE).split("\n")[0][1:-1]),
        st.just(fenced("data", "", NONCE).split("\n")[-1][1:-1]),
    ),
)
HOSTILE = st.lists(LOOKALIKES | st.text("<>/ai-gentFNLspd\n \"'", max_size=12), max_size=8).map("".join)


def said(messages: tuple[Message, ...]) -> str:
    return messages[-1].content


@every_prompt
def test_every_prompt_says_what_is_asked_of_what_before_and_after_the_data(prompt: Build) -> None:
    system, user = prompt(DOCUMENT, ASKED)
    assert (system.role, user.role) == (Role.SYSTEM, Role.USER)
    assert NOTHING_FOUND in system.content
    assert inside("instruction", user.content) == [ASKED, ASKED]
    assert inside("arguments", user.content) == [DOCUMENT.tool_arguments]
    for words in ("read_log", "log", "123,456 bytes", "2,345 lines", "33,000 tokens", "at most 12,288 bytes"):
        assert words in outside(user.content)
    assert user.content.rindex("</spillgate-instruction") < user.content.rindex(opening(NONCE))
    assert opening(NONCE) + "\nthe report\n" + closing(NONCE) in user.content


def test_a_chunk_is_told_its_place_and_what_it_shares_with_the_one_before() -> None:
    part = Part(2, 7, 1000, 2000, 40, 80, overlap=9)
    text = said(prompts.chunk_prompt(DOCUMENT, ASKED, "here\n", part, NONCE, 500, "vörher\n\n"))
    assert "part 2 of 7, bytes 1,000 to 2,000, lines 40 to 80" in outside(text)
    assert (inside("before", text), inside("data", text)) == (["vörher\n\n"], ["here\n"])
    assert text.index("</spillgate-data") < text.rindex("<spillgate-instruction")
    alone = said(prompts.chunk_prompt(DOCUMENT, ASKED, "all\n", Part(1, 1, 0, 4, 1, 1), NONCE, 500))
    assert "all of it" in outside(alone)
    assert inside("before", alone) == []
    assert "does not overlap" in outside(said(ALL["chunk"](DOCUMENT, ASKED)))


@pytest.mark.parametrize("line", ["an ordinary line of a log\n", "обычная строка\n", "😀 "])
def test_building_a_prompt_makes_no_more_than_one_copy_of_the_data(line: str) -> None:
    data = line * (1_000_000 // len(line))
    tracemalloc.start()
    try:
        messages = prompts.chunk_prompt(DOCUMENT, ASKED, data, PART, NONCE, 500, "before\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * sys.getsizeof(said(messages))


def test_a_later_part_of_a_table_is_told_the_names_of_its_columns() -> None:
    table = Document("sql", None, 100, 9, 30, "csv", header="id,name")
    assert inside("header", said(ALL["chunk"](table, ASKED))) == ["id,name"]
    first = prompts.chunk_prompt(table, ASKED, "id,name\n1,a\n", Part(1, 2, 0, 12, 1, 2), NONCE, 500)
    assert inside("header", said(first)) == []


def test_a_reduce_sees_every_finding_with_its_place_and_every_gap() -> None:
    text = said(ALL["reduce"](DOCUMENT, ASKED))
    assert inside("finding", text) == ["one", "two"]
    assert text.count("part 2 of 7, bytes 1,000 to 2,000, lines 40 to 80>") == 2
    assert "bytes 70 to 90: the model timed out" in outside(text)
    assert "not read" not in said(prompts.reduce_prompt(DOCUMENT, ASKED, [], [], NONCE, 500))


@pytest.mark.parametrize("message", [prompts.read_grep_last_turn(NONCE), prompts.ask_again(NONCE)])
def test_the_report_is_asked_for_again_in_the_same_wrapper(message: Message) -> None:
    assert message.role is Role.USER
    assert parse_report(message.content, NONCE) == "the report"


@pytest.mark.parametrize("tool", [prompts.READ_TOOL, prompts.GREP_TOOL])
def test_a_tool_has_a_strict_schema(tool: ToolSpec) -> None:
    schema = json.loads(tool.parameters)
    assert schema["additionalProperties"] is False
    assert schema["required"] == list(schema["properties"])
    assert all(given["description"] for given in schema["properties"].values())


def test_long_arguments_are_cut_between_characters_and_say_so() -> None:
    document = Document("fetch", "ü" * 9000, 1, 1, 1, "text")
    (shown,) = inside("arguments", said(ALL["chunk"](document, ASKED)))
    assert shown == "ü" * 8192 + "\n[1,616 more bytes]"


@pytest.mark.anyio
async def test_arguments_are_whole_up_to_16_kib_and_less_in_a_small_window() -> None:
    for size, window, shown in ((16_384, 32_768, 16_384), (16_384, 8_000, 4_096), (9_000, 20_000, 9_000)):
        _, stored = await stored_text("text")
        document = prompts.about(replace(stored, tool_arguments="x" * size), "text", window=window)
        (text,) = inside("arguments", said(ALL["chunk"](document, ASKED)))
        assert text.count("x") == shown


@every_prompt
@given(hostile=HOSTILE)
def test_nothing_foreign_closes_a_fence_or_passes_for_a_report(prompt: Build, hostile: str) -> None:
    plain = outside(said(prompt(Document("x", "x", 1, 1, 1, "csv", header="x"), "x")))
    text = said(prompt(Document(hostile, hostile, 1, 1, 1, "csv", header=hostile or "x"), hostile))
    assert parse_report(text, NONCE) == "the report"
    assert len(re.findall(r"<\s*/?\s*ai-agent-.*?FINAL", text)) == 2
    assert outside(text).split("\n")[1:] == plain.split("\n")[1:]


@given(hostile=HOSTILE)
def test_foreign_text_stays_inside_its_fence(hostile: str) -> None:
    data = prompts.chunk_prompt(DOCUMENT, ASKED, hostile, PART, NONCE, 500)
    found = prompts.reduce_prompt(
        DOCUMENT, ASKED, [Finding(PART, hostile)], [UnreadRange(1, 2, hostile)], NONCE, 500
    )
    assert inside("data", said(data)) == [neutralised(hostile)]
    assert inside("finding", said(found)) == [neutralised(hostile)]
    assert inside("data", fenced("data", hostile, NONCE)) == [neutralised(hostile)]
    assert parse_report(said(found), NONCE) == "the report"


@given(hostile=HOSTILE, nonce=NONCES.filter(bool))
def test_what_is_neutralised_holds_no_fence_and_no_wrapper(hostile: str, nonce: str) -> None:
    safe = neutralised(hostile)
    assert parse_report(neutralised(f"{hostile}{opening(nonce)}{hostile}"), nonce) is None
    assert "<spillgate" not in "".join(safe.lower().split())
    assert inside("data", safe) == []
    assert neutralised(safe) == safe
    assert safe.replace("‹", "<") == hostile.replace("‹", "<")


@given(st.text("<>/abc &;\n-‹") | st.text())
def test_text_without_lookalikes_stays_as_it_is(text: str) -> None:
    assert neutralised(text) is text


@pytest.mark.parametrize(
    "text", ["<ai-agent-card>", "<data-table>", "</html>", "a < b", "<spill>", "ai-agent-x-FINAL"]
)
def test_ordinary_tags_are_no_lookalikes(text: str) -> None:
    assert neutralised(text) == text


@pytest.mark.parametrize(
    "piece", ["<", "< ", "</", "<ai-agent-", "<ai-agent-final", "fina", "<spillgate-", " "]
)
def test_much_of_anything_is_neutralised_in_no_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    started = time.process_time()
    neutralised(text)
    neutralised("<ai-agent-" + text)
    assert time.process_time() - started < 0.3


def test_the_overhead_is_about_what_a_prompt_has_without_its_data() -> None:
    count = load_encoding("o200k_base").count
    whole = prompts.chunk_prompt(DOCUMENT, ASKED, "", PART, NONCE, 12_288)
    tokens = sum(count(message.content) for message in whole)
    assert 0 <= count(prompts.overhead(DOCUMENT, ASKED)) - tokens < 150


@pytest.mark.anyio
async def test_a_document_is_described_by_what_is_stored() -> None:
    _, stored = await stored_text("id,name\r\n1,Ann\r\n2,Bo\r\n")
    table = prompts.about(stored, Kind.CSV, b"id,name\r\n1,Ann\r\n")
    assert (table.tool_name, table.kind, table.bytes, table.lines) == ("journal", "csv", 22, 4)
    assert table.header == "id,name"
    assert prompts.about(stored, Kind.CSV, b"1,Ann\r\n", excerpt=True).header == ""
    assert prompts.about(stored, Kind.LOG, b"id,name\r\n").header == ""
    excerpt = prompts.about(stored, Kind.CSV, b"1,Ann\r\n", excerpt=True)
    assert "excerpt" in outside(said(ALL["chunk"](excerpt, ASKED)))
