"""The accounting: entries, filters, cursors, exports, net savings."""

import csv
import io
import json
from collections.abc import Iterator
from threading import get_ident

import httpx
import pytest

from domain import accounting
from domain.accounting import Summary, SummaryRow
from tests.conftest import StillClock

pytestmark = pytest.mark.anyio

BIG = "word " * 5000


async def fill(client: httpx.AsyncClient, clock: StillClock) -> None:
    for number, (tool, content) in enumerate(
        [("a", "x"), ("srv/b", BIG), ("mcp__srv__c", BIG), ("a", "y"), ("a", BIG)]
    ):
        sent = {"session_id": f"s{number % 2}", "tool_name": tool, "content": content, "latency_ms": 10}
        await client.post("/results", json={**sent, "is_error": number == 3, "tool_arguments": "12345"})
        clock.pass_seconds(60)


async def test_an_entry_says_all_that_the_contract_names(
    client: httpx.AsyncClient, clock: StillClock
) -> None:
    await fill(client, clock)
    entries = (await client.get("/accounting/entries")).json()["entries"]
    stored = entries[1]
    assert (stored["mcpServer"], stored["command"]) == ("srv", "b")
    assert (entries[2]["mcpServer"], entries[2]["command"]) == ("srv", "c")
    assert stored["type"] == "tool"
    assert stored["charactersIn"] == 5
    assert stored["tokens_saved"] == stored["tokens_in"] - stored["tokens_out"] > 0
    assert stored["latency"] == 10
    assert stored["details"]["tool_output_handle"].startswith("session-s1/file-")
    assert stored["details"]["tool_output_reason"] == "size_cap"
    assert stored["details"]["bytes"] == len(BIG)
    assert entries[3]["status"] == "failed"
    assert [entry["timestamp"] for entry in entries] == sorted(entry["timestamp"] for entry in entries)


async def test_entries_come_newest_first_and_sums_by_minute(
    client: httpx.AsyncClient, clock: StillClock
) -> None:
    began = clock.now
    await fill(client, clock)
    oldest = (await client.get("/accounting/entries?type=tool")).json()["entries"]
    page = (await client.get("/accounting/entries?type=tool&order=newest&limit=3")).json()
    rest = await client.get(
        "/accounting/entries", params={"type": "tool", "order": "newest", "cursor": page["next_cursor"]}
    )
    assert [*page["entries"], *rest.json()["entries"]] == oldest[::-1]
    lines = await client.get(
        "/accounting/entries?type=tool&order=newest", headers={"Accept": "application/x-ndjson"}
    )
    assert [json.loads(line)["id"] for line in lines.text.splitlines()] == [one["id"] for one in oldest[::-1]]
    for group_by, most in (("minute", 1440 * 60_000), ("hour", 1440 * 3_600_000)):
        asked = {"group_by": group_by, "since": began}
        rows = (await client.get("/accounting/summary", params=asked)).json()["rows"]
        assert {row["group"]: row["entries"] for row in rows} == (
            {f"2025-11-21T08:0{minute}Z": 1 for minute in range(5)}
            if group_by == "minute"
            else {"2025-11-21T08:00Z": 5}
        )
        for since in (None, began - most - 1):
            wrong = {"group_by": f"type,{group_by}", "until": began} | (
                {} if since is None else {"since": since}
            )
            refused = await client.get("/accounting/summary", params=wrong)
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid_field")
        widest = {"group_by": group_by, "until": began, "since": began - most}
        assert (await client.get("/accounting/summary", params=widest)).status_code == 200


async def test_an_entry_names_its_call_its_turn_and_its_kind_of_tool(client: httpx.AsyncClient) -> None:
    first = {"tool_name": "t", "tool_call_id": "call-1", "tool_kind": "mcp", "content": "x"}
    await client.post("/results", json=first | {"context": {"used_tokens": 5, "turn": 3}})
    await client.post("/results", json={"tool_name": "t", "content": "x"})
    await client.post(
        "/results", json={"tool_name": "t", "content": "x", "context": {"used_tokens": 9, "turn": 4}}
    )
    await client.post("/results", json={"tool_name": "t", "content": "x", "context": {"used_tokens": 10}})
    entries = (await client.get("/accounting/entries")).json()["entries"]
    named = [(entry["tool_call_id"], entry["turn"], entry["tool_kind"]) for entry in entries]
    assert named == [("call-1", 3, "mcp"), (None, 3, None), (None, 4, None), (None, 4, None)]
    rows = (await client.get("/accounting/summary?group_by=tool_kind")).json()["rows"]
    assert [(row["group"], row["entries"]) for row in rows] == [(None, 3), ("mcp", 1)]
    text = (await client.get("/accounting/entries", headers={"Accept": "text/csv"})).text
    row = next(csv.DictReader(io.StringIO(text)))
    assert (row["tool_call_id"], row["turn"], row["tool_kind"]) == ("call-1", "3", "mcp")


