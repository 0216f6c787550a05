"""POST /tools/call: one text for the model, within its cap, charged and accounted; mistakes are texts."""

import json
import re
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]

LOG = "".join(
    f"2026-11-20 08:{n // 60 % 60:02}:{n % 60:02} {'ERROR' if n % 500 == 7 else 'INFO'} "
    f"request {n} took {n % 90} ms\n"
    for n in range(5000)
)
ORDERS = json.dumps(
    {"orders": [{"id": n, "city": f"city {n}", "total": n * 3, "note": "n" * 40} for n in range(900)]}
)
TABLE = "id,city,amount\n" + "".join(f"{n},city {n},{n * 3}\n" for n in range(2000))


async def keep(client: httpx.AsyncClient, content: str, session: str = "default", tool: str = "t") -> str:
    sent = {"session_id": session, "tool_name": tool, "content": content}
    handle: str = (await client.post("/results", json=sent)).json()["handle"]
    return handle


async def call(
    client: httpx.AsyncClient, name: str, session: str = "default", **arguments: Any
) -> dict[str, Any]:
    sent = {"session_id": session, "name": name, "arguments": arguments}
    answer = await client.post("/tools/call", json=sent)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def text_of(client: httpx.AsyncClient, name: str, **arguments: Any) -> str:
    told = await call(client, name, **arguments)
    assert not told["is_error"], told
    text: str = told["text"]
    return text


async def test_grep_shows_matches_and_merges_overlapping_context(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG)
    text = await text_of(client, "tool_output_grep", handle=handle, pattern=r"request (10|12|99) ", context=2)
    lines = text.splitlines()
    assert [line.split(" ")[0] for line in lines] == [
        *("9-", "10-", "11:", "12-", "13:", "14-", "15-", "--", "98-", "99-", "100:", "101-", "102-"),
        "[All",
    ]
    assert lines[-1] == "[All 3 matching lines.]"


async def test_grep_goes_on_in_order(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG)
    text = await text_of(client, "tool_output_grep", handle=handle, pattern="INFO")
    numbers = [int(line.partition(":")[0]) for line in text.splitlines()[:-1]]
    assert len(text.encode()) <= 1500
    assert text.endswith(
        f"[Matching lines 1 to {len(numbers)} of 4,990. Go on with offset = {len(numbers) + 1}.]"
    )
    ordered = await text_of(client, "tool_output_grep", handle=handle, pattern="INFO", offset=11)
    shown = ordered.splitlines()
    assert shown[0].startswith("12: ")
    assert (
        shown[-1]
        == f"[Matching lines 11 to {9 + len(shown)} of 4,990. Go on with offset = {10 + len(shown)}.]"
    )
    past = await text_of(client, "tool_output_grep", handle=handle, pattern="ERROR", offset=99)
    assert past == "[10 matching lines: offset 99 is past the last. Give a lower one, or none.]"
    assert past == await text_of(client, "tool_output", handle=handle, pattern="ERROR", offset=99)


async def test_context_never_hides_the_match(client: httpx.AsyncClient) -> None:
    handle = await keep(
        client, "".join(f"{n} {'x' * 120} {'needle' if n == 90 else ''}\n" for n in range(200))
    )
    text = await text_of(client, "tool_output_grep", handle=handle, pattern="needle", context=20)
    assert f"91: 90 {'x' * 120} needle\n" in text
    assert "90- " in text
    assert "92- " in text
    assert len(text.encode()) <= 2560


async def test_a_line_that_is_cut_says_so(client: httpx.AsyncClient) -> None:
    handle = await keep(client, "y" * 5000 + " " + "z" * 20_000 + "\nshort\n" + "word word\n" * 900)
    text = await text_of(client, "tool_output_lines", handle=handle, offset=1, limit=5)
    assert text.splitlines()[0].endswith(" [… cut: the line is longer]")
    assert text.endswith('[Lines 1 to 1 of 902. Go on with lines = "2-41".]')


