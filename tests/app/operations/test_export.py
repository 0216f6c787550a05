"""The accounting as a file, and metrics at a port of their own: what a platform team collects."""

import asyncio
import errno
import json
import os
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.operations import export, line_writer
from app.operations.line_writer import LineWriter
from app.settings import load_settings
from domain.errors import ConfigError
from machine.descriptors import write_all
from tests.conftest import Serve
from tests.faults.service_process import SERVE, Service

pytestmark = pytest.mark.anyio

BIG = "".join(f"line {number} of the result\n" for number in range(1000))


def lines_of(*files: Path) -> list[Any]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


async def test_every_entry_is_in_the_file_once_and_as_the_accounting_has_it(
    serve: Serve, tmp_path: Path
) -> None:
    target = tmp_path / "entries.ndjson"
    async with serve(accounting_export=str(target)) as client:
        sent = {"tool_name": "t", "content": BIG, "tool_call_id": "c"}
        stored = (await client.post("/results", json=sent)).json()
        await client.post("/results", json=sent)
        await client.post("/results", json={"tool_name": "t", "content": "small"})
        await client.post("/extract", json={"handle": stored["handle"], "extract": "line 7"})
        await client.get(f"/results/{stored['handle']}/lines")
        entries = (await client.get("/accounting/entries")).json()["entries"]
    assert sorted(lines_of(target), key=lambda one: one["id"]) == sorted(entries, key=lambda one: one["id"])
    assert {one["type"] for one in entries} == {"tool", "extract", "read"}


async def test_the_file_is_appended_to_and_rotated_at_its_size(serve: Serve, tmp_path: Path) -> None:
    target = tmp_path / "entries.ndjson"
    # A process that was killed while the disk was full left a part of a line.
    target.write_text(torn := '{"id":"entry-')
    for _ in range(2):
        async with serve(accounting_export=str(target), accounting_export_max_bytes=1 << 16) as client:
            for number in range(60):
                sent = {"tool_name": "t", "content": "x", "tool_arguments": "a" * number}
                assert (await client.post("/results", json=sent)).status_code == 200
            before = (await client.get("/accounting/entries?limit=1000")).json()["entries"]
    files = sorted(tmp_path.glob("entries.ndjson*"), reverse=True)
    assert len(files) > 1
    files[0].write_text(files[0].read_text().removeprefix(f"{torn}\n"))
    assert [one["id"] for one in lines_of(*files)] == [one["id"] for one in before]
    assert all(file.stat().st_size <= 1 << 16 for file in files)


@pytest.mark.parametrize("what", ["deleted", "moved"])
async def test_a_file_that_is_no_longer_in_its_place_is_made_again(
    serve: Serve, tmp_path: Path, what: str
) -> None:
    target, moved = tmp_path / "entries.ndjson", tmp_path / "moved"
    async with serve(accounting_export=str(target)) as client:
        await client.post("/results", json={"tool_name": "first", "content": "x"})
        async with asyncio.timeout(30):
            while not target.exists() or not target.read_text().endswith("\n"):
                await asyncio.sleep(0.01)
        target.rename(moved)
        if what == "deleted":
            moved.unlink()
        else:
            target.touch()
        await client.post("/results", json={"tool_name": "second", "content": "x"})
    assert [one["tool_name"] for one in lines_of(target)] == ["second"]


@pytest.mark.parametrize(
    ("setting", "metric"),
    [("accounting_export", "export_lost"), ("audit", "audit_dropped")],
    ids=["export", "audit"],
)
@pytest.mark.parametrize("fault", ["full", "slow"])
async def test_what_cannot_be_written_is_counted_and_delays_no_request(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
    setting: str,
    metric: str,
) -> None:
    stuck = threading.Event()
    if fault == "slow":
        monkeypatch.setattr(line_writer, "MOST_WAITING", 1)
        monkeypatch.setattr(line_writer, "CLOSE_SECONDS", 0.0)
        monkeypatch.setattr(LineWriter, "_write_waiting", lambda writer: stuck.wait())
    async with serve(**{setting: "/dev/full" if fault == "full" else "-"}) as client:
        for _ in range(3):
            assert (await client.post("/results", json={"tool_name": "t", "content": "x"})).status_code == 200
        lost = 3.0 if fault == "full" else 2.0
        async with asyncio.timeout(30):
            while f"spillgate_{metric}_total {lost}" not in (await client.get("/metrics")).text:
                await asyncio.sleep(0.01)
        (told,) = [record for record in caplog.records if "are lost" in record.getMessage()]
    stuck.set()
    assert told.getMessage() == f"Lines of SPILLGATE_{setting.upper()} are lost."
    why = "ENOSPC" if fault == "full" else "1 lines wait: what reads them has stopped, or is too slow"
    target = "/dev/full" if fault == "full" else "-"
    fields = told.fields  # type: ignore[attr-defined]
    assert (fields["target"], fields["why"]) == (target, why)
    # Lines are written together.
    assert 1 <= fields["lost"] <= lost


