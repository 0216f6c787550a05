"""POST /arguments: stored results stand where a tool's arguments refer to them, or the tool does not run."""

import csv
import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from domain.references import UNRESOLVED, may_refer, references_in
from tests.app.answering.test_tool_calls import LOG, ORDERS, TABLE, keep
from tests.conftest import Serve, StillClock
from tests.keys import key_file

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]

LINES = LOG.splitlines(keepends=True)
UNKNOWN = "spillgate://session-default/file-00000000-0000-4000-8000-000000000000"
ODD = 'tab\t, quote ", backslash \\, café 鬱 \U0001f40d, NUL \u0001, lines\r\n' * 900


async def resolved(
    client: httpx.AsyncClient,
    arguments: Any,
    *,
    session: str = "default",
    tool: str = "write_file",
    **more: Any,
) -> dict[str, Any]:
    sent = {"session_id": session, "tool_name": tool, "arguments": arguments}
    answer = await client.post("/arguments", json=sent, **more)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def text_at(client: httpx.AsyncClient, reference: str) -> str:
    told = await resolved(client, {"content": reference})
    assert told["refusal"] is None, told
    text: str = told["arguments"]["content"]
    assert told["used"][0]["bytes"] == len(text.encode())
    return text


async def refusal_of(client: httpx.AsyncClient, arguments: Any, **more: Any) -> str:
    told = await resolved(client, arguments, **more)
    assert (told["arguments"], told["used"]) == (None, []), told
    refusal: str = told["refusal"]
    assert refusal.endswith(" The tool did not run.")
    assert "\n" not in refusal
    return refusal


async def test_a_string_that_is_a_reference_gives_way_to_the_result_byte_for_byte(
    client: httpx.AsyncClient,
) -> None:
    for content in (LOG, ORDERS, ODD):
        handle = await keep(client, content)
        told = await resolved(client, {"path": "a", "content": f"spillgate://{handle}"})
        assert told["arguments"] == {"path": "a", "content": content}
        assert told["used"] == [{"handle": handle, "path": "/content", "bytes": len(content.encode())}]
        assert told["refusal"] is None


async def test_references_stand_at_any_depth_and_all_else_stays(client: httpx.AsyncClient) -> None:
    log, orders = await keep(client, LOG), await keep(client, ORDERS)
    arguments = {
        "a/b~": [1, 2.5, None, True, {"deep": [f"spillgate://{log}"]}],
        f"spillgate://{log}": f"spillgate://{orders}",
        "within": f"see spillgate://{log}",
        "lines": f"spillgate://{log}\n",
        "before": f" spillgate://{log}",
        "path": f"spillgate://{log}/more",
        "other": "spillgate://nothing",
        "bare": log,
        "": "",
    }
    told = await resolved(client, arguments)
    expected = {**arguments, "a/b~": [1, 2.5, None, True, {"deep": [LOG]}], f"spillgate://{log}": ORDERS}
    assert told["arguments"] == expected
    assert [used["path"] for used in told["used"]] == [
        "/a~1b~0/4/deep/0",
        f"/spillgate:~1~1{log.replace('/', '~1')}",
    ]
    assert (await resolved(client, f"spillgate://{log}"))["arguments"] == LOG
    surrogate = json.dumps({"tool_name": "t", "arguments": {"a": "\ud800", "b": f"spillgate://{log}"}})
    answer = await client.post("/arguments", content=surrogate, headers={"Content-Type": "application/json"})
    assert answer.json()["arguments"] == {"a": "\ufffd", "b": LOG}
    for value in (None, 5, "text", [], {}):
        assert await resolved(client, value) == {"used": [], "refusal": None, "arguments": value}


PARTS = [
    ("lines=2-4", "".join(LINES[1:4])),
    ("lines=3", LINES[2]),
    ("lines=-2", "".join(LINES[-2:])),
    ("lines=4999-", "".join(LINES[4998:])),
    ("lines=1-99999", LOG),
    ("lines=-99999", LOG),
    ("pattern=request%2012%20", LINES[12]),
    ("pattern=request 12 ", LINES[12]),
    ("pattern=ERROR", "".join(line for line in LINES if "ERROR" in line)),
    ("pattern=.", LOG),
    ("pattern=%24", LOG),
]


