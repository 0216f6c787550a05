"""SIGTERM while an extraction is under way: the stream ends with an `error` event, not in the middle."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.extraction.backend import Backend
from tests.extraction.behaviours import Exchange
from tests.faults.service_process import Services, service_with

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json"])
async def test_a_stop_during_an_extraction_is_said(services: Services, tmp_path: Path, accept: str) -> None:
    asked = asyncio.Event()

    async def hangs(it: Exchange) -> None:
        asked.set()
        await it.wait_for_the_end()

    async with Backend(hangs) as backend:
        service = await services.start(
            tmp_path / "state",
            service_with("EXTRACT_SECONDS=0.1"),
            llm_base_url=backend.base_url,
            llm_models="m",
        )
        async with service.client() as client:
            sent = {"session_id": "s", "tool_name": "t", "content": "a line\n" * 4000}
            handle = (await client.post("/results", json=sent)).json()["handle"]
            question = {"handle": handle, "extract": "x", "mode": "full-chunked"}
            asking = asyncio.create_task(client.post("/extract", json=question, headers={"Accept": accept}))
            await asked.wait()
            service.terminate()
            answer = await asking
        assert await service.ended() == 0
    assert service.failures() == []
    said = answer.text
    if accept == "text/event-stream":
        events = said.removesuffix("\n\n").split("\n\n")
        assert [event.partition("\n")[0] for event in events] == ["event: plan", "event: error"]
        said = events[-1].partition("data: ")[2]
    problem = json.loads(said)
    assert (problem["status"], problem["code"], problem["retryable"]) == (503, "draining", True)
