"""Answers of the model's tools that end the question: each complaint of a model that asked, over HTTP."""

import json
import re

import httpx
import pytest

from tests.app.answering.test_tool_calls import call, keep, text_of

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def client(shared_client: httpx.AsyncClient) -> httpx.AsyncClient:
    return shared_client


GREP = "tool_output_grep"
WORDS = ("amber", "birch", "cedar", "delta", "ember")
FILLER = "".join(
    f"{n:05} {WORDS[n % 5]} {n * 7919 % 1009} nothing of note was said here\n" for n in range(2000)
)


async def asked(client: httpx.AsyncClient, handle: str, extract: str) -> str:
    """The body of an answer of tool_output, without its frame."""
    told = await call(client, "tool_output", handle=handle, extract=extract)
    assert told["text"].startswith("ABSTRACT FROM TOOL OUTPUT t WITH HANDLE ")
    return str(told["text"]).partition("\n\n")[2]


async def test_one_passage_that_answers_is_all_that_is_shown(client: httpx.AsyncClient) -> None:
    text = FILLER.replace("00900 amber", "00900 The retention of the archive is ninety days. amber")
    text = text.replace("01200 amber", "01200 The signal to start the debugger is USR1. amber")
    handle = await keep(client, text)
    body = await asked(client, handle, "What is the retention of the archive?")
    assert re.search(r"\n\[1 of [\d,]+ passages; “retention” is in 1 line\.\]\n", body)
    assert len(body.encode()) < 700
    # A word for a beginning or an end shows neither.
    other = await asked(client, handle, "Which signal starts the debugger in the end?")
    for shown, answer in ((body, "ninety days"), (other, "USR1")):
        assert answer in shown
        assert "00000 " not in shown
        assert "01999 " not in shown


async def test_a_repeated_passage_is_shown_once(client: httpx.AsyncClient) -> None:
    headline = "<h2>Ferry fares rise in spring</h2>\n<p>Fares of the ferry rise by a tenth.</p>\n"
    text = "<html><body>\n" + "<p>Nothing at all is said here.</p>\n" * 400 + headline + "</body></html>"
    body = await asked(client, await keep(client, text), "by how much do ferry fares rise")
    assert body.count("Ferry fares rise in spring") <= 2  # In the path, and in the heading itself.
    assert body.count("rise by a tenth") == 1


@pytest.mark.parametrize("size", [1, 8])
async def test_nothing_found_is_at_most_1300_bytes_whatever_the_size(
    client: httpx.AsyncClient, size: int
) -> None:
    rows = [
        {"name": f"row {n}", "city": "Ghent", "price": n, "note": "plain " * 9} for n in range(200 * size)
    ]
    for text in (FILLER * size, json.dumps(rows), "short lines\n" * 1100):
        handle = await keep(client, text)
        for told in (
            await call(client, "tool_output", handle=handle, extract="volcano eruption Reykjavik"),
            await call(client, GREP, handle=handle, pattern="volcano|eruption|Reykjavik"),
        ):
            assert len(told["text"].encode()) <= 1300
        answer = await client.post("/extract", json={"handle": handle, "extract": "volcano eruption"})
        assert "NO RELEVANT DATA FOUND" in answer.json()["text"]
        assert len(answer.json()["text"].encode()) <= 1300


async def test_a_long_line_is_shown_around_its_matches(client: httpx.AsyncClient) -> None:
    line = "x" * 900 + "\x07\x1b[31mserial\x1b[0m \x00number 4711 " + "y" * 900
    handle = await keep(client, FILLER + line + "\n")
    text = await text_of(client, GREP, handle=handle, pattern="number 47", context=0)
    shown = next(one for one in text.splitlines() if one.startswith("2001: "))
    assert shown.startswith("2001: … ")
    assert shown.endswith(" …")
    assert "serial number 4711 yyy" in shown
    assert len(shown) < 290
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


async def test_several_matches_in_a_long_line_are_shown_and_the_rest_is_counted(
    client: httpx.AsyncClient,
) -> None:
    line = "".join(f"{'z' * 500} item{n} " for n in range(3)) + "item3 " * 4
    text = await text_of(client, GREP, handle=await keep(client, FILLER + line + "\n"), pattern=r"item\d")
    for number in range(3):
        assert f"item{number}" in text
    assert "(+4 in this line)" in text