@pytest.mark.parametrize(("part", "text"), PARTS, ids=[part for part, _ in PARTS])
async def test_a_fragment_is_a_part_with_whole_lines(client: httpx.AsyncClient, part: str, text: str) -> None:
    handle = await keep(client, LOG)
    assert await text_at(client, f"spillgate://{handle}#{part}") == text
    bare = await keep(client, LOG.removesuffix("\n"))
    assert await text_at(client, f"spillgate://{bare}#{part}") == (
        text.removesuffix("\n") if text.endswith(LINES[-1]) else text
    )


async def test_lines_that_end_in_crlf_match_without_it_and_keep_it(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG.replace("\n", "\r\n"))
    last = LINES[12].removesuffix("\n")
    assert await text_at(client, f"spillgate://{handle}#pattern=^{last}$") == f"{last}\r\n"
    everything = await text_at(client, f"spillgate://{handle}#pattern=.$")
    assert everything == LOG.replace("\n", "\r\n")


async def test_long_lines_are_whole(client: httpx.AsyncClient) -> None:
    long = f"first\n{'x' * 50_000} needle\nlast\n" + "short\n" * 500
    handle = await keep(client, long)
    assert await text_at(client, f"spillgate://{handle}#pattern=needle") == f"{'x' * 50_000} needle\n"
    assert await text_at(client, f"spillgate://{handle}#lines=2") == f"{'x' * 50_000} needle\n"


async def test_lines_that_the_tools_break_are_refused_and_the_stored_lines_that_match_are_whole(
    client: httpx.AsyncClient,
) -> None:
    records = [json.dumps({"id": number, "text": f"word{number} " * 200}) + "\n" for number in range(60)]
    texts = [f"long{number} {f'w{number} ' * 1400}\n" for number in range(20)]
    for lines, pattern in ((records, '"id": 7,'), (texts, "^long7 ")):
        reference = f"spillgate://{await keep(client, ''.join(lines))}"
        assert await text_at(client, f"{reference}#pattern={quote(pattern)}") == lines[7]
        for part in ("lines=2", "lines=1-99999", "lines=-3"):
            assert "parts of longer ones. Give #pattern=" in await refusal_of(client, f"{reference}#{part}")
    as_stored = "searched as it is stored"
    assert as_stored in await refusal_of(client, f"spillgate://{await keep(client, ORDERS)}#pattern=nothing")
    one_line = f"spillgate://{await keep(client, ORDERS)}"
    assert "parts of longer ones" in await refusal_of(client, f"{one_line}#lines=3-4")
    assert "all of the result" in await refusal_of(client, f"{one_line}#pattern=city 7")
    unbroken = [f"{number} {'x' * 1500}\n" for number in range(40)]
    reference = f"spillgate://{await keep(client, ''.join(unbroken))}"
    assert await text_at(client, f"{reference}#lines=2-3") == "".join(unbroken[1:3])
    assert await text_at(client, f"{reference}#lines=-1") == unbroken[-1]


async def test_rows_of_a_query_go_on_as_json_or_csv(client: httpx.AsyncClient) -> None:
    handle = await keep(client, ORDERS)
    query = quote("orders[?total > `2600`].{id: id, city: city, more: {a: total}}", safe="")
    rows = [row for row in json.loads(ORDERS)["orders"] if row["total"] > 2600]
    expected = [{"id": row["id"], "city": row["city"], "more": {"a": row["total"]}} for row in rows]
    for form in ("", "&as=json"):
        text = await text_at(client, f"spillgate://{handle}#query={query}{form}")
        assert json.loads(text) == expected
    text = await text_at(client, f"spillgate://{handle}#query={query}&as=csv")
    assert list(csv.reader(text.splitlines())) == [
        ["id", "city", "more"],
        *([str(row["id"]), row["city"], json.dumps(row["more"], separators=(",", ":"))] for row in expected),
    ]
    assert await text_at(client, f"spillgate://{handle}#query=orders[0].city") == "city 0"
    assert await text_at(client, f"spillgate://{handle}#query=orders[0].city&as=json") == '"city 0"'
    sql = "SELECT city, id AS n FROM data WHERE total > 2600 ORDER BY id DESC LIMIT 2"
    text = await text_at(client, f"spillgate://{handle}#query={sql}&as=csv")
    assert text == "city,n\ncity 899,899\ncity 898,898\n"
    text = await text_at(client, f"spillgate://{handle}#query={quote(sql, safe='')}")
    assert json.loads(text)[0] == {"city": "city 899", "n": 899}
    assert "nothing" in await refusal_of(client, f"spillgate://{handle}#query=SELECT 1 FROM nothing")
    # Not encoded, as models write it: all rows, also more than an answer of the tool holds.
    spaced = await text_at(client, f"spillgate://{handle}#query=orders[].id | sort(@)&as=csv")
    assert spaced == "value\n" + "".join(f"{n}\n" for n in range(900))