async def test_grep_without_a_match_ignores_case_or_names_the_words_that_are_nowhere(
    client: httpx.AsyncClient,
) -> None:
    handle = await keep(client, LOG.replace("request 17 ", "maximum connections 17 "))
    text = await text_of(client, "tool_output_grep", handle=handle, pattern="error request 7 ")
    assert "ERROR request 7 took" in text
    assert "Upper and lower case is ignored" in text
    text = await text_of(client, "tool_output_grep", handle=handle, pattern="conections|zebra|Zebra")
    assert "\n“conections”: nowhere, not even within a word.\n" in text
    assert text.lower().count("“zebra”: nowhere") == 1
    text = await text_of(client, "tool_output_grep", handle=handle, pattern="request.*connexions")
    assert text.startswith(
        "No line matches.\n“request”: 4,999 lines, the first 1: 2026-11-20 08:00:00 INFO request 0"
    )


async def test_grep_finds_a_pair_of_compact_json_as_the_data_spells_it(client: httpx.AsyncClient) -> None:
    rows = [{"name": f"package-{number}", "version": number} for number in range(2000)]
    handle = await keep(client, json.dumps(rows, separators=(",", ":")))
    for line, pattern in ((311, '"name":"package-77"'), (312, '"version":77\\b')):
        text = await text_of(client, "tool_output_grep", handle=handle, pattern=pattern)
        record, last = text.split("\n")
        assert record == f'{line}: {{ "name": "package-77", "version": 77 }}'
        assert last.startswith("[The only matching line. ")
        assert "with a space after a name's colon" in last


async def test_grep_suggests_word_boundaries(client: httpx.AsyncClient) -> None:
    handle = await keep(client, "the script is shipped\n" * 900 + "an ip address\n")
    text = await text_of(client, "tool_output_grep", handle=handle, pattern="ip")
    assert r"\bip\b finds the word alone" in text


async def test_grep_speaks_of_words_that_have_two_characters(client: httpx.AsyncClient) -> None:
    handle = await keep(
        client, "".join(f"{n}. 服务器在上海发生故障，已经重新启动了数据库。\n" for n in range(400))
    )
    text = await text_of(client, "tool_output_grep", handle=handle, pattern="上海.*火星")
    assert "\n“上海”: 400 lines, the first 1: 0. 服务器在上海发生故障" in text
    assert "\n“火星”: nowhere" in text
    text = await text_of(client, "tool_output_grep", handle=handle, pattern="上海")
    assert " of 400. Go on with" in text
    assert "finds the word alone" not in text


async def test_lines_are_numbered_and_say_where_they_go_on(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG)
    text = await text_of(client, "tool_output_lines", handle=handle, offset=8, limit=2)
    assert text.splitlines() == [
        "8: 2026-11-20 08:00:07 ERROR request 7 took 7 ms",
        "9: 2026-11-20 08:00:08 INFO request 8 took 8 ms",
        '[Lines 8 to 9 of 5,000. Go on with lines = "10-49".]',
    ]


async def test_one_line_data_has_the_same_lines_for_grep_and_for_lines(client: httpx.AsyncClient) -> None:
    handle = await keep(client, ORDERS)
    found = await text_of(client, "tool_output_grep", handle=handle, pattern='"city 321"')
    number, _, record = found.splitlines()[0].partition(": ")
    read = await text_of(client, "tool_output_lines", handle=handle, offset=int(number), limit=1)
    line = read.splitlines()[0].partition(": ")[2]
    assert '"city 321"' in line
    assert line.strip() in record


async def test_a_query_answers_with_json_or_a_table(client: httpx.AsyncClient) -> None:
    handle = await keep(client, ORDERS)
    assert await text_of(client, "tool_output_query", handle=handle, expression="length(orders)") == "900"
    rows = await text_of(
        client, "tool_output_query", handle=handle, expression="orders[?id < `3`].{id: id, city: city}"
    )
    assert rows.splitlines() == ["id | city", "0 | city 0", "1 | city 1", "2 | city 2"]
    handle = await keep(client, TABLE)
    text = await text_of(client, "tool_output_query", handle=handle, expression="[?amount > `5990`]")
    assert text.splitlines() == ["id | city | amount", "1997 | city 1997 | 5991"] + [
        f"{n} | city {n} | {n * 3}" for n in (1998, 1999)
    ]
    more = await text_of(client, "tool_output_query", handle=handle, expression="[*].id")
    assert more.endswith(" of 2,000. Go on with: … | [1000:]]")