async def test_blank_lines_of_context_are_shown_once(client: httpx.AsyncClient) -> None:
    text = FILLER + "\n\n\n\n\nthe needle\n\n\n\n\n" + FILLER
    found = await text_of(client, GREP, handle=await keep(client, text), pattern="needle", context=4)
    assert re.findall(r"^\d+[:-] ?.*$", found, re.MULTILINE) == ["2006: the needle"]


PAGE = (
    "<!DOCTYPE html><html><head><title>Ferries</title>\n"
    "<style>\n.fare { color: red }\n</style></head><body>\n"
    + "<p class='x'>Nothing is said here at all.</p>\n" * 400
    + "<div class='fare'><b>Fare</b> to "
    + "<a href='/pisa?fare=1'>Pisa&nbsp;&amp;&nbsp;Lucca</a>: 12&euro;</div>\n"
    + "<script>\nvar fare = 12;\n</script></body></html>\n"
)


async def test_a_search_of_a_page_shows_its_text_and_leaves_out_tags_styles_and_scripts(
    client: httpx.AsyncClient,
) -> None:
    handle = await keep(client, PAGE)
    found = await text_of(client, GREP, handle=handle, pattern="[Ff]are")
    assert "405: Fare to Pisa\u00a0&\u00a0Lucca </pisa?fare=1>: 12€" in found
    assert found.endswith("[The only matching line.]")
    assert "<b" not in found
    assert "<a" not in found
    markup = await text_of(client, GREP, handle=handle, pattern=r"fare=\d")
    assert "href='/pisa?fare=1'" in markup
    assert "Only the markup of the page matches, not its text." in markup
    answer = await asked(client, handle, "fare")
    assert "color: red" not in answer
    assert "var fare" not in answer


async def test_rows_of_a_table_of_any_kind_are_shown_under_its_header(client: httpx.AsyncClient) -> None:
    rows = [(f"city {n}", n * 17, n * 3) for n in range(900)]
    box = "+----------+------------+-------+\n"
    boxed = f"{box}| city     | population | rank  |\n{box}" + "".join(
        f"| {city:8} | {population:10} | {rank:5} |\n" for city, population, rank in rows
    )
    lines = "".join(f"{city},{population},{rank}\n" for city, population, rank in rows)
    for text, header in (
        (boxed + box, r"^2- \| city     \| population \| rank  \|$"),
        ("city,population,rank\n" + lines, r"^1- city,population,rank$"),
    ):
        found = await text_of(client, GREP, handle=await keep(client, text), pattern=r"city 77\b")
        head = re.search(header, found, re.MULTILINE)
        assert head, found
        assert head.start() < found.index("city 77")
        assert "1309" in found


async def test_a_cell_of_a_sheet_is_shown_with_its_row(client: httpx.AsyncClient) -> None:
    cells = [
        {"address": f"{column}{row}", "value": f"{name} {row}" if row > 1 else name}
        for row in range(1, 300)
        for column, name in (("A", "name"), ("B", "price"), ("C", "stock"))
    ]
    members = {one["address"]: one["value"] for one in cells}
    lists = [[f"{name} {row}" for name in ("name", "price", "stock")] for row in range(900)]
    for value in (cells, {"cells": cells}, members, lists):
        for indent in (None, 2):
            handle = await keep(client, json.dumps(value, indent=indent))
            found = await text_of(client, GREP, handle=handle, pattern=r"price 77\b")
            shown = next(line for line in found.splitlines() if "price 77" in line)
            assert "name 77" in shown
            assert "stock 77" in shown
            assert "name 78" not in shown
    text = "".join(f"{one['address']}: {one['value']}\n" for one in cells * 3)
    found = await text_of(client, GREP, handle=await keep(client, text), pattern=r"price 77\b")
    assert "A77: name 77 | B77: price 77 | C77: stock 77" in found


async def test_a_match_in_json_is_shown_with_its_record_once(client: httpx.AsyncClient) -> None:
    rows = [{"id": n, "city": f"city {n}", "where": {"town": f"city {n}", "zip": n}} for n in range(900)]
    for indent in (None, 1):
        handle = await keep(client, json.dumps({"rows": rows}, indent=indent))
        found = await text_of(client, GREP, handle=handle, pattern=r"city 321\b")
        assert found.count('"id": 321') == 1
        assert '"zip": 321' in found
        assert found.endswith("[All 2 matching lines.]")


