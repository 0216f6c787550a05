"""The one tool: one question in a call, of four kinds; how answers go on; what it says of a mistake."""

import json
import re
from typing import Any

import httpx
import pytest

from tests.app.answering.test_tool_calls import LOG, ORDERS, TABLE, call, keep, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]


@pytest.fixture(scope="module")
def client(shared_client: httpx.AsyncClient) -> httpx.AsyncClient:
    return shared_client


NAMES = ("tool_output", "tool_output_grep", "tool_output_lines", "tool_output_query")
LINE = dict(enumerate(LOG.splitlines(), 1))


async def test_each_of_its_four_arguments_is_a_question_of_its_kind(client: httpx.AsyncClient) -> None:
    log, orders = await keep(client, LOG), await keep(client, ORDERS)
    extract = await text_of(client, "tool_output", handle=log, extract="request 4507")
    assert extract.startswith("ABSTRACT FROM TOOL OUTPUT t WITH HANDLE ")
    assert LINE[4508] in extract
    found = await text_of(client, "tool_output", handle=log, pattern="request 4507 ")
    around = "\n".join(f"{n}{':' if n == 4508 else '-'} {LINE[n]}" for n in range(4506, 4511))
    assert found == f"{around}\n[The only matching line.]"
    read = await text_of(client, "tool_output", handle=log, lines="4507-4508")
    assert read.splitlines()[:2] == [f"{n}: {LINE[n]}" for n in (4507, 4508)]
    assert await text_of(client, "tool_output", handle=orders, query="length(orders)") == "900"


async def test_every_name_takes_all_arguments_whatever_is_offered(client: httpx.AsyncClient) -> None:
    questions: list[tuple[dict[str, Any], str]] = [
        ({"extract": "request 4507", "mode": "retrieve"}, "STRATEGY:retrieve:"),
        ({"pattern": "REQUEST 4507 ", "ignore_case": True, "context": 1}, "4507- "),
        ({"pattern": "ERROR", "offset": 10}, "4508: "),
        ({"lines": "4508"}, "4508: "),
        ({"offset": 4508, "limit": 1}, "4508: "),
        ({"query": "length(@)"}, "The result is a log"),
        ({"expression": "length(@)"}, "The result is a log"),
    ]
    handle = await keep(client, LOG, session="s")
    for offer in (["one"], ["ask", "lines"], []):
        await client.put("/sessions/s", json={"policy": {"offer": offer}})
        for name in NAMES:
            for arguments, said in questions:
                told = await call(client, name, session="s", handle=handle, **arguments)
                assert said in told["text"], (offer, name, arguments)


async def test_what_is_empty_is_left_out(client: httpx.AsyncClient) -> None:
    """Some models send all arguments that there are."""
    handle = await keep(client, LOG)
    blank = {"extract": "", "lines": " ", "query": None, "context": 0, "offset": 0, "limit": 0}
    text = await text_of(client, "tool_output", handle=handle, pattern="request 4507 ", **blank)
    assert f"\n4508: {LINE[4508]}\n" in text


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    (
        "tool_output",
        {"extract": "secret", "pattern": "secret"},
        "One call asks one question. Give only one of `extract`, `pattern`.",
    ),
    (
        "tool_output",
        {"lines": "1-2", "query": "secret", "expression": "x"},
        "One call asks one question. Give only one of `lines`, `query`.",
    ),
    (
        "tool_output",
        {"extract": "   "},
        "`extract` is empty: say what you look for.",
    ),
    (
        "tool_output",
        {"pattern": "a", "colour": "secret"},
        "tool_output takes a JSON object with handle and one of query, pattern, lines, extract. Object "
        "contains unknown field `colour`.",
    ),
    ("tool_output_grep", {}, "tool_output_grep takes a JSON object with handle, pattern, context, "),
    (
        "tool_output_query",
        {},
        "tool_output_query takes a JSON object with handle, query. `query` is missing.",
    ),
    (
        "tool_output",
        {"lines": "secret"},
        'Write `lines` as "120-180", "120", "-40" for the last 40, or several',
    ),
    (
        "tool_output",
        {"lines": "180-120"},
        '`lines` runs from the lower number to the higher: lines = "120-180".',
    ),
]


@pytest.mark.parametrize(("name", "arguments", "said"), MISTAKES)
async def test_a_mistake_is_a_text_that_says_what_to_do(
    client: httpx.AsyncClient, name: str, arguments: dict[str, Any], said: str
) -> None:
    handle = await keep(client, LOG)
    told = await call(client, name, handle=handle, **arguments)
    assert told["is_error"]
    assert told["text"].startswith(said)
    assert "secret" not in told["text"]
    assert len(re.findall(r"\.(?: |$)", told["text"])) <= 2


LINES: list[tuple[Any, int, int]] = [
    *(("120-180", 120, 180), ("120", 120, 120), (120, 120, 120), (" '120 – 122' ", 120, 122)),
    *(("L120-L122", 120, 122), ("lines 120 to 122", 120, 122), ("120:122", 120, 122), ("0-2", 1, 2)),
    *(("-40", 4961, 5000), (-40, 4961, 5000), ("last 3", 4998, 5000), ("4990-9999", 4990, 5000)),
    *(("4999-", 4999, 5000), ("120-120", 120, 120)),
]


