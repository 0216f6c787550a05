"""The policy file of a running service: taken up on change, whole, and never a bad one."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import policy_reload
from tests.conftest import Serve
from tests.extraction.backend import Backend
from tests.faults.service_process import Services

pytestmark = pytest.mark.anyio

PATIENCE_SECONDS = 60


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_reload, "POLL_SECONDS", 0.01)


async def eventually(holds: Callable[[], Awaitable[Any]]) -> None:
    """Asks until it does; the service looks at the file every now and then."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await holds():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.01)


async def outcome(client: httpx.AsyncClient, size: int) -> str:
    """Of `size` bytes, each a token or more: a message is much smaller."""
    content = "\U000e0100" * (size // 4) + "x" * (size % 4)
    answer = await client.post("/results", json={"tool_name": "t", "content": content})
    answer.raise_for_status()
    return str(answer.json()["outcome"])


async def metric(client: httpx.AsyncClient, line: str) -> bool:
    return line in (await client.get("/metrics")).text.splitlines()


async def test_a_changed_file_is_taken_up(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spillgate.policies")
    policy = tmp_path / "policy.toml"
    policy.write_text("[defaults]\nmax_bytes = 1000\n")
    async with serve(policy_file=policy) as client:
        assert await outcome(client, 1010) == "store"
        policy.write_text("[defaults]\nmax_bytes = 10000\n")
        await eventually(lambda: metric(client, 'spillgate_policy_reloads_total{status="ok"} 1.0'))
        assert await outcome(client, 1010) == "pass"
        assert await outcome(client, 10010) == "store"
    assert [line.levelname for line in caplog.records if line.message == "policy file reloaded"] == ["INFO"]


async def test_a_file_renamed_over_it_and_a_link_that_leads_elsewhere_are_changes(
    serve: Serve, tmp_path: Path
) -> None:
    """Replaces a file like an editor, and like Kubernetes a ConfigMap: policy.toml -> ..data/policy.toml."""
    for number, cap in enumerate((1000, 2000)):
        (tmp_path / f"v{number}").mkdir()
        (tmp_path / f"v{number}" / "policy.toml").write_text(f"[defaults]\nmax_bytes = {cap}\n")
    (tmp_path / "..data").symlink_to("v0")
    (tmp_path / "policy.toml").symlink_to("..data/policy.toml")
    async with serve(policy_file=tmp_path / "policy.toml") as client:
        assert await outcome(client, 1500) == "store"
        (tmp_path / "new").symlink_to("v1")
        (tmp_path / "new").rename(tmp_path / "..data")
        await eventually(lambda: metric(client, 'spillgate_policy_reloads_total{status="ok"} 1.0'))
        assert await outcome(client, 1500) == "pass"
        edited = tmp_path / "v1" / ".policy.toml.swp"
        edited.write_text("[defaults]\nmax_bytes = 1200\n")
        edited.rename(tmp_path / "v1" / "policy.toml")
        await eventually(lambda: metric(client, 'spillgate_policy_reloads_total{status="ok"} 2.0'))
        assert await outcome(client, 1500) == "store"


async def test_a_bad_file_keeps_the_old_one_and_says_so_until_it_is_mended(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[defaults]\nmax_bytes = 1000\n")
    async with serve(policy_file=policy) as client:
        policy.write_text("[defaults]\n\nmax_byte = 1\n[tools.t]\nbypass = 1\n")
        await eventually(lambda: metric(client, "spillgate_policy_stale 1.0"))
        assert [await outcome(client, size) for size in (1000, 1010)] == ["pass", "store"]
        assert (await client.get("/readyz")).status_code == 200
        (said,) = [line for line in caplog.records if line.levelname == "ERROR"]
        assert said.message == "policy file not reloaded, the one before stays in force"
        assert said.__dict__["fields"]["errors"] == [
            "policy.toml, line 3: defaults.max_byte is not a key; max_bytes is.",
            "policy.toml, line 5: tools.t.bypass must be true or false.",
        ]
        policy.unlink()
        await eventually(lambda: metric(client, 'spillgate_policy_reloads_total{status="failed"} 2.0'))
        assert [await outcome(client, size) for size in (1000, 1010)] == ["pass", "store"]
        policy.write_text("[defaults]\nmax_bytes = 10000\n")
        await eventually(lambda: metric(client, "spillgate_policy_stale 0.0"))
        assert await outcome(client, 1010) == "pass"


async def test_no_request_is_dropped_and_each_sees_one_policy_whole(serve: Serve, tmp_path: Path) -> None:
    """Two policies take turns. Under the one a result of 1500 bytes passes, under the other its message
    carries a preview. A mixture would store without one."""
    policy = tmp_path / "policy.toml"
    versions = (
        "[defaults]\nmax_bytes = 2000\n",
        '[defaults]\nmax_bytes = 1000\npreview = "head"\npreview_bytes = 99\n',
    )
    policy.write_text(versions[0])
    stop = asyncio.Event()
    seen: list[str] = []

    async def ask(client: httpx.AsyncClient) -> None:
        while not stop.is_set():
            answer = await client.post("/results", json={"tool_name": "t", "content": "a;" * 750})
            assert answer.status_code in (200, 201)
            told = answer.json()
            previewed = told["content"].count("\n") > 2
            seen.append("pass" if told["outcome"] == "pass" else f"store, previewed: {previewed}")

    async with serve(policy_file=policy) as client, asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(ask(client))
        for turn in range(1, 5):
            fresh = tmp_path / "fresh"
            fresh.write_text(versions[turn % 2])
            fresh.rename(policy)
            line = f'spillgate_policy_reloads_total{{status="ok"}} {turn}.0'
            await eventually(lambda line=line: metric(client, line))  # type: ignore[misc]
        stop.set()
    assert set(seen) == {"pass", "store, previewed: True"}


async def test_a_result_on_its_way_is_judged_by_the_policy_that_it_came_under(
    serve: Serve, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[defaults]\nmax_bytes = 1000\n")
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"a;" * 600
        arrived.set()
        await go_on.wait()
        yield b"b;" * 150

    async with serve(policy_file=policy) as client:
        query = {"tool_name": "t"}
        headers = {"Content-Type": "text/plain"}
        sending = asyncio.create_task(client.post("/results", params=query, content=body(), headers=headers))
        await arrived.wait()
        policy.write_text("[defaults]\nmax_bytes = 10000\n")
        await eventually(lambda: metric(client, 'spillgate_policy_reloads_total{status="ok"} 1.0'))
        go_on.set()
        assert (await sending).json()["outcome"] == "store"
        assert await outcome(client, 1500) == "pass"


async def test_a_hangup_reloads_at_once(services: Services, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[defaults]\nmax_bytes = 1000\n")
    service = await services.start(tmp_path / "state", policy_file=str(policy))
    async with service.client() as client:
        os.kill(service.pid, signal.SIGHUP)
        await eventually(lambda: metric(client, 'spillgate_policy_reloads_total{status="ok"} 1.0'))
        assert await outcome(client, 1010) == "store"
    assert await service.stop() == 0


async def test_a_models_window_and_price_are_taken_up_too(serve: Serve, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[models.m]\ninput_price = 0\n")
    async with (
        Backend() as backend,
        serve(policy_file=policy, max_bytes=100, llm_base_url=backend.base_url, llm_models=("m",)) as client,
    ):
        handle = (
            await client.post("/results", json={"tool_name": "t", "content": "code 4711\n" * 60})
        ).json()["handle"]
        asked = {"handle": handle, "extract": "Which code is it?", "mode": "full-chunked"}
        assert (await client.post("/extract", json=asked)).json()["usage"]["cost_usd"] == 0
        policy.write_text("[models.m]\ninput_price = 1000\ncontext_window = 20000\n")
        await eventually(lambda: metric(client, 'spillgate_policy_reloads_total{status="ok"} 1.0'))
        asked["extract"] = "And what is the code?"
        assert (await client.post("/extract", json=asked)).json()["usage"]["cost_usd"] > 0
