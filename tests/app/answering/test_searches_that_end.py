"""Searches that end the question: the first and the last match, lines around few, words in another order."""

import re

import httpx
import pytest

from tests.app.answering.test_tool_calls import keep, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]


@pytest.fixture(scope="module")
def client(shared_client: httpx.AsyncClient) -> httpx.AsyncClient:
    return shared_client


HAY = "nothing but hay\n" * 400
ROLLED = "".join(
    f"[2026-11-24 10:{n // 60:02}:{n % 60:02}] INFO Rolled new log segment for 'part-{n % 7}' in {n} ms\n"
    for n in range(1400)
)


async def search(client: httpx.AsyncClient, text: str, pattern: str) -> str:
    return await text_of(client, "tool_output", handle=await keep(client, text), pattern=pattern)


@pytest.mark.parametrize("pattern", ["Rolled", "part-3", "in 1?[0-9]?[0-9] ms"])
async def test_matches_fill_the_answer_in_their_order(client: httpx.AsyncClient, pattern: str) -> None:
    found = await search(client, ROLLED, pattern)
    matching = [n for n, line in enumerate(ROLLED.splitlines(), 1) if re.search(pattern, line)]
    shown = [int(line.partition(":")[0]) for line in found.splitlines() if line[:1].isdigit()]
    assert shown == matching[: len(shown)]
    assert 1000 <= len(found.encode()) <= (2500 if shown == matching else 1500)
    last = shown[-1]
    onward = (
        f"query = SELECT line, text FROM lines WHERE line > {last} AND matches(text, '{pattern}') LIMIT 40"
    )
    assert found.endswith(f" Go on with {onward}.]") == (shown != matching)
    if shown != matching:
        rest = await text_of(client, "tool_output", handle=await keep(client, ROLLED), query=onward[8:])
        assert f"\n{matching[len(shown)]} | " in rest


async def test_all_are_shown_if_that_takes_2500_bytes(client: httpx.AsyncClient) -> None:
    text = "".join(f"{n}: {'needle' if n % 40 == 0 else 'hay'} in the barn\n" for n in range(2000))
    found = await search(client, text, "needle")
    assert found.endswith("[All 50 matching lines.]")
    assert 1000 < len(found.encode()) <= 2500


async def test_lines_that_read_alike_are_shown_once_with_their_number(client: httpx.AsyncClient) -> None:
    text = "".join(f"{'retry of the pump' if n % 3 else f'pump {n % 7} is off'}\n" for n in range(900))
    found = await search(client, text, "pump")
    assert found.startswith(
        "1: pump 0 is off  [43 times: also 22, 43, 64, 85, 106, …]\n2: retry of the pump  [600"
    )
    assert found.endswith("[All 900 matching lines, 8 of them different.]")


async def test_a_heading_stands_once_above_its_matches(client: httpx.AsyncClient) -> None:
    text = "".join(f"## Part {n}\n\nA pump of part {n}.\nAnother pump.\n\n" * 1 for n in range(300))
    found = await search(client, text, r"pump of part 1\d\d\.")
    assert found.startswith("501- ## Part 100\n503: A pump of part 100.\n506- ## Part 101\n")


async def test_anchors_find_what_is_shown_on_pages_and_behind_a_byte_order_mark(
    client: httpx.AsyncClient,
) -> None:
    items = "".join(f'    <li>  <a href="/p{n}/">pkg{n}/</a></li>\r\n' for n in range(900))
    page = f"<!doctype html>\r\n<html><body><ul>\r\n{items}</ul></body></html>\r\n"
    assert "\n10: pkg7/\n" in await search(client, page, "^pkg7/$")
    rows = "".join(f"{n},Lima\n" for n in range(3000))
    assert "1: id,city\n" in await search(client, f"\ufeffid,city\n{rows}", "^id,city$")


async def test_in_large_data_too_each_word_of_a_pattern_is_told(client: httpx.AsyncClient) -> None:
    text = "".join(
        f"line {n} tells of the pump and of its {'Valve' if n == 70_000 else 'motor'}\n"
        for n in range(220_000)
    )
    assert len(text) > 8 << 20
    sent = {"session_id": "default", "tool_name": "t"}
    headers = {"Content-Type": "text/plain"}
    told = (await client.post("/results", content=text, params=sent, headers=headers)).json()
    found = await text_of(client, "tool_output", handle=told["handle"], pattern="valve.*squirrel")
    assert found == (
        "No line matches.\n“valve”: 1 line 70001: line 70000 tells of the pump and of its Valve\n"
        "“squirrel”: nowhere, not even within a word."
    )


async def test_a_pattern_between_slashes_is_what_stands_between_them(client: httpx.AsyncClient) -> None:
    text = "".join(f"n{n} of the list\n" for n in range(1500))
    found = await search(client, text, "/N17 of/i")
    assert "\n18: n17 of the list\n" in found
    assert "between the slashes" in found


async def test_words_that_stand_in_another_order_are_shown_where_they_do(client: httpx.AsyncClient) -> None:
    found = await search(client, ROLLED, r"part-3.*rolled new (log )?segment")
    assert found.startswith(
        "No line matches. 200 lines hold “part-3”, “rolled new”, “log”, “segment” in another"
    )
    assert found.endswith(f"\n1397: {ROLLED.splitlines()[1396]}")
    plain = await search(client, ROLLED, "segment log new")
    assert "1,400 lines hold “segment”, “log”, “new” in another order or form. The last:" in plain
    assert "in another order" not in await search(client, ROLLED, "rolled.*squirrel")


