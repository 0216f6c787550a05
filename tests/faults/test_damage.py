"""What a person or a bad disk does to the files of a running service: it is named, and nothing else fails."""

import asyncio
import json
import os
import runpy
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.calls import Call, Kept, statuses, text_of
from tests.faults.service_process import Services, service_with

pytestmark = pytest.mark.anyio

SWEEPING = service_with("sweeping often")
SECONDS = 30


async def store(client: httpx.AsyncClient, session_id: str, name: str) -> Kept:
    call = Call(session_id, text_of(name, 20_000))
    return Kept.of(call, await call.send(client))


def info_of(state: Path, kept: Kept) -> Path:
    session, _, file = kept.handle.partition("/")
    return state / "tool_output" / "default" / session / f".{file}.json"


def body_of(state: Path, kept: Kept) -> Path:
    return state / "tool_output" / "default" / kept.handle


def with_checksum(info: Any) -> bytes:
    """An info like one of the service: the checksum is of all the rest."""
    line = json.dumps(info).encode()
    return b'{"crc32":"%08x",' % zlib.crc32(line) + line[1:]


def changed(data: bytes, **fields: Any) -> bytes:
    info = json.loads(data)
    del info["crc32"]
    info.get("stored", info).update(fields)
    return with_checksum(info)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "one byte is not UTF-8": lambda data: data.replace(b"execute_shell", b"exec\xffte_shell"),
    "one byte is another letter": lambda data: data.replace(b"execute_shell", b"execute_shelL"),
    "nested": lambda data: b'{"x":' + b"[" * 100_000,
    "nested, with a checksum": lambda data: b'{"crc32":"%08x",' % zlib.crc32(deep) + deep[1:],
    "negative sizes": lambda data: data.replace(b'"bytes":', b'"bytes":-'),
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "wrong types, with a checksum": lambda data: changed(data, measure=[1], stored_at="now"),
    "of another handle": lambda data: changed(
        data, handle=["damaged", "0" * 8 + "-0000" * 3 + "-" + "0" * 12]
    ),
    "of another tenant": lambda data: changed(data, tenant="other"),
    "huge": lambda data: data + b" " * (9 << 20),
    "not JSON": lambda data: os.urandom(512),
}
deep = b'{"x":' + b"[" * 100_000


