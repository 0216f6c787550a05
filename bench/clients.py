"""What the Python client adds to a result of 2 KB over a kept-alive connection."""

import asyncio
import json
import os
import socket
import statistics
import sys
import time

import httpx

from bench.servers import LOAD_CORE, ROOT, pin, running

sys.path.insert(0, str(ROOT / "clients" / "python"))

from spillgate import AsyncSpillgate, Spillgate

CONTENT = "x" * 2048
ROUNDS, WARM = 2000, 300
NAMES = (
    "a socket",
    "Spillgate.govern",
    "httpx.Client.post",
    "AsyncSpillgate.govern",
    "httpx.AsyncClient.post",
)


def fields(call_id: str) -> dict[str, str]:
    return {"session_id": "bench", "tool_name": "t", "tool_call_id": call_id, "content": CONTENT}


class Raw:
    """A socket: the time of the service and of loopback alone."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, number: int) -> bytes:
        body = json.dumps(fields(f"raw-{number}")).encode()
        head = (
            "POST /results HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Prefer: return=minimal\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)
        answer = b""
        while not answer.endswith(b"}"):
            answer += self._socket.recv(65536)


async def measure(port: int) -> dict[str, list[float]]:
    """Milliseconds of each call, one way after the other in every round."""
    url = f"http://127.0.0.1:{port}"
    raw, blocking, waiting = Raw(port), Spillgate(base_url=url), AsyncSpillgate(base_url=url)
    plain, plain_waiting = httpx.Client(base_url=url), httpx.AsyncClient(base_url=url)
    taken: dict[str, list[float]] = {name: [] for name in NAMES}
    for number in range(ROUNDS):
        request = raw.request(number)
        times = [time.perf_counter()]
        raw.send(request)
        times.append(time.perf_counter())
        blocking.govern("t", f"blocking-{number}", CONTENT, session_id="bench")
        times.append(time.perf_counter())
        plain.post("/results", json=fields(f"plain-{number}")).json()
        times.append(time.perf_counter())
        await waiting.govern("t", f"waiting-{number}", CONTENT, session_id="bench")
        times.append(time.perf_counter())
        (await plain_waiting.post("/results", json=fields(f"plain-waiting-{number}"))).json()
        times.append(time.perf_counter())
        for name, began, ended in zip(NAMES, times, times[1:], strict=False):
            taken[name].append((ended - began) * 1000)
    await plain_waiting.aclose()
    await waiting.aclose()
    plain.close()
    blocking.close()
    return {name: values[WARM:] for name, values in taken.items()}


def main() -> None:
    pin(os.getpid(), LOAD_CORE)
    with running("spillgate") as server:
        taken = asyncio.run(measure(server.port))
    # On a shared machine the fastest tenth of the calls is what nothing disturbed.
    own = _tenth_and_middle(taken["a socket"])
    print("| 2 KB, kept alive | p10 | p50 | above the socket, p10 | p50 |\n|---|---|---|---|---|")
    for name, values in taken.items():
        p10, p50 = _tenth_and_middle(values)
        print(f"| {name} | {p10:.2f} ms | {p50:.2f} ms | {p10 - own[0]:.2f} ms | {p50 - own[1]:.2f} ms |")


def _tenth_and_middle(values: list[float]) -> tuple[float, float]:
    return statistics.quantiles(values, n=10)[0], statistics.median(values)


if __name__ == "__main__":
    main()