REFUSED = [
    ("#lines=0-x", "Write `lines` as"),
    ("#lines=9-2", "from the lower number"),
    ("#lines=90000", "The result has 5,000 lines."),
    ("#rows=1-2", "After the handle comes nothing, #lines="),
    ("#lines=", "After the handle comes nothing"),
    ("#lines=1-2&as=csv", "After the handle comes nothing"),
    ("#pattern=a&b=c", "After the handle comes nothing"),
    ("#query=a&as=xml", "After the handle comes nothing"),
    ("#query=SELECT * FROM data LIMIT 2&as=xml", "After the handle comes nothing"),
    ("#pattern=%ff", "After the handle comes nothing"),
    ("?offset=3", "After the handle comes nothing"),
    ("#pattern=(", "RE2 cannot take this pattern."),
    ("#pattern=nothing-like-this", "No line matches."),
    ("#query=length(@)", "whose columns are line, text, time, level."),
]


@pytest.mark.parametrize(("part", "said"), REFUSED)
async def test_what_cannot_be_cut_is_a_sentence_for_the_model(
    client: httpx.AsyncClient, part: str, said: str
) -> None:
    handle = await keep(client, LOG)
    refusal = await refusal_of(client, {"content": f"spillgate://{handle}{part}"})
    assert said in refusal


async def test_a_handle_of_another_session_or_tenant_or_of_none_is_refused(
    serve: Serve, tmp_path: Path
) -> None:
    keys = key_file(tmp_path / "keys", "one:key-1", "two:key-2")
    async with serve(api_keys_file=keys) as client:
        client.headers["Authorization"] = "Bearer key-1"
        handle = await keep(client, LOG, session="a")
        reference = {"content": f"spillgate://{handle}"}
        assert (await resolved(client, reference, session="a"))["arguments"] == {"content": LOG}
        for session in ("b", "default"):
            assert "of this session" in await refusal_of(client, reference, session=session)
        assert "No stored result" in await refusal_of(client, {"content": UNKNOWN})
        traversal = {"content": "spillgate://session-a/..%2F..%2Fetc"}
        assert "No stored result" in await refusal_of(client, traversal, session="a")
        theirs = {"Authorization": "Bearer key-2"}
        told = await refusal_of(client, reference, session="a", headers=theirs)
        gone = await refusal_of(
            client, {"content": UNKNOWN.replace("default", "a")}, session="a", headers=theirs
        )
        assert told == gone
        entries = (await client.get("/accounting/entries?type=pass_on", headers=theirs)).json()["entries"]
        assert entries == []


async def test_what_has_expired_or_ended_is_refused(serve: Serve, clock: StillClock) -> None:
    async with serve(retention_seconds=60) as client:
        reference = {"content": f"spillgate://{await keep(client, LOG, session='a')}"}
        clock.pass_seconds(61)
        assert "expired" in await refusal_of(client, reference, session="a")
        reference = {"content": f"spillgate://{await keep(client, LOG, session='b')}"}
        await client.delete("/sessions/b")
        assert "has ended" in await refusal_of(client, reference, session="b")