async def test_a_query_that_selects_nothing_says_which_key_is_wrong(client: httpx.AsyncClient) -> None:
    for expression, said in [
        (
            "orders[*].citty",
            "No object there has the key citty. The nearest is city. Keys: id, city, total, note.",
        ),
        ("order[*].id", "No object there has the key order. The nearest is orders. Keys: orders."),
        ("orders.id", "id is asked of a list: put [] or [*] before it."),
        (r'orders[*]."\ud800"', r'No object there has the key "\ud800". Keys: id, city, total, note.'),
    ]:
        handle = await keep(client, ORDERS)
        text = await text_of(client, "tool_output_query", handle=handle, expression=expression)
        assert text.endswith(f"[Nothing is selected. {said}]")


async def test_a_handle_is_taken_with_quotes_spaces_and_other_case(client: httpx.AsyncClient) -> None:
    for form in ['"{}"', " {} \n", "`{}`", "“{}”"]:
        handle = await keep(client, LOG)
        for spelled in (form.format(handle), form.format(handle.upper()), handle.partition("/")[2]):
            assert (await text_of(client, "tool_output_lines", handle=spelled, offset=1)).startswith("1: ")


async def test_lone_surrogates_in_arguments_are_no_error_of_http(client: httpx.AsyncClient) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("tool_output", {"extract": "a\ud83db ERROR"}),
        ("tool_output_grep", {"pattern": "\ud83d"}),
        ("tool_output_query", {"expression": "\ud83d"}),
        ("tool_output_lines", {"offset": 1, "\ud83d": 1}),
    ]
    for name, arguments in cases:
        handle = await keep(client, LOG)
        body = json.dumps({"name": name, "arguments": {"handle": handle, **arguments}})
        answer = await client.post("/tools/call", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["text"]


async def test_each_answer_is_within_a_small_size_cap(client: httpx.AsyncClient) -> None:
    for max_bytes in [300, 450, 700, 1024]:
        await client.put("/sessions/default", json={"policy": {"max_bytes": max_bytes}})
        wide = json.dumps([{f"a long name of column {n}": n for n in range(40)} for _ in range(8)])
        handle = await keep(client, wide)
        for name, arguments in (
            ("tool_output_lines", {"offset": 1}),
            ("tool_output_grep", {"pattern": "column", "context": 5}),
            ("tool_output_grep", {"pattern": "zebra lion tiger"}),
            ("tool_output_query", {"expression": "length(@)"}),
            ("tool_output_query", {"expression": "[*].colum"}),
            ("tool_output", {"extract": "column 7"}),
        ):
            told = await call(client, name, handle=handle, **arguments)
            assert len(told["text"].encode()) <= max_bytes, name
            assert not told["is_error"], told


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("no_tool", {}, "There is no such tool here. There is tool_output."),
    ("tool_output_grep", {"pattern": "("}, "A group is not closed by )."),
    ("tool_output_grep", {"pattern": "a" * 1001}, "`pattern`: expected a string of length <= 1000."),
    ("tool_output_grep", {"pattern": "a", "context": 21}, "`context`: expected a whole number <= 20."),
    ("tool_output_lines", {"offset": -1}, "`offset`: expected a whole number >= 0."),
    ("tool_output_lines", {"offset": "secret"}, "`offset`: expected a whole number, got a string."),
    ("tool_output", {"extract": "a", "mode": "it's secret"}, "`mode`: must be one of auto, full-chunked, "),
    ("tool_output_query", {"expression": "[?"}, "The expression is not JMESPath"),
    ("tool_output_query", {"expression": "a"}, "The result is a log"),
]


async def test_a_mistake_of_the_model_is_a_text(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG)
    before = (await client.get("/sessions/default")).json()["budget"]["reserved_tokens"]
    charged = []
    for name, arguments, said in WRONG:
        told = await call(client, name, handle=handle, **arguments)
        assert told["is_error"], (name, arguments)
        assert said in told["text"]
        assert "secret" not in told["text"], (name, arguments)
        charged += [told["entry_id"]] if told["entry_id"] else []
    # What the model reads because the stored result does not take the question is charged as an answer is.
    entries = (await client.get("/accounting/entries?type=read&status=failed")).json()["entries"]
    assert [one["id"] for one in entries] == charged
    assert [one["error"] for one in entries] == ["bad_pattern", "bad_query", "not_queryable"]
    after = (await client.get("/sessions/default")).json()["budget"]["reserved_tokens"]
    assert after - before == sum(one["tokens_out"] for one in entries) > 0


