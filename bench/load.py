"""A load generator that costs little: keep-alive connections over asyncio protocols, one core."""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def request(path: str, body: bytes = b"", media: str = "application/json", method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Tally:
    """`seconds` are the latencies of answered requests; `statuses` counts answers by status."""

    wall: float = 0.0
    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.wall

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class _Client(asyncio.Protocol):
    def __init__(self, requests: Sequence[bytes], first: int, until: float, tally: Tally) -> None:
        self._requests = requests
        self._next = first
        self._until = until
        self._tally = tally
        self._answer = bytearray()
        self._whole = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._requests[self._next % len(self._requests)])
        self._next += 1

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not self._whole:
            end = self._answer.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(self._answer, 0, end)
            self._whole = end + 4 + (int(length[1]) if length else 0)
        if len(self._answer) >= self._whole:
            status = int(self._answer[9:12])
            self._tally.statuses[status] = self._tally.statuses.get(status, 0) + 1
            self._tally.seconds.append(time.perf_counter() - self._sent)
            del self._answer[: self._whole]
            self._whole = 0
            if time.perf_counter() < self._until:
                self._send()
            else:
                self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def run(port: int, requests: Sequence[bytes], seconds: float, clients: int = 16) -> Tally:
    """Each client sends one request after the other until the time is over, but one at least."""
    tally = Tally()
    started = time.perf_counter()
    loop = asyncio.get_running_loop()
    opened = [
        await loop.create_connection(
            lambda first=number: _Client(requests, first * 7, started + seconds, tally), "127.0.0.1", port
        )
        for number in range(clients)
    ]
    await asyncio.gather(*(client.done for _, client in opened))
    tally.wall = time.perf_counter() - started
    return tally


async def livez_during(port: int, requests: Sequence[bytes]) -> Tally:
    """The answers of /livez while each of the requests is sent once, all at the same time."""
    busy = [asyncio.create_task(run(port, [one], 0, clients=1)) for one in requests]
    tally = Tally()
    while not all(task.done() for task in busy):
        once = await run(port, [request("/livez", method="GET")], 0.1, clients=1)
        tally.seconds += once.seconds
    for task in busy:
        assert set((await task).statuses) <= {200, 201}
    return tally
