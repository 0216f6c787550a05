"""The audit over HTTP: who read, changed or was refused what, from where, and nothing of the content."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from app.proxies import caller_address
from app.settings import Settings, load_settings
from domain.errors import ConfigError
from tests.conftest import Serve, served
from tests.faults.service_process import SERVE, Service
from tests.keys import by, key_file

pytestmark = pytest.mark.anyio

MARKER = "S3cretMarker"
BIG = f"{MARKER} line of the result\n" * 1000


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "audit.ndjson"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return key_file(tmp_path / "keys", "red:agent:agent:ci", "blue:other", "ops:admin:admin:ada")


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_each_reading_change_and_refusal_is_a_line_without_content(
    serve: Serve, target: Path, keys: Path
) -> None:
    async with serve(audit=str(target), api_keys_file=keys) as client:
        sent = {"tool_name": "t", "content": BIG, "session_id": "s"}
        stored = await client.post("/results", json=sent, headers=by("agent"))
        handle = stored.json()["handle"]
        read = await client.get(f"/results/{handle}/content", headers=by("agent"))
        await client.get(f"/results/{handle}/grep", params={"pattern": MARKER}, headers=by("agent"))
        asked = {"handle": handle, "extract": f"what is {MARKER}?"}
        await client.post("/extract", json=asked, headers=by("agent"))
        call = {"session_id": "s", "name": "tool_output", "arguments": asked}
        await client.post("/tools/call", json=call, headers=by("agent"))
        for key in ("other", "admin", f"wrong-{MARKER}"):
            await client.get(f"/results/{handle}/content", headers=by(key))
        await client.get("/sessions", headers=by("admin", **{"Spillgate-Tenant": "red"}))
        for path in ("/livez", "/readyz", "/docs", "/ui"):
            assert (await client.get(path)).status_code == 200
        assert (await client.get("/metrics", headers=by("admin"))).status_code == 200
        await client.delete(f"/results/{handle}", headers=by("agent"))
        await client.delete("/sessions/s", headers=by("agent"))
        await client.delete("/tenants/red", headers=by("admin"))
    assert MARKER not in target.read_text()
    shown = ("key", "tenant", "session_id", "route", "handle", "status", "code")
    assert [tuple(line[name] for name in shown) for line in lines_of(target)] == [
        ("ci", "red", "s", "POST /results", handle, 201, None),
        ("ci", "red", "s", "GET /results/{handle}/content", handle, 200, None),
        ("ci", "red", "s", "GET /results/{handle}/grep", handle, 200, None),
        ("ci", "red", "s", "POST /extract", handle, 200, None),
        ("ci", "red", "s", "POST /tools/call", handle, 200, None),
        (
            lines_of(target)[5]["key"],
            "blue",
            "s",
            "GET /results/{handle}/content",
            handle,
            404,
            "result_not_found",
        ),
        ("ada", "ops", "s", "GET /results/{handle}/content", handle, 403, "forbidden"),
        (None, None, "s", "GET /results/{handle}/content", handle, 401, "unauthorized"),
        ("ada", "red", None, "GET /sessions", None, 200, None),
        ("ci", "red", "s", "DELETE /results/{handle}", handle, 204, None),
        ("ci", "red", "s", "DELETE /sessions/{session_id}", None, 204, None),
        ("ada", "red", None, "DELETE /tenants/{tenant_id}", None, 200, None),
    ]
    first, second, *_, last = lines_of(target)
    assert second["bytes"] == len(read.content)
    assert first["bytes_received"] > len(BIG)
    assert (first["address"], first["request_id"]) == ("127.0.0.1", stored.headers["x-request-id"])
    assert (last["key_tenant"], last["role"]) == ("ops", "admin")


async def test_a_refusal_names_its_code_and_handle_also_where_the_model_is_told_it(
    serve: Serve, target: Path, tmp_path: Path
) -> None:
    keys = key_file(tmp_path / "keys", "red:agent", "blue:other", "red:seer:reveal")
    async with serve(audit=str(target), api_keys_file=keys) as client:
        sent = {"tool_name": "t", "content": BIG, "session_id": "s"}
        handle = (await client.post("/results", json=sent, headers=by("agent"))).json()["handle"]
        gone = handle[:-1] + ("0" if handle[-1] != "0" else "1")

        async def asked(key: str, *handles: str, session: str = "s", **question: str) -> None:
            arguments = {"handle": ",".join(handles), **question}
            body = {"session_id": session, "name": "tool_output", "arguments": arguments}
            assert (await client.post("/tools/call", json=body, headers=by(key))).status_code == 200

        for key, session in (("other", "s"), ("agent", "elsewhere")):
            passed = {"session_id": session, "tool_name": "w", "arguments": [f"spillgate://{handle}#lines=1"]}
            assert (await client.post("/arguments", json=passed, headers=by(key))).json()["refusal"]
            await asked(key, handle, session=session, pattern="x")
            await asked(key, handle, session=session, extract="what?")
        await asked("agent", handle, pattern="(")
        await asked("agent", handle, gone, pattern="x")
        await asked("agent", f"the result {MARKER}", pattern="x")
        for path in ("lines?offset=0", "grep", "query", "content?redact=false"):
            answer = await client.get(f"/results/{handle}/{path}", headers=by("agent"))
            assert answer.status_code in (403, 422)
        for path in ("content", "content?redact=false"):
            await client.get(f"/results/{handle}/{path}", headers=by("seer"))
    lines = lines_of(target)[1:]
    assert MARKER not in target.read_text()
    expected: list[tuple[str | None, int, str | None]] = [(handle, 200, "result_not_found")] * 6
    expected += [(handle, 200, "bad_pattern"), (handle, 200, None), (gone, 200, "result_not_found")]
    expected += [(None, 200, "result_not_found")]
    expected += [(handle, 422, "invalid_field")] * 3
    expected += [(handle, 403, "forbidden"), (handle, 200, None), (handle, 200, None)]
    assert [(line["handle"], line["status"], line["code"]) for line in lines] == expected
    assert [line["revealed"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert {line["session_id"] for line in lines if line["status"] in (403, 422)} == {"s"}


async def test_a_request_that_reads_several_results_is_a_line_for_each(serve: Serve, target: Path) -> None:
    message = {"role": "tool", "content": BIG, "tool_call_id": "a"}
    async with serve(audit=str(target)) as client:
        sent = {"messages": [message, {**message, "tool_call_id": "b", "content": BIG + BIG}], "model": "m"}
        assert (await client.post("/v1/compress", json=sent)).status_code == 200
    found = [line for line in lines_of(target) if line["route"] == "POST /v1/compress"]
    assert len(found) == len({line["handle"] for line in found}) == 2
    assert len({line["request_id"] for line in found}) == 1


async def test_the_file_is_for_its_owner_alone_and_is_never_rotated(serve: Serve, target: Path) -> None:
    target.touch(0o644)
    before = os.umask(0)
    try:
        async with serve(audit=str(target), accounting_export_max_bytes=1 << 16) as client:
            for _ in range(300):
                await client.post("/results", json={"tool_name": "t", "content": "x"})
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert len(lines_of(target)) == 300
    assert list(target.parent.glob("audit.ndjson*")) == [target]


async def test_an_audit_that_cannot_be_written_or_shares_its_place_refuses_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="SPILLGATE_AUDIT cannot be opened for writing"):
        async with served(storage_url="memory:", audit=str(tmp_path / "no" / "file")):
            pass
    for name, value in {
        "STORAGE_URL": f"disk://{tmp_path}/state",
        "ACCOUNTING_EXPORT": str(tmp_path / "entries"),
    }.items():
        monkeypatch.setenv(f"SPILLGATE_{name}", value)
    for wrong, why in (("state/audit", "directory of the stored results"), ("entries", "name the same file")):
        monkeypatch.setenv("SPILLGATE_AUDIT", str(tmp_path / wrong))
        with pytest.raises(ConfigError, match=why):
            load_settings()


async def test_a_process_writes_its_audit_to_the_end(tmp_path: Path, target: Path) -> None:
    service = Service(tmp_path / "state", tmp_path / "log", SERVE, {"audit": str(target)})
    await service.listening()
    try:
        async with service.client() as client:
            for _ in range(50):
                await client.post("/results", json={"tool_name": "t", "content": "x"})
        assert await service.stop() == 0
    finally:
        service.kill()
    assert len(lines_of(target)) == 50


@pytest.mark.parametrize(
    ("peer", "forwarded", "trusted", "address"),
    [
        ("10.0.0.9", "", ("10.0.0.0/8",), "10.0.0.9"),
        ("10.0.0.9", "203.0.113.7", (), "10.0.0.9"),
        ("10.0.0.9", "1.2.3.4, 203.0.113.7", ("10.0.0.0/8",), "203.0.113.7"),
        ("10.0.0.9", "203.0.113.7, 10.0.0.8", ("10.0.0.0/8",), "203.0.113.7"),
        ("::ffff:10.0.0.9", "203.0.113.7", ("10.0.0.0/8",), "203.0.113.7"),
        ("192.0.2.1", "203.0.113.7", ("10.0.0.0/8",), "192.0.2.1"),
        ("10.0.0.9", "203.0.113.7, nonsense", ("10.0.0.0/8",), "10.0.0.9"),
        (None, "203.0.113.7", ("unix",), "203.0.113.7"),
        (None, "203.0.113.7", ("10.0.0.0/8",), "unix"),
    ],
)
def test_only_a_trusted_proxy_names_the_caller(
    peer: str | None, forwarded: str, trusted: tuple[str, ...], address: str
) -> None:
    assert caller_address(peer, forwarded, trusted) == address


def test_a_wrong_proxy_refuses_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLGATE_TRUSTED_PROXIES", "10.0.0.0/8, balancer")
    with pytest.raises(ConfigError, match="write addresses or networks"):
        load_settings()
    assert Settings(trusted_proxies="10.0.0.0/8,unix").trusted_proxies == ("10.0.0.0/8", "unix")


async def test_the_log_names_where_a_wrong_key_came_from(tmp_path: Path, keys: Path) -> None:
    settings = {"api_keys_file": str(keys), "trusted_proxies": "127.0.0.1"}
    service = Service(tmp_path / "state", tmp_path / "log", SERVE, settings)
    await service.listening()
    try:
        async with service.client() as client:
            answer = await client.get("/sessions", headers=by("wrong", **{"X-Forwarded-For": "203.0.113.7"}))
            assert answer.status_code == 401
        await service.stop()
    finally:
        service.kill()
    (line,) = (line for line in service.lines() if line["event"] == "refused")
    assert (line["code"], line["address"]) == ("unauthorized", "203.0.113.7")