async def test_the_text_about_a_bad_pattern_or_an_ended_session_says_what_to_do(
    client: httpx.AsyncClient,
) -> None:
    handle = await keep(client, LOG, session="run")
    told = await call(client, "tool_output_grep", session="run", handle=handle, pattern="f(x")
    assert told["text"].endswith("A \\ before . * + ? ( ) [ ] { } | ^ $ takes it as it is.")
    text = await text_of(
        client, "tool_output_grep", handle=await keep(client, "f(x)\n" * 3000), pattern=r"f\(x\)"
    )
    assert "3,000 matching lines" in text
    await client.delete("/sessions/run")
    for name, more in (("tool_output", {"extract": "x"}), ("tool_output_lines", {"offset": 1})):
        told = await call(client, name, session="run", handle=handle, **more)
        assert told["is_error"]
        assert told["text"].endswith(
            "The session of this result has ended, and its results with it. Run the tool again."
        )


async def test_a_handle_that_names_nothing_here_is_a_text(client: httpx.AsyncClient) -> None:
    for whose in ["unknown", "another session", "no handle"]:
        for name in ["tool_output", "tool_output_grep", "tool_output_lines", "tool_output_query"]:
            other = await keep(client, LOG, session="other")
            handle = {
                "unknown": "session-default/file-00000000-0000-4000-8000-000000000000",
                "another session": other,
                "no handle": "../../etc/passwd",
            }[whose]
            more: dict[str, dict[str, Any]] = {
                "tool_output": {"extract": "x"},
                "tool_output_grep": {"pattern": "x"},
                "tool_output_lines": {"offset": 1},
                "tool_output_query": {"expression": "x"},
            }
            told = await call(client, name, handle=handle, **more[name])
            assert told["is_error"]
            assert "has this handle. Use it exactly as the handle message gave it." in told["text"]
            framed = "TOOL_OUTPUT FAILED FOR unknown WITH HANDLE "
            assert told["text"].startswith(framed) == (name == "tool_output")


async def test_the_text_about_a_handle_that_is_cut_off_says_so(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG)
    cases = [
        (handle[:-1], 35),
        (f" `{handle[:-30]}…`", 6),
        (handle.partition("/")[0] + "/file-", 0),
        ("file-ab", 2),
    ]
    for cut, chars in cases:
        for name, more in (("tool_output", {"extract": "x"}), ("tool_output_lines", {"offset": 1})):
            told = await call(client, name, handle=cut, **more)
            said = f"The handle is cut off: it has {chars} of the 36 characters after `file-`. Use it exactly"
            assert told["is_error"]
            frame, _, reason = told["text"].rpartition("STRATEGY:auto:\n\n")
            assert reason.startswith(said)
            assert frame.startswith("TOOL_OUTPUT FAILED FOR unknown WITH HANDLE ") == (name == "tool_output")
            assert not frame or f"{cut.strip(' `')}, " in frame


async def test_arguments_may_be_the_text_of_an_object_and_null(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG)
    for arguments in (
        json.dumps({"handle": handle, "offset": "3", "limit": 1}),
        {"handle": handle, "offset": 3, "limit": None},
    ):
        sent = {"name": "tool_output_lines", "arguments": arguments}
        answer = await client.post("/tools/call", json=sent, headers={"Accept": "text/plain"})
        assert answer.text.startswith("3: 2026-11-20 08:00:02 INFO request 2 ")
    nested = json.loads("[" * 700 + "]" * 700)
    wrongs = ["{", "", "[]", [], 5, True, None, {"handle": handle, "offset": []}, "[" * 9000, nested]
    for wrong in wrongs:
        broken = (await client.post("/tools/call", json=sent | {"arguments": wrong})).json()
        assert broken["is_error"]
        assert broken["text"].startswith("tool_output_lines takes a JSON object with handle, lines.")
    for name in ["", "no_tool" * 100]:
        unknown = (await client.post("/tools/call", json={"name": name})).json()
        assert unknown["is_error"]
        assert unknown["text"].startswith("There is no such tool here.")