async def test_a_result_that_the_model_did_not_get_whole_is_truncated(client: httpx.AsyncClient) -> None:
    for keep in (True, False):
        for outcome in ("store", "truncate", "cap", "reject"):
            policy = {"on_oversize": outcome, "keep": keep, "max_bytes": 4000}
            await client.post("/results", json={"tool_name": "t", "content": BIG, "policy": policy})
            await client.post("/results", json={"tool_name": "t", "content": "x"})
            *_, cut, whole = (await client.get("/accounting/entries")).json()["entries"]
            assert (cut["outcome"], cut["details"]["truncated"]) == (outcome, True)
            assert (whole["outcome"], whole["details"]["truncated"]) == ("pass", False)


async def test_a_tools_name_is_split_into_server_and_tool(client: httpx.AsyncClient) -> None:
    names: list[tuple[str, str | None, tuple[str, str]]] = [
        ("mcp__files__read", None, ("files", "read")),
        ("mcp__files__read__all", None, ("files", "read__all")),
        ("files__read", None, ("files", "read")),
        ("mcp:files/read", None, ("files", "read")),
        ("rest:files/read", None, ("files", "read")),
        ("files/read", None, ("files", "read")),
        ("io.github/files/read", None, ("io.github/files", "read")),
        ("read_file", None, ("", "read_file")),
        ("__init__", None, ("", "__init__")),
        ("mcp__files", None, ("", "mcp__files")),
        ("files/", None, ("", "files/")),
        ("mcp:read", None, ("", "mcp:read")),
        ("agent:team/ask", None, ("team", "ask")),
        ("agent:team/ask", "team", ("team", "ask")),
        ("read", "files", ("files", "read")),
        ("mcp__my__files__read", "my__files", ("my__files", "read")),
        ("my__files__read", "my__files", ("my__files", "read")),
        ("rest:a/b/read", "a", ("a", "b/read")),
        ("other__read", "files", ("files", "other__read")),
        ("files__read", "", ("", "files__read")),
    ]
    for number, (name, namespace, split) in enumerate(names):
        sent = {"tool_name": name, "tool_namespace": namespace, "content": BIG, "session_id": f"of-{number}"}
        handle = (await client.post("/results", json=sent)).json()["handle"]
        await client.get(f"/results/{handle}/lines?limit=1")
        entries = (await client.get(f"/accounting/entries?session_id=of-{number}")).json()["entries"]
        assert [(entry["mcpServer"], entry["command"]) for entry in entries] == [split, split], name


async def test_filters_choose(client: httpx.AsyncClient, clock: StillClock) -> None:
    cases: list[tuple[dict[str, str], int]] = [
        ({}, 5),
        ({"session_id": "s0"}, 3),
        ({"tool_name": "a"}, 3),
        ({"outcome": "store"}, 3),
        ({"trigger": "size_cap", "tool_name": "a"}, 1),
        ({"status": "failed"}, 1),
        ({"type": "extract"}, 0),
        ({"since": "1763712060000"}, 4),
        ({"until": "2025-11-21T08:01:00+00:00"}, 1),
        ({"since": "2025-11-21T08:01:00", "until": "1763712180000"}, 2),
        ({"since": "0001-01-01"}, 5),
        ({"until": "0001-01-01"}, 0),
    ]
    await fill(client, clock)
    for wanted, count in cases:
        entries = (await client.get("/accounting/entries", params=wanted)).json()["entries"]
        assert len(entries) == count


