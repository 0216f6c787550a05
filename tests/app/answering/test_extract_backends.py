"""POST /extract over backends that fail in every way known: answered in time, honestly, nothing left."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import anyio
import httpx
import psutil
import pytest

from tests.app.answering.test_extract_models import anyio_backend, ask, entries, keep, rows, served  # noqa: F401
from tests.conftest import Serve
from tests.counts import count
from tests.extraction.backend import Backend
from tests.extraction.behaviours import SCRIPTS

pytestmark = pytest.mark.anyio


GRACE = 0.5
RUNS = count(80, 200)


async def timed(client: httpx.AsyncClient, handle: str, deadline_ms: int, **fields: Any) -> tuple[float, Any]:
    started = anyio.current_time()
    answer = await ask(client, handle, deadline_ms=deadline_ms, **fields)
    return anyio.current_time() - started, answer


def judge(name: str, took: float, answer: httpx.Response, deadline: float) -> None:
    assert answer.status_code == 200, (name, answer.text)
    assert took <= deadline + GRACE, (name, took)
    told = answer.json()
    if told["status"] == "fallback":
        assert told["strategy"] == "truncate", name
        assert told["body"].startswith("WARNING: tool_output fallback to truncate ("), name
        assert told["warnings"], name
    else:
        assert told["strategy"] in ("full-chunked", "read-grep"), name
        is_part = told["coverage"]["missing"] or "[The rest was cut:" in told["body"]
        assert told["status"] == ("partial" if is_part else "complete"), (name, told)


async def test_whatever_a_backend_does_the_answer_is_in_time_and_honest(serve: Serve, tmp_path: Path) -> None:
    modes = {"full-chunked": 10.0, "read-grep": 2.0}
    fell_back: dict[str, set[str]] = {mode: set() for mode in modes}

    async def run(name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        async with Backend(*SCRIPTS[name]) as backend:
            async with served(serve, folder, backend) as client:
                # Two chunks.
                handle = await keep(client, rows(500))
                for mode, deadline in modes.items():
                    await backend.play(*SCRIPTS[name])
                    took, answer = await timed(client, handle, int(deadline * 1000), mode=mode)
                    judge(name, took, answer, deadline)
                    if answer.json()["status"] == "fallback":
                        fell_back[mode].add(name)
                    # A model that failed is asked again after the longest pause.
                    await anyio.sleep(100)
            assert await backend.idle(), name

    # Few at a time: the deadlines are the service's, not this machine's.
    everyone = list(SCRIPTS)
    for start in range(0, len(everyone), 10):
        await asyncio.gather(*[run(name) for name in everyone[start : start + 10]])
    for names in fell_back.values():
        assert not names & {"answers", "error_500_once", "usage_absent", "usage_wrong"}
        assert {"silent", "bad_key", "no_quota", "html", "redirect", "refuses"} <= names


@pytest.mark.repeated
async def test_after_many_mixed_runs_nothing_is_left_behind(serve: Serve, tmp_path: Path) -> None:
    scripts = list(itertools.chain(*SCRIPTS.values()))
    # After "refuses" nothing would listen any more.
    mixed = [name for name in scripts if name not in ("great_body", "gzip_bomb", "refuses")] * 40
    async with Backend(*mixed, "answers") as backend, served(serve, tmp_path, backend) as client:
        port = httpx.URL(backend.base_url).port
        handle = await keep(client)
        before = len(asyncio.all_tasks())
        begun = 0

        async def run() -> None:
            nonlocal begun
            # Until each behaviour was met: on a busy machine some deadlines pass before the model is asked.
            while begun < RUNS or backend.requests < len(set(mixed)):
                begun += 1
                name = f"Question {begun}?"
                took, answer = await timed(client, handle, 400, extract=name)
                judge(name, took, answer, 0.4)
                # A model that failed is asked again after the longest pause.
                await anyio.sleep(100)

        await asyncio.gather(*[run() for _ in range(8)])
        # Idle connections are closed by now.
        async with asyncio.timeout(5):
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.05)
        assert len(await entries(client, "extract")) == begun
        assert [
            one for one in psutil.Process().net_connections("tcp") if one.raddr and one.raddr.port == port
        ] == []