async def test_a_service_on_a_socket_shows_its_metrics_at_a_port_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    keys = tmp_path / "keys"
    keys.write_text(f"team:{'0' * 64}\n")
    keys.chmod(0o600)
    settings = {
        "uds": str(directory / "s"),
        "metrics_address": "127.0.0.1:0",
        "api_keys_file": str(keys),
        "accounting_export": "-",
    }
    service = Service(tmp_path / "state", tmp_path / "log", SERVE, settings)
    await service.listening()
    try:
        url = next(line["metrics"] for line in service.lines() if line["event"] == "listening")
        base = url.removesuffix("/metrics")
        async with httpx.AsyncClient(base_url=base, headers={"Host": "10.1.2.3"}) as client:
            assert "spillgate_up_info" in (await client.get("/metrics")).text
            assert (await client.get("/livez")).json() == {"status": "ok"}
            assert (await client.get("/readyz")).status_code == 200
            for path in ("/healthz", "/docs", "/sessions", "/accounting/entries", "/openapi.json"):
                assert (await client.get(path)).status_code == 404
            refused = await client.post("/results", json={"tool_name": "t", "content": "x"})
            assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        transport = httpx.AsyncHTTPTransport(uds=settings["uds"])
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/metrics")).status_code == 401
    finally:
        service.kill()


def test_a_wrong_address_says_how_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ["9377", ":9377", "host:", "host:99999", "host:x"]:
        monkeypatch.setenv("SPILLGATE_METRICS_ADDRESS", address)
        with pytest.raises(ConfigError, match="write host:port"):
            load_settings()


def test_the_port_of_the_service_is_not_the_one_for_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    monkeypatch.setenv("SPILLGATE_METRICS_ADDRESS", f"127.0.0.1:{port}")
    monkeypatch.setenv("SPILLGATE_PORT", port)
    with pytest.raises(ConfigError, match="Name another one"):
        load_settings()


async def test_files_of_the_export_are_for_this_user_alone(serve: Serve, tmp_path: Path) -> None:
    target = tmp_path / "entries.ndjson"
    before = os.umask(0)
    try:
        async with serve(accounting_export=str(target), accounting_export_max_bytes=1 << 16) as client:
            for _ in range(130):
                await client.post("/results", json={"tool_name": "t", "content": "x"})
    finally:
        os.umask(before)
    files = list(tmp_path.glob("entries.ndjson*"))
    assert len(files) > 1
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


async def test_an_export_follows_no_symbolic_link(serve: Serve, tmp_path: Path) -> None:
    target, elsewhere = tmp_path / "entries.ndjson", tmp_path / "elsewhere"
    target.symlink_to(elsewhere)
    for check in (
        lambda: line_writer.check_target(str(target), export.EXPORT_SETTING),
        lambda: line_writer.JsonLines(export.EXPORT_SETTING, str(target), int, 1),
    ):
        with pytest.raises(ConfigError, match="symbolic link"):
            check()
    target.unlink()
    async with serve(accounting_export=str(target)) as client:
        target.rename(tmp_path / "moved")
        target.symlink_to(elsewhere)
        await client.post("/results", json={"tool_name": "t", "content": "x"})
        async with asyncio.timeout(30):
            while "spillgate_export_lost_total 1.0" not in (await client.get("/metrics")).text:
                await asyncio.sleep(0.01)
    assert not elsewhere.exists()


async def test_a_line_after_a_torn_one_begins_on_its_own(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "entries.ndjson"

    def fill_disk(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:10])
        monkeypatch.setattr(line_writer, "write_all", write_all)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(line_writer, "write_all", fill_disk)
    async with serve(accounting_export=str(target)) as client:
        await client.post("/results", json={"tool_name": "lost", "content": "x"})
        async with asyncio.timeout(30):
            while "spillgate_export_lost_total 1.0" not in (await client.get("/metrics")).text:
                await asyncio.sleep(0.01)
        await client.post("/results", json={"tool_name": "written", "content": "x"})
    torn, *whole = target.read_text().splitlines()
    assert len(torn) == 10
    assert [json.loads(line)["tool_name"] for line in whole] == ["written"]