async def test_each_answer_is_charged_and_accounted(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG)
    before = (await client.get("/sessions/default")).json()["budget"]["reserved_tokens"]
    told = await call(client, "tool_output_grep", handle=handle, pattern="ERROR")
    (entry,) = (await client.get("/accounting/entries?type=read")).json()["entries"]
    assert entry["id"] == told["entry_id"]
    assert entry["details"]["tool_output_handle"] == handle
    assert entry["charactersOut"] == len(told["text"])
    after = (await client.get("/sessions/default")).json()["budget"]["reserved_tokens"]
    assert after - before == entry["tokens_out"] > 0
    metrics = (await client.get("/metrics")).text
    assert re.search(rf'spillgate_tokens_total\{{\w+="spent"\}} {entry["tokens_out"]}\.0', metrics)


async def test_an_answer_is_cut_to_the_budget_and_says_when_nothing_fits(client: httpx.AsyncClient) -> None:
    window = {"context_window": 700, "buffer_tokens": 0, "max_output_tokens": 0}
    await client.put("/sessions/default", json=window)
    handle = await keep(client, LOG)
    told = await call(client, "tool_output_lines", handle=handle, offset=1, limit=400)
    assert not told["is_error"]
    assert told["text"].splitlines()[-1].startswith("[Lines 1 to ")
    budget = (await client.get("/sessions/default")).json()["budget"]
    assert budget["reserved_tokens"] <= 700
    while not told["is_error"]:
        told = await call(client, "tool_output_lines", handle=handle, offset=1, limit=400)
    assert told["text"].startswith("The answer does not fit what is left of the context budget.")
    (refused,) = (await client.get("/accounting/entries?type=read&status=failed")).json()["entries"]
    assert (refused["id"], refused["error"]) == (told["entry_id"], "budget exhausted")
    while not (await client.get("/sessions/default")).json()["budget"]["exhausted"]:
        await call(client, "tool_output_lines", handle=handle, offset=1, limit=400)
    assert (await client.get("/tools")).json() == {"tools": [], "instructions": ""}


async def test_a_policy_says_which_tools_are_offered(client: httpx.AsyncClient) -> None:
    await client.put("/sessions/s", json={"policy": {"offer": ["ask", "lines"]}})
    handle = await keep(client, LOG, session="s")
    offered = (await client.get("/tools?session_id=s&format=mcp")).json()
    assert [tool["name"] for tool in offered["tools"]] == ["tool_output", "tool_output_lines"]
    assert "tool_output_grep" not in offered["instructions"]
    told = await call(client, "no_tool", session="s", handle=handle, pattern="x")
    assert told["text"] == "There is no such tool here. There is tool_output, tool_output_lines."
    assert (
        "10 matching lines"
        in (await call(client, "tool_output_grep", session="s", handle=handle, pattern="ERROR"))["text"]
    )
    assert (await client.get("/tools?session_id=s&final_turn=true")).json()["tools"] == []


async def test_the_routes_answer_with_the_same_text(client: httpx.AsyncClient) -> None:
    for route, first in [
        ("lines?offset=8&limit=1", "8: 2026-11-20 08:00:07 ERROR request 7 took 7 ms"),
        ("grep?pattern=request%207%20", "8: 2026-11-20 08:00:07 ERROR request 7 took 7 ms"),
    ]:
        handle = await keep(client, LOG)
        answer = await client.get(f"/results/{handle}/{route}", headers={"Accept": "text/plain"})
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.text.splitlines()[0] == first


async def test_the_text_of_grep_goes_on_as_the_route_counts(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG)
    asked = {"pattern": "ERROR", "limit": "4"}
    plain = {"Accept": "text/plain"}
    first = await client.get(f"/results/{handle}/grep", params=asked, headers=plain)
    assert first.text.splitlines()[-1] == "[Matching lines 1 to 4 of 10. Go on with offset = 4.]"
    second = await client.get(f"/results/{handle}/grep", params=asked | {"offset": "4"}, headers=plain)
    assert "request 2007 " in second.text.splitlines()[0]
    past = await client.get(f"/results/{handle}/grep", params=asked | {"offset": "10"}, headers=plain)
    assert past.text == "[10 matching lines: offset 10 is past the last. Give a lower one, or none.]"