async def test_a_cursor_goes_on_where_the_page_ended(client: httpx.AsyncClient, clock: StillClock) -> None:
    await fill(client, clock)
    whole = (await client.get("/accounting/entries")).json()["entries"]
    first = (await client.get("/accounting/entries?limit=3")).json()
    rest = (await client.get("/accounting/entries", params={"cursor": first["next_cursor"]})).json()
    assert first["entries"] + rest["entries"] == whole
    assert rest["next_cursor"] is None
    for media in ("application/json", "text/csv", "application/x-ndjson"):
        answer = await client.get("/accounting/entries?cursor=mine", headers={"Accept": media})
        assert answer.status_code == 422


async def test_exports_hold_every_entry(client: httpx.AsyncClient, clock: StillClock) -> None:
    await fill(client, clock)
    whole = (await client.get("/accounting/entries")).json()["entries"]
    answer = await client.get("/accounting/entries", headers={"Accept": "application/x-ndjson"})
    assert [json.loads(line) for line in answer.text.splitlines()] == whole
    answer = await client.get("/accounting/entries", headers={"Accept": "text/csv"})
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["id"] for row in rows] == [entry["id"] for entry in whole]
    assert rows[1]["details.bytes"] == str(len(BIG))


async def test_a_csv_cell_is_never_a_formula(client: httpx.AsyncClient) -> None:
    names = [f'{sign}cmd|"a",b' for sign in "=+-@＝＋－＠"]
    for name in names:
        await client.post("/results", json={"tool_name": name, "content": "x"})
    for path in ("/accounting/entries", "/accounting/summary?group_by=day,tool_name"):
        answer = await client.get(path, headers={"Accept": "text/csv"})
        shown = {row["tool_name"] for row in csv.DictReader(io.StringIO(answer.text, newline=""))}
        assert shown == {f"'{name}" for name in names}


async def test_a_summary_of_several_keys_is_json_or_csv(client: httpx.AsyncClient, clock: StillClock) -> None:
    await fill(client, clock)
    clock.pass_seconds(86_400)
    await client.post("/results", json={"tool_name": "a", "content": BIG})
    asked = {"group_by": "day,tool_name,model,day", "type": "tool"}
    answer = (await client.get("/accounting/summary", params=asked)).json()
    assert (answer["group_by"], answer["complete"], answer["warnings"]) == ("day,tool_name,model", True, [])
    keys = [(row["groups"]["day"], row["groups"]["tool_name"]) for row in answer["rows"]]
    assert sorted(keys) == [
        ("2025-11-21", "a"),
        ("2025-11-21", "mcp__srv__c"),
        ("2025-11-21", "srv/b"),
        ("2025-11-22", "a"),
    ]
    assert [row["group"] for row in answer["rows"]] == [day for day, _ in keys]
    assert sum(row["entries"] for row in answer["rows"]) == answer["total"]["entries"] == 6
    by_accept = await client.get("/accounting/summary", params=asked, headers={"Accept": "text/csv"})
    by_format = await client.get("/accounting/summary", params=asked | {"format": "csv"})
    assert by_accept.headers["content-type"] == by_format.headers["content-type"] == "text/csv; charset=utf-8"
    assert by_accept.text == by_format.text
    rows = list(csv.DictReader(io.StringIO(by_accept.text)))
    for told, row in zip(rows, answer["rows"], strict=True):
        flat = {
            **{key: value or "" for key, value in row.pop("groups").items()},
            **row,
            "complete": "true",
            "warnings": "",
        }
        assert told == {name: str(value) for name, value in flat.items() if name != "group"}
    json_anyway = {**asked, "format": "json"}
    again = await client.get("/accounting/summary", params=json_anyway, headers={"Accept": "text/csv"})
    assert again.json()["total"] == answer["total"]


async def test_groups_past_the_bound_are_one_row_and_a_warning(
    client: httpx.AsyncClient, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "MOST_GROUPS", 2)
    await fill(client, clock)
    answer = (await client.get("/accounting/summary?group_by=tool_name")).json()
    assert sorted(row["entries"] for row in (*answer["rows"], answer["rest"])) == [1, 1, 3]
    assert len(answer["rows"]) == 2
    assert (answer["total"]["entries"], answer["complete"]) == (5, True)
    assert answer["warnings"][0].startswith("`rest` has the sums of groups")
    text = (await client.get("/accounting/summary?group_by=tool_name,type&format=csv")).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["tool_name"], row["type"]) for row in rows[2:]] == [("(rest)", "(rest)")]
    assert sum(int(row["entries"]) for row in rows) == 5


