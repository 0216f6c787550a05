"""The child process of a query ends with its service, however the service ends."""

import json
import resource
from pathlib import Path

import anyio
import httpx
import psutil
import pytest

from extraction.query_child import MEMORY_BYTES
from tests.faults.service_process import Service, Services

pytestmark = pytest.mark.anyio

PATIENCE_SECONDS = 20
EXPENSIVE = "[@, @]" + " | [@, @]" * 60


async def confined_child(service: Service) -> psutil.Process:
    """The child of a running query, once it has set its limits; stopped, so that it cannot end by itself."""
    while True:
        for child in psutil.Process(service.pid).children():
            if child.rlimit(resource.RLIMIT_AS)[0] == MEMORY_BYTES:
                child.suspend()
                return child
        await anyio.sleep(0.001)


def runs(process: psutil.Process) -> bool:
    """False for a process that has ended, although the init process of a container may never reap it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_killing_the_service_kills_the_child_of_a_query(services: Services, tmp_path: Path) -> None:
    service = await services.start(tmp_path / "state")
    async with service.client() as client, anyio.create_task_group() as tasks:
        content = {"tool_name": "t", "content": json.dumps(list(range(9999)))}
        handle = (await client.post("/results", json=content)).json()["handle"]

        async def query() -> None:
            with pytest.raises(httpx.TransportError):
                await client.get(f"/results/{handle}/query", params={"expression": EXPENSIVE})

        tasks.start_soon(query)
        with anyio.fail_after(PATIENCE_SECONDS):
            child = await confined_child(service)
        try:
            service.kill()
            with anyio.fail_after(PATIENCE_SECONDS):
                while runs(child):
                    await anyio.sleep(0.01)
        finally:
            if runs(child):
                child.kill()