async def test_a_damaged_info_is_not_found_by_any_route_and_named_in_one_warning(
    services: Services, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    service = await services.start(state, SWEEPING)
    async with service.client() as client:
        damaged = {name: await store(client, "damaged", name) for name in DAMAGES}
        whole = await store(client, "damaged", "whole")
        for kept in damaged.values():
            # So that the sweep looks at it: it drops the index of a result that is gone.
            asked = {"handle": kept.handle, "extract": "404 result", "mode": "retrieve"}
            assert (await client.post("/extract", json=asked)).status_code == 200
        for name, kept in damaged.items():
            info = info_of(state, kept)
            info.write_bytes(DAMAGES[name](info.read_bytes()))
        for kept in damaged.values():
            warnings = await service.logged(info_of(state, kept).name)
            assert warnings[0]["path"] == f"tool_output/default/session-damaged/{info_of(state, kept).name}"
            assert await statuses(client, kept.handle) == {404}
            assert len(await service.logged(info_of(state, kept).name)) == 1
        cut = await store(client, "damaged", "cut")
        body_of(state, cut).write_bytes(b"cut")
        assert (await client.get(f"/results/{cut.handle}/content")).status_code == 404
        assert len(await service.logged(f"/{body_of(state, cut).name} is not as long")) == 1
        assert (await client.get(f"/results/{whole.handle}")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.get("/sessions/damaged")).status_code == 200
        assert (await client.delete(f"/results/{damaged['empty'].handle}")).status_code == 404
    assert await service.stop() == 0
    assert service.failures() == []
    service = await services.start(state)
    async with service.client() as client:
        assert (await client.get(f"/results/{damaged['nested'].handle}")).status_code == 404
        assert (await client.get(f"/results/{whole.handle}")).status_code == 200
        assert (await client.delete("/sessions/damaged")).status_code == 204
    assert list((state / "tool_output").rglob("*file-*")) == []
    assert service.failures() == []


async def test_damaged_rows_of_the_ledger_are_left_out_and_stop_no_other(
    services: Services, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    service = await services.start(state)
    damages = {
        "reports": "UPDATE sessions SET reports = '[1' WHERE session_id LIKE 'reports-%'",
        "epoch": "UPDATE sessions SET epoch = 'first' WHERE session_id LIKE 'epoch-%'",
        "model": "UPDATE sessions SET model = x'ff' WHERE session_id LIKE 'model-%'",
    }
    ids = [f"{name}-{use}" for name in damages for use in ("put", "end", "used")]
    call = Call("whole", text_of("named", 20_000), call_id="call-1")
    async with service.client() as client:
        results = {session_id: await store(client, session_id, session_id) for session_id in ids}
        whole, named = await store(client, "whole", "whole"), Kept.of(call, await call.send(client))
        over = await store(client, "over", "over")
        assert (await client.delete("/sessions/over")).status_code == 204
    # Stopped, because a running service has its sessions in memory.
    assert await service.stop() == 0
    with closing(sqlite3.connect(state / "ledger.db", isolation_level=None)) as database, database:
        for damage in damages.values():
            database.execute(damage)
        database.execute("UPDATE sessions SET model = x'ff', ended_at = 1 WHERE session_id = 'over'")
        lost = [results[ids[0]].entry_id, named.entry_id]
        database.execute("UPDATE entries SET entry = x'7bff' WHERE id IN (?, ?)", lost)
    # No room for one more session: what replaces a damaged one opens none.
    service = await services.start(state, SWEEPING, max_sessions=str(len(ids) + 1))
    async with service.client() as client:
        for session_id in 2 * ids:
            assert (await client.get(f"/sessions/{session_id}")).status_code == 404
        listed = (await client.get("/sessions")).json()["sessions"]
        assert [one["session_id"] for one in listed] == ["whole"]
        page = (await client.get("/accounting/entries")).json()
        kept = {one.entry_id for one in (*results.values(), whole, over)} - set(lost)
        assert {one["id"] for one in page["entries"]} == kept
        resent = [Kept.of(call, await call.send(client)) for _ in range(2)]
        assert resent[0] == resent[1]
        for name in damages:
            answer = await client.put(f"/sessions/{name}-put", json={"context_window": 50_000})
            assert answer.status_code == 200
            assert (await client.get(f"/sessions/{name}-put")).json()["context_window"] == 50_000
            await store(client, f"{name}-used", "again")
            assert (await client.get(f"/sessions/{name}-used")).status_code == 200
        for name in damages:
            assert (await client.delete(f"/sessions/{name}-end")).status_code == 204
            assert (await client.get(f"/results/{results[f'{name}-end'].handle}")).status_code == 410
        for session_id in ids:
            assert len(await service.logged(f"session default/{session_id} ")) == 1
        # The sweep deletes it.
        await service.logged("session default/over ")
    assert await service.stop() == 0
    assert service.failures() == []
    with closing(sqlite3.connect(state / "ledger.db")) as database, database:
        live = dict(database.execute("SELECT session_id, ended_at IS NULL FROM sessions"))
        counted = database.execute("SELECT sessions FROM tenants WHERE tenant = 'default'").fetchone()
    assert "over" not in live
    assert counted == (sum(live.values()),) == (len(ids) + 1 - len(damages),)


async def test_a_damaged_index_of_the_ledger_is_told_to_callers_and_in_the_log(
    services: Services, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    service = await services.start(state)
    async with service.client() as client:
        kept = await store(client, "one", "one")
    assert await service.stop() == 0
    path, of_index = state / "ledger.db", "FROM sqlite_master WHERE name = 'entries_of_session'"
    with closing(sqlite3.connect(path)) as database:
        (page,) = database.execute(f"SELECT rootpage {of_index}").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
        # So that the sweep has something to delete.
        database.execute("UPDATE entries SET timestamp = 1")
        database.commit()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(bytes(size))
    service = await services.start(state)
    async with service.client() as client:
        answer = await client.get("/accounting/entries", params={"session_id": "one"})
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert "The ledger's file is damaged" in answer.json()["detail"]
        assert (await client.get(f"/results/{kept.handle}")).status_code == 200
        (told, *_) = await service.logged("sweep failed")
        assert told["why"].startswith(f"{answer.json()['detail']} Cause: SQLITE_CORRUPT, ")
    assert await service.stop() == 0
    assert service.failures() == []


async def test_damaged_values_of_the_ledger_stop_neither_sweeps_nor_other_requests(
    services: Services, tmp_path: Path
) -> None:
    state, ids = tmp_path / "state", ("text", "blob", "model", "name", "time", "old", "whole")
    calls = [Call(name, text_of(name, 20_000), call_id="call-1") for name in ids]
    service = await services.start(state)
    async with service.client() as client:
        kept = [Kept.of(call, await call.send(client)) for call in calls]
        for name in ids:
            await store(client, name, f"{name} without an id")
    assert await service.stop() == 0
    with closing(sqlite3.connect(state / "ledger.db", isolation_level=None)) as database, database:
        for damage in (
            "UPDATE entries SET text = CAST(x'ff41' AS TEXT) WHERE session_id = 'text' AND text IS NOT NULL",
            "UPDATE entries SET text = x'ff' WHERE session_id = 'blob' AND text IS NOT NULL",
            "UPDATE sessions SET model = CAST(x'ff41' AS TEXT) WHERE session_id = 'model'",
            "UPDATE sessions SET session_id = CAST(x'ff41' AS TEXT) WHERE session_id = 'name'",
            "UPDATE entries SET timestamp = 'then' WHERE session_id = 'time'",
            "UPDATE entries SET text = CAST(x'ff41' AS TEXT), timestamp = 1 WHERE session_id = 'old'",
            "UPDATE findings SET text = x'ff'",
            "UPDATE tenants SET bytes = 'many'",
            "UPDATE period_sums SET period = 'then' WHERE period = (SELECT min(period) FROM period_sums)",
        ):
            database.execute(damage)
    service = await services.start(state, SWEEPING, max_sessions="100")
    async with service.client() as client, asyncio.timeout(SECONDS):
        old = {"session_id": "old"}
        while (await client.get("/accounting/entries", params=old)).json()["entries"]:
            assert service.failures() == []
            await asyncio.sleep(0.05)
        for call, before in zip(calls, kept, strict=True):
            assert (await call.send(client)).status_code == 201
            assert (await Call(call.session_id, b"short").send(client)).status_code == 200
            for path in (f"/sessions/{call.session_id}", f"/results/{before.handle}/given"):
                assert (await client.get(path)).status_code == 200
        for path in ("/sessions", "/accounting/summary?group_by=day", "/tenants", "/readyz", "/metrics"):
            assert (await client.get(path)).status_code == 200
        while (await client.delete("/tenants/default")).status_code == 202:
            pass
        assert (await client.get("/tenants")).json()["tenants"] == []
    assert await service.stop() == 0
    assert service.failures() == []


@pytest.mark.parametrize(("fault", "ends"), [("sweeps that raise", False), ("a sweep that panics", True)])
async def test_a_background_fault_is_logged_and_the_task_starts_again_or_the_process_ends(
    services: Services, tmp_path: Path, fault: str, ends: bool
) -> None:
    service = await services.start(tmp_path / "state", service_with(fault))
    if ends:
        assert await service.ended() == 1
        (failed,) = [line for line in service.lines() if line["level"] == "critical"]
        assert (failed["task"], failed["error"]["type"]) == ("sweep", "Panic")
        assert "faulty" in failed["error"]["frames"][-1]
        return
    async with service.client() as client:
        async with asyncio.timeout(SECONDS):
            while 'spillgate_task_faults_total{task="sweep"} 3.0' not in (await client.get("/metrics")).text:
                await asyncio.sleep(0.02)
        failed, *others = await service.logged("background task failed")
        assert len(others) == 2
        assert (failed["task"], failed["error"]["type"]) == ("sweep", "RuntimeError")
        assert "faulty" in failed["error"]["frames"][-1]
        assert (await client.get("/readyz")).status_code == 200
        await store(client, "after", "after")
    assert await service.stop() == 0


async def test_a_process_whose_stores_are_closed_by_a_fault_does_not_go_on(
    services: Services, tmp_path: Path
) -> None:
    """Any early end of the lifespan ends the process, also one by a failed supervisor."""
    service = await services.start(tmp_path / "state", service_with("sweeps that raise, unsupervised"))
    assert await service.ended() == 1


async def ready(client: httpx.AsyncClient, status: int) -> str:
    """The problem's detail, once readiness answers with this status."""
    async with asyncio.timeout(SECONDS):
        while (answer := await client.get("/readyz")).status_code != status:
            await asyncio.sleep(0.05)
    return str(answer.json().get("detail", ""))


@pytest.mark.parametrize(
    "name", ["tool_output", "drafts", "lock", "ledger.db", "ledger.db-wal", "ledger.db.lock", "."]
)
async def test_what_was_moved_away_under_the_service_is_not_written_to_until_it_is_back(
    services: Services, tmp_path: Path, name: str
) -> None:
    state = tmp_path / "state"
    service = await services.start(state, service_with("FRESH_SECONDS=0.2"))
    moved, away = (state / name).resolve(), tmp_path / "away"
    async with service.client() as client:
        kept = await store(client, "moved", "before")
        assert await ready(client, 200) == ""
        for is_link in (False, True):
            moved.rename(away)
            # Replaced by one of the same kind, as a person who notices would do, or by a link to itself.
            if is_link:
                moved.symlink_to(moved)
            else:
                moved.mkdir() if away.is_dir() else moved.write_bytes(b"")
            for size in (20_000, 20):
                refused = await Call("moved", text_of("between", size)).send(client)
                if name == "." or name.startswith("ledger") or (size > 20 and name == "tool_output"):
                    assert (refused.status_code, refused.json()["stored"]) == (503, False)
            detail = await ready(client, 503)
            assert "The storage directory" in detail if name == "." else name in detail
            assert "deleted or replaced" in detail
            moved.rmdir() if away.is_dir() and not is_link else moved.unlink()
            away.rename(moved)
            await ready(client, 200)
        assert (await client.get(f"/results/{kept.handle}")).status_code == 200
        again = await store(client, "moved", "after")
    assert await service.stop() == 0
    service = await services.start(state)
    async with service.client() as client:
        for one in (kept, again):
            assert (await client.get(f"/results/{one.handle}")).status_code == 200
        entries = (await client.get("/accounting/entries")).json()["entries"]
        assert {kept.entry_id, again.entry_id} <= {entry["id"] for entry in entries}


async def test_sessions_and_entries_expire_while_the_store_is_not_ready(
    services: Services, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    times = {"retention_seconds": "1", "ledger_retention_seconds": "1"}
    service = await services.start(state, SWEEPING, **times)
    (state / "drafts").rename(tmp_path / "away")
    async with service.client() as client, asyncio.timeout(SECONDS):
        await ready(client, 503)
        assert (await Call("passes", b"short").send(client)).status_code == 200
        while (await client.get("/sessions/passes")).status_code != 404:
            await asyncio.sleep(0.02)
        while (await client.get("/accounting/entries")).json()["entries"]:
            await asyncio.sleep(0.02)
        assert (await client.get("/readyz")).status_code == 503


async def test_nothing_is_acknowledged_after_the_ledger_was_deleted(
    services: Services, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    service = await services.start(state)
    async with service.client() as client:
        await store(client, "deleted", "before")
        for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
            (state / name).unlink()
        answers = [
            await Call("deleted", text_of("after", 20_000)).send(client),
            await client.post("/results", json={"tool_name": "t", "content": "small"}),
            await client.put("/sessions/other", json={}),
            await client.delete("/sessions/deleted"),
        ]
        assert [answer.status_code for answer in answers] == [503] * 4
        assert all("ledger.db was deleted" in answer.json()["detail"] for answer in answers)
        assert (await client.get("/livez")).status_code == 200
    assert await service.stop() == 0
    service = await services.start(state)
    async with service.client() as client:
        await ready(client, 200)


async def test_directories_where_files_belong_stop_neither_the_start_nor_the_end_of_a_session(
    services: Services, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    service = await services.start(state)
    async with service.client() as client:
        full, empty, info, whole = [await store(client, "odd", f"{number}") for number in range(4)]
        other = await store(client, "other", "other")
    assert await service.stop() == 0
    for kept, path in (
        (full, body_of(state, full)),
        (empty, body_of(state, empty)),
        (info, info_of(state, info)),
    ):
        path.unlink()
        path.mkdir()
        if kept is not empty:
            (path / "of a person").write_text("keep me")
    for name in ("draft-0", "draft-1/inner"):
        (state / "drafts" / name).mkdir(parents=True)
    (state / "tool_output" / "default" / "session-file").write_text("a file")
    (state / "tool_output" / "tenant").write_text("a file")

    service = await services.start(state, SWEEPING)
    async with service.client() as client:
        assert (await client.get("/readyz")).status_code == 200
        for kept in (full, empty, info):
            assert (await client.get(f"/results/{kept.handle}")).status_code == 404
        refused = await Call("file", text_of("file", 20_000)).send(client)
        assert refused.status_code == 503
        for session in ("odd", "file"):
            await client.put(f"/sessions/{session}", json={})
            assert (await client.delete(f"/sessions/{session}")).status_code == 204
            await client.put(f"/sessions/{session}", json={})
            await store(client, session, f"{session} again")
        assert (await client.get(f"/results/{whole.handle}")).status_code in (404, 410)
        assert (await client.get(f"/results/{other.handle}")).status_code == 200
    assert await service.stop() == 0
    assert service.failures() == []
    named = [line["path"] for line in service.lines() if "path" in line]
    assert sorted(named) == sorted(
        [
            f"tool_output/default/{full.handle}",
            f"tool_output/default/{info_of(state, info).relative_to(state / 'tool_output/default')}",
            "drafts/draft-1",
            "tool_output/default/session-file",
            "tool_output/tenant",
        ]
    )
    assert (body_of(state, full) / "of a person").exists()


@pytest.mark.parametrize("name", ["tool_output", "drafts", "lock", "ledger.db", "."])
async def test_a_start_that_a_wrong_kind_of_file_prevents_names_it(
    services: Services, tmp_path: Path, name: str
) -> None:
    state = tmp_path / "state"
    path = (state / name).resolve()
    if name in ("lock", "ledger.db"):
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_text("a file")
    service = services.spawn(state)
    assert await service.ended() != 0
    assert str(path) in service.tail()


def test_settings_in_the_shell_of_a_developer_do_not_stop_the_process_that_forks_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLGATE_POLICY_FILE", str(tmp_path / "none.toml"))
    monkeypatch.setenv("SPILLGATE_UNKNOWN", "1")
    runpy.run_module("tests.faults.preloaded")
