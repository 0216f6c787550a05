"""Sessions: opened, changed, listed, ended; what happens to their results."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import StillClock
from tests.counts import count

pytestmark = pytest.mark.anyio

BIG = "x\n" * 10_000
TEXT = {"Content-Type": "text/plain"}


async def store(client: httpx.AsyncClient, session: str = "s", **fields: Any) -> httpx.Response:
    sent = {"session_id": session, "tool_name": "t", "content": BIG, **fields}
    return await client.post("/results", json=sent)


async def test_put_opens_and_changes_only_what_it_is_given(client: httpx.AsyncClient) -> None:
    await client.put("/sessions/s", json={"context_window": 50_000, "model": "m"})
    told = (await client.put("/sessions/s", json={"buffer_tokens": 0})).json()
    assert (told["context_window"], told["buffer_tokens"], told["model"]) == (50_000, 0, "m")
    assert told["budget"]["limit_tokens"] == 50_000 - 16_384
    told = (await client.put("/sessions/s", json={"context_window": None})).json()
    assert told["context_window"] is None
    assert told["budget"]["enforced"] is False


async def test_a_window_that_buffer_and_output_take_whole_draws_a_warning(client: httpx.AsyncClient) -> None:
    for window, warned in ((300, True), (301, False), (None, False)):
        sent = {"context_window": window, "buffer_tokens": 100, "max_output_tokens": 200}
        told = (await client.put("/sessions/s", json=sent)).json()
        assert ["every result is replaced" in text for text in told["warnings"]] == [True] * warned


async def test_a_first_result_opens_its_session(client: httpx.AsyncClient) -> None:
    assert (await client.get("/sessions/s")).status_code == 404
    await store(client)
    told = (await client.get("/sessions/s")).json()
    assert told["stored_results"] == 1
    assert told["expires_at"] - told["last_used_at"] == 86_400_000


async def test_the_session_policy_holds_for_its_results(client: httpx.AsyncClient) -> None:
    policy = {"max_bytes": 4, "tools": {"free_*": {"max_bytes": 0}}}
    await client.put("/sessions/s", json={"policy": policy})
    assert (await client.get("/sessions/s")).json()["policy"] == policy
    sent = {"session_id": "s", "content": "12345" * 400}
    assert (await client.post("/results", json={**sent, "tool_name": "t"})).status_code == 201
    assert (await client.post("/results", json={**sent, "tool_name": "free_x"})).status_code == 200
    over = {**sent, "tool_name": "t", "policy": {"max_bytes": 2000}}
    assert (await client.post("/results", json=over)).status_code == 200


async def test_ending_deletes_bodies_keeps_accounting_and_refuses_later_use(
    disk_client: httpx.AsyncClient, tmp_path: Path
) -> None:
    handle = (await store(disk_client)).json()["handle"]
    assert (await disk_client.delete("/sessions/s")).status_code == 204
    assert not list((tmp_path / "state" / "tool_output").rglob("*file-*"))
    for answer in (
        await disk_client.get(f"/results/{handle}"),
        await disk_client.get(f"/results/{handle}/content"),
        await disk_client.post("/extract", json={"handle": handle, "extract": "all"}),
        await store(disk_client),
        await disk_client.get("/sessions/s"),
        await disk_client.post("/sessions/s/usage", json={"used_tokens": 1}),
    ):
        assert answer.status_code == 410
        assert answer.json()["code"] == "session_ended"
    entries = (await disk_client.get("/accounting/entries?session_id=s")).json()["entries"]
    assert [entry["outcome"] for entry in entries] == ["store"]
    assert (await disk_client.delete("/sessions/s")).status_code == 204


async def test_put_opens_an_ended_session_anew(client: httpx.AsyncClient) -> None:
    first = (await store(client, tool_call_id="c")).json()
    await client.delete("/sessions/s")
    assert (await client.put("/sessions/s", json={})).json()["budget"]["reserved_tokens"] == 0
    again = (await store(client, tool_call_id="c")).json()
    assert again["handle"] != first["handle"]
    assert (await client.get(f"/results/{first['handle']}")).status_code in (404, 410)


async def test_the_default_session_is_emptied_and_lives_on(client: httpx.AsyncClient) -> None:
    handle = (await store(client, "default")).json()["handle"]
    assert (await client.delete("/sessions/default")).status_code == 204
    assert (await client.get(f"/results/{handle}")).status_code in (404, 410)
    assert (await store(client, "default")).status_code == 201


@pytest.mark.repeated
async def test_ending_a_session_that_is_only_now_being_opened_takes_nothing_from_it(
    client: httpx.AsyncClient,
) -> None:
    async def end(session: str, pause: float) -> int:
        await asyncio.sleep(pause)
        return (await client.delete(f"/sessions/{session}")).status_code

    for number in range(count(30, 150)):
        session = f"s{number}"
        answer, ended = await asyncio.gather(store(client, session), end(session, number % 30 / 5000))
        if answer.status_code == 201 and ended == 404:
            assert (await client.get(f"/results/{answer.json()['handle']}")).status_code == 200


async def test_sessions_are_listed_page_by_page(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await client.put(f"/sessions/s{number}", json={})
    await client.delete("/sessions/s3")
    for name in ("s1", "s4", "s4"):
        await client.post("/results", json={"session_id": name, "tool_name": "t", "content": "x" * 20_000})
    seen: list[tuple[str, int]] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await client.get("/sessions", params={"limit": 2, **cursor})).json()
        seen += [(session["session_id"], session["stored_results"]) for session in page["sessions"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == [("s0", 0), ("s1", 1), ("s2", 0), ("s4", 2)]


async def test_results_expire_after_their_last_use(client: httpx.AsyncClient, clock: StillClock) -> None:
    handle = (await store(client)).json()["handle"]
    clock.pass_seconds(80_000)
    assert (await client.get(f"/results/{handle}")).status_code == 200
    clock.pass_seconds(80_000)
    assert (await client.get(f"/results/{handle}")).status_code == 200
    clock.pass_seconds(86_401)
    answer = await client.get(f"/results/{handle}")
    assert answer.status_code == 410
    assert answer.json()["code"] == "result_expired"


async def test_a_session_id_that_is_no_safe_name_is_refused(client: httpx.AsyncClient) -> None:
    for name in ["a/b", "..", ".hidden", "a b", "é", "x" * 129, "a\x00"]:
        answer = await client.post("/results", json={"session_id": name, "tool_name": "t", "content": BIG})
        assert answer.status_code == 422
        assert name not in answer.text


async def test_a_policy_that_is_not_unicode_is_refused_and_spoils_no_list(client: httpx.AsyncClient) -> None:
    body = rb'{"policy": {"tools": {"\ud800": {"max_bytes": 1}}}}'
    headers = {"Content-Type": "application/json"}
    assert (await client.put("/sessions/s", content=body, headers=headers)).status_code == 422
    assert (await client.get("/sessions")).status_code == 200


async def test_a_policy_is_measured_in_bytes(client: httpx.AsyncClient) -> None:
    # 8,192 bytes at most in both places: 30 beside the name.
    for name, status in (("日" * 2720, 200), ("日" * 2721, 422)):
        policy = {"tools": {name: {"max_bytes": 1}}}
        assert (await client.put("/sessions/s", json={"policy": policy})).status_code == status
        sent = {"tool_name": "t", "content": "x", "policy": policy}
        assert (await client.post("/results", json=sent)).status_code == status


async def test_a_tenant_has_only_so_many_open_sessions(serve, clock: StillClock) -> None:  # type: ignore[no-untyped-def]
    async with serve(max_sessions=2) as client:
        await client.put("/sessions/a", json={})
        kept = (await store(client, "b")).json()["handle"]
        for refused in (
            await client.put("/sessions/c", json={}),
            await client.post("/sessions/c/usage", json={"used_tokens": 1}),
            await store(client, "c"),
            await store(client, "c", tool_call_id="named"),
        ):
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_sessions")
            assert "`max_sessions` of 2" in refused.json()["detail"]
            assert refused.json()["retryable"] is True
            assert 3590 <= int(refused.headers["retry-after"]) <= 3600
        assert refused.json()["stored"] is False
        assert (await client.get("/healthz")).json()["stored_bytes"] == len(BIG)
        assert (await client.get("/sessions/c")).status_code == 404
        assert len((await client.get("/accounting/entries")).json()["entries"]) == 1
        metrics = (await client.get("/metrics")).text
        assert 'spillgate_tenant_sessions{tenant="default"} 2.0\n' in metrics
        assert 'spillgate_tenant_sessions_cap{tenant="default"} 2.0\n' in metrics
        # The open ones go on, and ending one makes room.
        assert (await store(client, "b")).status_code == 201
        assert (await client.get(f"/results/{kept}/content")).text == BIG
        assert (await client.delete("/sessions/b?keep_results=true")).status_code == 204
        assert (await store(client, "c")).status_code == 201
        assert (await client.get(f"/results/{kept}/content")).text == BIG
        assert (await client.get("/sessions/b")).status_code == 404
        assert (await client.delete("/sessions/b?keep_results=true")).status_code == 404
        # So does one that nothing used for an hour: the other is in use.
        clock.pass_seconds(3590)
        assert (await store(client, "c")).status_code == 201
        clock.pass_seconds(10)
        again = await store(client, "b")
        assert (again.status_code, again.json()["budget"]["used_tokens"]) == (201, 0)
        assert (await client.get("/sessions/a")).status_code == 404
        assert (await client.get("/sessions/c")).status_code == 200


async def test_at_its_bound_the_ledger_sums_up_its_oldest_entries_and_takes_every_result(
    serve, clock: StillClock
) -> None:  # type: ignore[no-untyped-def]
    async with serve(ledger_max_bytes=40_000) as client:
        for number in range(60):
            assert (await store(client, f"s-{number // 5}")).status_code == 201
            clock.pass_seconds(300)
        kept = (await client.get("/accounting/entries")).json()["entries"]
        assert 1 <= len(kept) < 30
        summary = (await client.get("/accounting/summary?group_by=tool_name")).json()
        assert summary["total"]["entries"] == 60
        assert summary["total"]["tokens_saved"] > 59 * kept[0]["tokens_saved"]
        series = 'spillgate_tenant_ledger_bytes{tenant="default"} '
        size = (await client.get("/metrics")).text.partition(series)[2].split()[0]
        assert 20_000 <= float(size) < 45_000
        assert (await client.get("/readyz")).status_code == 200


async def test_labels_are_bounded(client: httpx.AsyncClient) -> None:
    for field, most in [
        ("tool_name", 256),
        ("tool_call_id", 256),
        ("model", 256),
        ("provider", 128),
        ("tool_kind", 128),
        ("tool_namespace", 128),
    ]:
        for size, status in ((most, 200), (most + 1, 422)):
            sent = {"tool_name": "t", "content": "x", field: "é" * size}
            answer = await client.post("/results", json=sent)
            assert answer.status_code == status
            query = {name: value for name, value in sent.items() if name != "content"}
            assert (
                await client.post("/results", params=query, content="x", headers=TEXT)
            ).status_code == status
        assert f"{most}" in answer.json()["detail"]
        assert field in answer.json()["detail"]
