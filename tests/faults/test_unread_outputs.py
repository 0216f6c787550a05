"""Standard error, standard output and an accounting export that are not read: the service serves and ends."""

import asyncio
import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.faults.forking import ROOT
from tests.faults.service_process import Services, service_with

pytestmark = pytest.mark.anyio

BIG = "a line of the result\n" * 1_000
PATIENCE_SECONDS = 90
"""Longer than any stop may take: a process that ends by then ended by itself."""


class Pipe:
    """A pipe that is full, and is not read."""

    def __init__(self, fifo: Path | None = None) -> None:
        if fifo is None:
            self.reading, self.writing = os.pipe()
        else:
            os.mkfifo(fifo)
            self.reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
            self.writing = os.open(fifo, os.O_WRONLY)
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, 4096)

    def fill(self) -> None:
        os.set_blocking(self.writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.writing, b"x")
        os.set_blocking(self.writing, True)

    def close(self) -> None:
        os.close(self.writing)
        os.close(self.reading)


@contextlib.asynccontextmanager
async def running(
    place: Path, command: tuple[str, ...], stdout: int, stderr: int, **settings: str
) -> AsyncIterator[tuple[subprocess.Popen[bytes], httpx.AsyncClient]]:
    """Not forked from a process of the tests: such a process ends without the end of the interpreter."""
    directory = place / "run"
    directory.mkdir(mode=0o700)
    given = {"UDS": str(directory / "s"), "STORAGE_URL": f"disk://{place}/state", **settings}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPILLGATE_")}
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=ROOT,
        env=kept | {f"SPILLGATE_{name}": value for name, value in given.items()},
    )
    transport = httpx.AsyncHTTPTransport(uds=given["UDS"])
    client = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=PATIENCE_SECONDS)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), client:
            while not await answers(client):
                assert process.poll() is None
                await asyncio.sleep(0.02)
            yield process, client
    finally:
        process.kill()
        process.wait()


async def answers(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/livez")).is_success
    except httpx.TransportError:
        return False


async def ended(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    while (code := process.poll()) is None:
        await asyncio.sleep(0.02)
    return code


async def test_outputs_that_are_not_read_delay_no_request_and_no_stop(tmp_path: Path) -> None:
    """Standard error, and standard output with the export."""
    command = service_with("a short log queue", "FLUSH_SECONDS=0.5", "CLOSE_SECONDS=0.5")
    with contextlib.closing(Pipe()) as output, contextlib.closing(Pipe()) as errors:
        export = {"ACCOUNTING_EXPORT": "-"}
        async with running(tmp_path, command, output.writing, errors.writing, **export) as (process, client):
            output.fill()
            errors.fill()
            for number in range(20):
                answer = await client.post("/results", json={"tool_name": f"t{number}", "content": BIG})
                assert answer.json()["outcome"] == "store"
            metrics = (await client.get("/metrics")).text
            dropped = next(
                line.split()[1] for line in metrics.splitlines() if line.startswith("spillgate_log_lines")
            )
            # The thread holds one line, and eight wait.
            assert float(dropped) >= 11
            assert await ended(process) == 0


SERVE = service_with("CLOSE_SECONDS=0.5")
LOST = "Lines of SPILLGATE_ACCOUNTING_EXPORT are lost."


async def test_an_export_to_a_fifo_that_is_not_read_delays_no_stop(
    services: Services, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    with contextlib.closing(Pipe(fifo)) as pipe:
        service = await services.start(tmp_path / "state", SERVE, accounting_export=str(fifo))
        pipe.fill()
        async with service.client() as client:
            await post_results(client)
        assert await service.stop() == 0
    assert LOST in service.tail()


async def post_results(client: httpx.AsyncClient) -> None:
    for _ in range(5):
        assert (await client.post("/results", json={"tool_name": "t", "content": "x"})).is_success


async def test_a_fifo_gets_the_entries_once_it_has_a_reader(services: Services, tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    service = await services.start(tmp_path / "state", accounting_export=str(fifo))
    async with service.client() as client:
        for number in range(3):
            sent = {"tool_name": f"t{number}", "content": "x"}
            assert (await client.post("/results", json=sent)).is_success
        with fifo.open("rb") as reader:
            lines = [await asyncio.to_thread(reader.readline) for _ in range(3)]
            assert await service.stop() == 0
    assert [f'"tool_name":"t{number}"'.encode() in line for number, line in enumerate(lines)] == [True] * 3


async def test_a_stop_that_hangs_ends_where_its_traceback_is_not_read(tmp_path: Path) -> None:
    pipe = Pipe()
    with contextlib.closing(pipe):
        code = "import runpy, sys; sys.argv[1:] = ['hang']; runpy.run_path('tests/app/http/edge_app.py')"
        async with running(tmp_path, ("-c", code), subprocess.DEVNULL, pipe.writing) as (process, _):
            pipe.fill()
            assert await ended(process) == 1