async def test_one_match_has_two_lines_on_each_side_and_is_said_to_be_the_only_one(
    client: httpx.AsyncClient,
) -> None:
    handle = await keep(client, FILLER)
    found = await text_of(client, GREP, handle=handle, pattern="^00777 ")
    assert [line[:5] for line in found.splitlines()] == ["776- ", "777- ", "778: ", "779- ", "780- ", "[The "]
    assert found.endswith("[The only matching line.]")
    two = await text_of(client, GREP, handle=handle, pattern="^0077[78] ")
    assert two.endswith("[All 2 matching lines.]")


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("第{n}次航班从青岛出发，准时到达烟台，一切正常。\n", "航班 从哪里出发？ flight departure price"),
        ("東京の天気は晴れ、気温は{n}度です。風は弱い。\n", "東京 天気 temperature"),
        ("서울의 날씨는 맑고 기온은 {n}도 입니다. 바람은 약합니다.\n", "서울 날씨 temperature"),
    ],
)
async def test_words_of_scripts_without_spaces_that_stand_in_the_data_count_as_found(
    client: httpx.AsyncClient, text: str, question: str
) -> None:
    data = "".join(text.replace("{n}", str(n)) for n in range(600))
    body = await asked(client, await keep(client, data), question)
    absent = re.match(r"Nowhere in the data: ([^\n.]*)\.", body)
    assert absent is None or absent[1].isascii()


async def test_two_things_that_are_asked_for_by_name_are_both_shown(client: httpx.AsyncClient) -> None:
    text = FILLER.replace("00300 amber", "00300 port-7 is closed").replace(
        "01700 amber", "01700 port-9 is open"
    )
    body = await asked(client, await keep(client, text), "state of port-7 and port-9")
    assert "port-7 is closed" in body
    assert "port-9 is open" in body


CODE = (
    "import os\n\n\n"
    + "".join(f"def helper_{n}(value):\n    return value + {n}\n\n\n" for n in range(300))
    + "class Parser:\n    def read_header(self, line):\n"
    + "        # nothing to see\n" * 40
    + "        if line == '%s: %d' % (self.name, 7):\n            self.on->bar()\n"
    + "            raise TypeError\n\n"
    + "".join(f"def other_{n}(value):\n    return value - {n}\n\n\n" for n in range(300))
)


async def test_a_quoted_text_with_signs_is_searched_for_as_it_is_written(client: httpx.AsyncClient) -> None:
    for quoted in ('"self.on->bar()"', '"SELF.ON->bar()"', "`'%s: %d' %`"):
        handle = await keep(client, CODE)
        body = await asked(client, handle, f"what calls {quoted}?")
        assert "self.on->bar()" in body
        assert f"“{quoted[1:-1]}” is in 1 line.]" in body
    absent = await asked(client, handle, 'What does "self.on<-bar()" return in Parser?')
    assert absent.startswith("Nowhere in the data: self.on<-bar()")
    nothing = await asked(client, handle, 'What does "zeta<-omega()" mean?')
    assert nothing.startswith("NO RELEVANT DATA FOUND\nNowhere in the data: zeta<-omega()")


async def test_a_passage_of_code_is_shown_under_the_line_of_its_function(client: httpx.AsyncClient) -> None:
    body = await asked(client, await keep(client, CODE), "where is TypeError raised")
    assert re.search(r"\[lines \d+-\d+ under line 1205 ", body)
    assert "    def read_header(self, line):\n…\n" in body
    assert "raise TypeError" in body


async def test_two_questions_in_one_are_both_answered(client: httpx.AsyncClient) -> None:
    rows = "".join(f"{WORDS[n % 5]}-{n}   1.{n}.0   wheel\n" for n in range(900))
    table = f"NAME   VERSION   KIND\n{rows}"
    for question in (
        "What version is amber-700 and which kind is birch-801?",
        "versions of amber-700 and birch-801",
    ):
        body = await asked(client, await keep(client, table), question)
        assert "1.700.0" in body
        assert "1.801.0" in body


async def test_an_answer_from_a_page_is_its_text(
    client: httpx.AsyncClient,
) -> None:
    handle = await keep(client, PAGE)
    answer = await asked(client, handle, "fare to Pisa and Lucca")
    assert "Fare to Pisa & Lucca: 12€" in answer
    assert "var fare" not in answer
    assert "<" not in answer