class _Rows(list[SummaryRow]):
    """Knows the threads that read it."""

    threads: set[int]

    def __iter__(self) -> Iterator[SummaryRow]:
        self.threads.add(get_ident())
        return super().__iter__()


@pytest.mark.parametrize("form", ["json", "csv"])
async def test_the_event_loop_serves_others_while_a_long_summary_is_written(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    row = SummaryRow("t", 1, 0, 2, 3, 4, 5, 0.5, 1.5, 0.0, groups={"tool_name": "t"})
    rows = _Rows([row] * 3)
    rows.threads = set()

    async def summary(*asked: object) -> Summary:
        return Summary(rows, row)

    ledger = client._transport.app.state.runtime.ledger  # type: ignore[attr-defined]
    monkeypatch.setattr(ledger, "summary", summary, raising=False)
    answer = await client.get("/accounting/summary", params={"format": form})
    assert answer.text.count("t,1,0,2,3,4,5,0.5,1.5,0.0" if form == "csv" else '"group":"t"') == (
        3 if form == "csv" else 4
    )
    assert rows.threads
    assert get_ident() not in rows.threads


async def test_an_unknown_key_is_refused_with_the_known_ones(client: httpx.AsyncClient) -> None:
    for group_by in ["", "tools", "day,", "day;tool_name", "day, model", "Day", "=1+1"]:
        answer = await client.get("/accounting/summary", params={"group_by": group_by})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
        assert "tenant, tool_name" in answer.json()["detail"]
        assert "=1+1" not in answer.text


async def test_savings_are_net_of_extraction_and_reading_back(
    client: httpx.AsyncClient, clock: StillClock
) -> None:
    sent = {"tool_name": "t", "content": BIG}
    handle = (await client.post("/results", json=sent)).json()["handle"]
    gross = (await client.get("/accounting/summary")).json()["total"]["tokens_saved"]
    await client.post("/extract", json={"handle": handle, "extract": "x"})
    await client.get(f"/results/{handle}/lines?limit=1")
    await client.get(f"/results/{handle}/content?accounted=true", headers={"Range": "bytes=0-999"})
    await client.get(f"/results/{handle}/grep?pattern=word&limit=1")
    await client.get(f"/results/{handle}/grep?pattern=absent")
    summary = (await client.get("/accounting/summary?group_by=type")).json()
    by_type = {row["group"]: row for row in summary["rows"]}
    assert by_type["tool"]["tokens_saved"] == gross
    assert by_type["extract"]["tokens_saved"] < 0
    assert by_type["read"]["tokens_saved"] < 0
    assert by_type["read"]["entries"] == 4
    spent = by_type["extract"]["tokens_saved"] + by_type["read"]["tokens_saved"]
    assert summary["total"]["tokens_saved"] == gross + spent


async def test_what_is_read_back_costs_the_same_by_lines_as_by_bytes(client: httpx.AsyncClient) -> None:
    text = "日本語" * 5000
    sent = {"tool_name": "t", "content": text}
    handle = (await client.post("/results", json=sent)).json()["handle"]
    await client.get(f"/results/{handle}/lines")
    await client.get(f"/results/{handle}/content?accounted=true")
    lines, content = (await client.get("/accounting/entries?type=read")).json()["entries"]
    for entry in (lines, content):
        assert entry["details"]["bytes"] == len(text.encode())
        assert entry["charactersOut"] == len(text)
    assert lines["tokens_out"] == content["tokens_out"]


async def test_entries_of_one_result_are_found_by_its_handle(
    client: httpx.AsyncClient, clock: StillClock
) -> None:
    await fill(client, clock)
    stored = (await client.get("/accounting/entries?outcome=store")).json()["entries"]
    handle = stored[0]["details"]["tool_output_handle"]
    await client.get(f"/results/{handle}/lines?limit=1")
    found = (await client.get("/accounting/entries", params={"handle": handle})).json()["entries"]
    assert [entry["type"] for entry in found] == ["tool", "read"]
    sums = (await client.get("/accounting/summary", params={"handle": handle, "group_by": "type"})).json()
    assert sums["total"]["entries"] == 2
    none = await client.get("/accounting/entries", params={"handle": handle, "session_id": "other"})
    assert len(none.json()["entries"]) == 2
    assert (await client.get("/accounting/entries?handle=nonsense")).status_code == 422
