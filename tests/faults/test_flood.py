"""Under a flood of slow, silent and endless clients an ordinary one is served, and the flood ends."""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil  # type: ignore[import-untyped]
import pytest

from tests.faults import audit
from tests.faults.calls import Call
from tests.faults.service_process import Service, Services, service_with
from tests.faults.uploads import Connections, Streams
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.anyio

BOUND_SECONDS = 3
FLOOD_SECONDS = 2.5
"""Shorter than the bound: all that time every slow client is still connected."""

SLOW = 500
ENDLESS = 50
CHUNK = b"%x\r\n%b\r\n" % (1 << 16, b"a" * (1 << 16))
PACE_SECONDS = 0.04
LEAST = 21
"""Requests of each ordinary client."""

MAX_GROWTH = 200 << 20

JSON_HEAD = b"POST /results HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
TEXT_HEAD = b"POST /results?tool_name=t HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
JSON_START = b'1c\r\n{"tool_name":"t","content":"\r\n'
HALF_SAID = (
    b"",
    b"POST /results HTTP/1.1\r\nHost: loc",
    JSON_HEAD + b"Content-Length: 5000\r\n\r\n" + b'{"tool_name": "t", "content": "abc',
    TEXT_HEAD + b"Content-Length: 5000\r\n\r\nabc",
    TEXT_HEAD + CHUNKED + b"3\r\nabc\r\n",
    b"G",
)


@pytest.fixture
def open_files() -> Iterator[None]:
    """Room for every connection of the flood in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2048 if hard == resource.RLIM_INFINITY else min(2048, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Flood:
    """500 clients that say half of something or nothing, and 50 that never stop."""

    def __init__(self, connections: Connections, service: Service) -> None:
        self.connections = connections
        self.service = service
        self.slow: list[Streams] = []
        self.ends: Counter[str] = Counter()
        self.is_over = False

    async def begin_slow(self) -> None:
        for number in range(SLOW):
            reader, writer = await self.connections.open(self.service)
            writer.write(HALF_SAID[number % len(HALF_SAID)])
            self.slow.append((reader, writer))

    def still_open(self) -> int:
        return sum(not reader.at_eof() for reader, _ in self.slow)

    async def endless(self, start: bytes) -> None:
        """One client: refused, it comes again, until the flood is over."""
        while not self.is_over:
            reader, writer = await self.connections.open(self.service)
            writer.write(start)
            answer = asyncio.create_task(reader.read())
            try:
                while not answer.done():
                    writer.write(CHUNK)
                    await writer.drain()
                    await asyncio.sleep(PACE_SECONDS)
            except ConnectionError:
                pass
            self.ends[await _status(answer)] += 1
            writer.transport.abort()


async def _status(answer: asyncio.Task[bytes]) -> str:
    try:
        return (await answer)[9:12].decode() or "closed"
    except ConnectionError:
        return "reset"


async def ordinary(service: Service, is_kept_alive: bool) -> list[float]:
    """2 KB results and /livez by turns while the flood lasts, LEAST at least; the seconds that each took."""
    took: list[float] = []
    limits = httpx.Limits(max_keepalive_connections=1 if is_kept_alive else 0)
    call = Call("ordinary", b"line of two thousand bytes\n" * 75)
    until = time.monotonic() + FLOOD_SECONDS
    async with service.client(limits=limits) as client:
        while time.monotonic() < until or len(took) < LEAST:
            watch = Stopwatch(service.pid)
            answer = await (call.send(client) if len(took) % 2 else client.get("/livez"))
            took.append(watch.seconds)
            assert answer.status_code == 200, answer.text
            await asyncio.sleep(0.01)
    return took


async def peak_memory(process: psutil.Process) -> int:
    """The most bytes that it held at once; asked for until cancelled."""
    peak = 0
    try:
        while True:
            peak = max(peak, process.memory_info().rss)
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        return peak


async def test_five_hundred_slow_clients_and_fifty_endless_uploads_do_not_hinder_an_ordinary_one(
    services: Services, connections: Connections, tmp_path: Path, open_files: None
) -> None:
    bounds = (f"HEAD_SECONDS={BOUND_SECONDS}", f"BODY_SECONDS={BOUND_SECONDS}")
    service = await services.start(
        tmp_path / "state",
        service_with(*bounds),
        max_body_bytes="4000000",
        storage_max_bytes="50000000",
    )
    async with service.client() as client:
        assert (await Call("ordinary", b"warm").send(client)).status_code == 200
    process = psutil.Process(service.pid)
    base = process.memory_info().rss
    memory = asyncio.create_task(peak_memory(process))
    flood = Flood(connections, service)
    await flood.begin_slow()
    starts = (JSON_HEAD + CHUNKED + JSON_START, TEXT_HEAD + CHUNKED)
    endless = [asyncio.create_task(flood.endless(starts[number % 2])) for number in range(ENDLESS)]
    took = [
        second
        for each in await asyncio.gather(ordinary(service, True), ordinary(service, False))
        for second in each
    ]
    flood.is_over = True
    open_at_end = flood.still_open()
    async with asyncio.timeout(30):
        await asyncio.gather(*endless)
        while flood.still_open():
            await asyncio.sleep(0.1)
            for reader, _ in flood.slow:
                await discard(reader)
    memory.cancel()
    growth = await memory - base
    p99 = sorted(took)[int(len(took) * 0.99)]
    figures = (
        f"{len(took)} ordinary requests, p99 {p99:.3f} s, most {max(took):.3f} s; memory +{growth >> 20} MB; "
        f"endless uploads ended: {dict(flood.ends)}; slow clients at the end: {open_at_end}"
    )
    print(figures)
    assert growth < MAX_GROWTH, figures
    assert len(took) > 40, figures
    assert set(flood.ends) <= {"413", "503", "507", "closed", "reset"}, figures
    assert flood.ends.total() >= ENDLESS, figures
    assert service.failures() == []
    async with service.client() as client:
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.get("/healthz")).json()["stored_bytes"] == 0
        metrics = (await client.get("/metrics")).text
        assert "spillgate_body_bytes_in_flight 0.0" in metrics
    assert audit.strays(service.state) == []
    assert await service.stop() == 0


async def discard(reader: asyncio.StreamReader) -> None:
    """Reads what is there already: an answer, or the end."""
    try:
        async with asyncio.timeout(0.001):
            await reader.read(65536)
    except (TimeoutError, ConnectionError):
        pass