@pytest.mark.parametrize(("lines", "first", "last"), LINES)
async def test_lines_are_written_in_many_ways(
    client: httpx.AsyncClient, lines: Any, first: int, last: int
) -> None:
    handle = await keep(client, LOG)
    *shown, footer = (await text_of(client, "tool_output", handle=handle, lines=lines)).splitlines()
    expected = [f"{number}: {LINE.get(number, '')}" for number in range(first, last + 1)]
    assert shown == expected
    assert footer.startswith(f"[Lines {first:,} to {last:,} of 5,000.")


async def test_lines_past_the_end_name_the_last_ones(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG)
    told = await call(client, "tool_output", handle=handle, lines="9000-9100")
    assert told["text"] == (
        '[The result has 5,000 lines: line 9,000 is past its end. Ask for lines = "4961-5000".]'
    )
    assert (await text_of(client, "tool_output", handle=handle, lines="4961-5000")).startswith("4961: ")


async def test_the_last_lines_are_shown_as_far_as_they_fit(client: httpx.AsyncClient) -> None:
    handle = await keep(client, "".join(f"{n} {'é' * 400}\n" for n in range(1000)))
    *shown, footer = (await text_of(client, "tool_output", handle=handle, lines="-40")).splitlines()
    assert shown[-1] == f"1000: 999 {'é' * 400}"
    first = int(shown[0].partition(":")[0])
    assert 980 < first < 1000
    assert footer == f"[Lines {first:,} to 1,000 of 1,000.]"
    long = await keep(client, "short\n" * 5000 + f"start {'é' * 20_000} end")
    text = await text_of(client, "tool_output", handle=long, lines="-5")
    assert text.startswith("5001: éé")
    assert text.endswith(" end [… cut: the line is longer]\n[Lines 5,001 to 5,001 of 5,001.]")
    assert len(text.encode()) <= 12_288


async def test_one_line_data_has_last_lines_too(client: httpx.AsyncClient) -> None:
    handle = await keep(client, ORDERS)
    text = await text_of(client, "tool_output", handle=handle, lines="-3")
    assert text.splitlines()[-2].endswith(": }")


async def test_an_answer_goes_on_in_the_arguments_that_the_tool_has(client: httpx.AsyncClient) -> None:
    """Each page names the next one, and together they are the result."""
    handle = await keep(client, LOG)
    shown, lines = [], "1-5000"
    while lines:
        text = await text_of(client, "tool_output", handle=handle, lines=lines)
        shown += [line.partition(": ")[2] for line in text.splitlines()[:-1]]
        found = re.search(r'Go on with lines = "(\d+-\d+)"\.\]$', text)
        lines = found[1] if found else ""
    assert shown == LOG.splitlines()
    cut = await text_of(client, "tool_output", handle=handle, pattern="INFO")
    assert re.search(r"Go on with query = SELECT line, text FROM lines WHERE line > \d+ AND matches\(", cut)
    assert "offset" not in cut
    own = await text_of(client, "tool_output_grep", handle=handle, pattern="INFO")
    assert re.search(r"Go on with offset = \d+\.\]$", own)


async def test_nothing_found_names_no_tool_that_is_not_there(client: httpx.AsyncClient) -> None:
    handle = await keep(client, TABLE)
    text = await text_of(client, "tool_output", handle=handle, pattern="zebra")
    assert "tool_output" not in text


async def test_a_policy_offers_tools_of_their_own(client: httpx.AsyncClient) -> None:
    for offer, names in (
        (["one"], NAMES[:1]),
        (["ask"], NAMES[:1]),
        (["one", "ask", "grep"], NAMES[:2]),
        (["ask", "grep", "lines", "query"], NAMES),
    ):
        await client.put("/sessions/s", json={"policy": {"offer": offer}})
        await keep(client, LOG, session="s")
        told = (await client.get("/tools?session_id=s&format=anthropic")).json()
        assert tuple(tool["name"] for tool in told["tools"]) == names
        assert json.dumps(told["tools"]).count('"extract"') >= 1
        assert bool(told["instructions"]) is (offer != ["one"])


@pytest.mark.parametrize(
    ("offer", "second"),
    [
        (["one"], 'tool_output(handle = "{}") reads it by query, pattern, lines or extract.'),
        (["ask"], 'Call tool_output(handle = "{}", extract = "what to extract").'),
        (["grep", "query"], 'tool_output_query and tool_output_grep read it with handle = "{}".'),
        (["lines"], 'tool_output_lines reads it with handle = "{}".'),
        (
            ["ask", "lines", "grep"],
            'tool_output_grep, tool_output_lines and tool_output read it with handle = "{}".',
        ),
    ],
)
async def test_the_message_names_the_tools_that_are_offered(
    client: httpx.AsyncClient, offer: list[str], second: str
) -> None:
    sent = {"session_id": "s", "tool_name": "t", "content": TABLE, "policy": {"offer": offer}}
    told = (await client.post("/results", json=sent)).json()
    assert told["content"].split("\n")[1] == second.format(told["handle"])
    assert "id: 0, city: " in told["content"]
    assert len(told["content"].encode()) <= 650


async def test_the_message_names_each_way_of_asking_that_the_tool_takes(client: httpx.AsyncClient) -> None:
    sent = {"session_id": "ways", "tool_name": "t", "content": TABLE}
    told = (await client.post("/results", json=sent)).json()
    (tool,) = (await client.get("/tools?session_id=ways&format=mcp")).json()["tools"]
    handle, *ways, last = tool["inputSchema"]["properties"]
    assert handle == "handle"
    assert told["content"].split("\n")[1].endswith(f" by {', '.join(ways)} or {last}.")