async def test_a_few_matches_of_a_text_have_the_lines_around_them(client: httpx.AsyncClient) -> None:
    words = "".join(f"line {n} of a manual says {'little' if n % 300 else 'much'}\n" for n in range(1, 1400))
    found = await search(client, words, "much")
    assert [line.split(" ")[0] for line in found.splitlines()] == [
        *("298-", "299-", "300:", "301-", "302-", "--", "598-", "599-", "600:", "601-", "602-", "--"),
        *("898-", "899-", "900:", "901-", "902-", "--", "1198-", "1199-", "1200:", "1201-", "1202-", "[All"),
    ]
    in_log = await search(client, ROLLED, "in (7|77) ms")
    assert [line.split(" ")[0] for line in in_log.splitlines()] == [
        *("6-", "7-", "8:", "9-", "10-", "--", "76-", "77-", "78:", "79-", "80-", "[All"),
    ]


async def test_a_few_matches_of_source_have_the_line_of_their_function(client: httpx.AsyncClient) -> None:
    source = "import os\n\n\n" + "".join(
        f"def work_{n}(path):\n    name = os.fspath(path)\n    size = {n}\n    total = size + {n}\n"
        f"    return fail('unknown', name, total) if size == {n // 90 * 90} else name\n\n\n"
        for n in range(300)
    )
    few = await search(client, source, r"total = size \+ (5|205)$")
    headers = ("def work_5(path):", "def work_205(path):")
    shown = [f"{n}- {line}" for n, line in enumerate(source.splitlines(), 1) if line in headers]
    assert [line for line in few.splitlines() if "def " in line] == shown


async def test_records_that_share_a_line_are_counted(client: httpx.AsyncClient) -> None:
    record = '{"id": 1, "text": "a brace }{ in a text", "kind": "a"}'
    text = f"{record}\n" * 400 + f"{record}{record}\n" * 9
    answer = await client.post("/results", json={"tool_name": "t", "session_id": "default", "content": text})
    told = answer.json()
    assert "JSON lines: {id: 1, " in told["content"]
    handle = told["handle"]
    counted = await text_of(client, "tool_output", handle=handle, query="SELECT count(*) FROM data")
    assert counted == "418"


def _function(name: str, lines: int) -> str:
    body = "".join(f"    step_{n} = {name}_of({n})\n" for n in range(lines))
    return f"def {name}(value):\n{body}    return step_0\n\n\n"


async def test_a_match_that_opens_a_block_shows_it_or_says_where_it_ends(client: httpx.AsyncClient) -> None:
    many = "".join(_function(f"work_{n}", 9) for n in range(60))
    source = f"import os\n\n\n{many}{_function('short', 12)}{_function('long', 70)}{many}"
    lines = source.splitlines()
    short, long = lines.index("def short(value):") + 1, lines.index("def long(value):") + 1
    found = await search(client, source, r"def short\(")
    assert f"{short}: def short(value):\n{short + 1}-     step_0" in found
    assert f"\n{short + 13}-     return step_0\n[The only" in found
    found = await search(client, source, r"def long\(")
    assert f"{long}: def long(value):  [to line {long + 71}]\n" in found
    assert f"\n{long + 40}-     step_39 = long_of(39)\n[The only" in found
    within = await search(client, source, "step_11 = short_of")
    assert f"\n{short}- def short(value):\n" in f"\n{within}"
    assert "long" not in within
    assert "work" not in within


async def test_a_few_matches_of_a_page_have_the_addresses_of_their_links(client: httpx.AsyncClient) -> None:
    rows = "".join(
        f"<tr><td><a class=x href='/item/{n}?a=1&amp;b=2'>Item {n}</a></td><td>{n * 3}</td></tr>\n"
        for n in range(900)
    )
    page = f'<html><body><h1>Shop</h1><p><a href="#top">Up</a></p>\n<table>{rows}</table></body></html>'
    found = await search(client, page, r"Item 77\b")
    assert "\n79: Item 77 </item/77?a=1&b=2> | 231 |\n" in found
    assert "</item/76" not in found
    assert "#top" not in await search(client, page, "Up")
    many = await search(client, page, "Item")
    assert "/item/" not in many
    assert "Only the markup" in await search(client, page, "/item/77")


async def test_where_nothing_matches_the_few_lines_with_the_rarest_word_are_shown(
    client: httpx.AsyncClient,
) -> None:
    text = HAY + "a needle of 5 cm\n" + HAY + "a Needle of 7 cm\n" + HAY
    found = await search(client, text, "a needle.*(3|9) cm")
    assert "“needle”: 2 lines:\n401: a needle of 5 cm\n802: a Needle of 7 cm" in found
    both = "".join(f"user {n} was accepted\nroot {n} was refused\n" for n in range(700))
    found = await search(client, both, "accepted.*root")
    assert found.startswith(
        "No line matches, and none holds all of “accepted”, “root”.\n“accepted”: 700 lines"
    )


async def test_a_line_above_items_opens_their_block(client: httpx.AsyncClient) -> None:
    trains = "".join(
        f"Train {n} to Rome\n" + "".join(f"- class {k}: {n + k} seats\n" for k in range(6))
        for n in range(400)
    )
    found = await search(client, trains, "^Train 77 ")
    shown = trains.splitlines()[539:546]
    assert [line.partition(" ")[2] for line in found.splitlines()[2:9]] == shown
    items = "".join(f"- item {n} of a list\n" for n in range(900))
    assert len((await search(client, items, "item 77 ")).splitlines()) == 6