async def test_what_is_too_large_is_refused_for_an_argument_and_for_a_call(serve: Serve) -> None:
    size = len(LOG)
    async with serve(max_argument_bytes=size) as client:
        handle = await keep(client, LOG)
        reference = f"spillgate://{handle}"
        assert (await resolved(client, [reference] * 8))["refusal"] is None
        refusal = await refusal_of(client, [reference] * 9)
        assert refusal.startswith(f"The argument would get {size:,} bytes, and 0 are left for it.")
        larger = f"spillgate://{await keep(client, LOG + '.')}"
        assert f"and {size:,} are left" in await refusal_of(client, larger)
        for part in ("lines=1-5001", "lines=-5001", "pattern=."):
            assert "The argument would get" in await refusal_of(client, f"{larger}#{part}"), part
        for part in ("lines=1-5000", "lines=-4000", "pattern=request"):
            assert (await resolved(client, f"{larger}#{part}"))["refusal"] is None, part
        assert "64 stored results" in await refusal_of(client, [reference] * 65)
    async with serve(max_argument_bytes=2000) as client:
        rows = f"spillgate://{await keep(client, TABLE)}#query=[].id"
        assert "The argument would get" in await refusal_of(client, rows)
        long = f"spillgate://{await keep(client, 'x' * 20_000 + chr(10) + 'y' * 1500 + chr(10))}"
        assert "The argument would get" in await refusal_of(client, f"{long}#lines=1")
        assert "The argument would get" in await refusal_of(client, f"{long}#pattern=x")


async def test_a_text_that_holds_a_reference_stays_a_text(client: httpx.AsyncClient) -> None:
    """A tool may return a reference to another result, in the hope that it is handed on."""
    secret = await keep(client, LOG)
    bait = f"spillgate://{secret}"
    returned = await client.post("/results", json={"tool_name": "fetch", "content": bait})
    assert returned.json()["content"] == bait
    lines = f"{bait}\n" * 500
    told = await resolved(client, {"content": f"spillgate://{await keep(client, lines)}"})
    assert told["arguments"]["content"] == lines
    handle = await keep(client, lines)
    assert await text_at(client, f"spillgate://{handle}#lines=1") == f"{bait}\n"
    rows = await keep(client, json.dumps([{"a": bait}] * 500))
    assert await text_at(client, f"spillgate://{rows}#query=[0].a") == bait


async def test_each_use_is_an_entry_and_a_line_in_the_log_without_content(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await keep(client, LOG, tool="fetch")
    before = (await client.get("/sessions/default")).json()["budget"]
    with caplog.at_level(logging.INFO):
        await resolved(client, {"secret": f"spillgate://{handle}#lines=2"}, tool="mcp__files__write")
        await refusal_of(client, {"secret": UNKNOWN, "other": f"spillgate://{handle}"})
    assert (await client.get("/sessions/default")).json()["budget"] == before
    [entry] = (await client.get("/accounting/entries?type=pass_on")).json()["entries"]
    assert entry["details"]["tool_output_handle"] == handle
    assert (entry["tool_name"], entry["mcpServer"], entry["command"]) == (
        "mcp__files__write",
        "files",
        "write",
    )
    assert entry["details"]["bytes"] == len(LINES[1])
    assert (entry["tokens_in"], entry["tokens_out"], entry["tokens_saved"]) == (0, 0, 0)
    summary = (await client.get("/accounting/summary?group_by=type")).json()
    counted = {row["group"]: row for row in summary["rows"]}
    assert counted["pass_on"]["entries"] == 1
    assert summary["total"]["asked_back"] == 0
    fields = [record.fields for record in caplog.records if "handed on" in record.message]  # type: ignore[attr-defined]
    assert fields == [
        {"tool": "mcp__files__write", "handle": handle, "bytes": len(LINES[1])},
        {"tool": "write_file", "code": "result_not_found"},
    ]
    assert "secret" not in caplog.text


async def test_the_body_is_bounded_and_its_fields_are_checked(client: httpx.AsyncClient) -> None:
    big = await client.post("/arguments", json={"tool_name": "t", "arguments": "x" * (1 << 20)})
    assert big.status_code == 413
    for sent in ({"arguments": {}}, {"tool_name": "t"}, {"tool_name": "t", "arguments": {}, "more": 1}):
        assert (await client.post("/arguments", json=sent)).status_code == 422
    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    assert (await resolved(client, deep))["arguments"] == deep


def test_what_may_refer_is_decoded_and_what_does_not_is_not() -> None:
    reference = UNKNOWN + "#lines=1"
    for text in (json.dumps({"a": reference}), json.dumps([reference]).replace("/", "\\/")):
        assert may_refer(text)
        assert references_in(json.loads(text)) == [reference]
    assert not may_refer(json.dumps({"a": f"see {reference}"}))
    assert references_in({"a": f"see {reference}", reference: 1}) == []
    assert UNRESOLVED.count(".") == 2
