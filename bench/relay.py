"""The relay before an MCP server: its start, what a message costs, and the memory of a large result."""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from bench.servers import ROOT, peak_of, running
from domain.references import may_refer

ROUNDS = 9
CALLS = 300
LARGE_BYTES = 50 << 20

# Answers `tools/call` with a text of `size` bytes, anything else with nothing in it.
_SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    size = message.get("params", {}).get("arguments", {}).get("size", 0)
    text = "0123456789abcde\\n" * (size // 16)
    result = {"content": [{"type": "text", "text": text}]} if size else {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
_ECHO = ["cat"]
_TOOLS = [sys.executable, "-c", _SERVER]
_NOTE = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n'


class Peer:
    """A process that answers each line with a line."""

    def __init__(self, command: list[str], **environment: str) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            bufsize=1 << 20,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def ask(self, line: bytes) -> bytes:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def call(self, size: int) -> bytes:
        params: dict[str, Any] = {"name": "read", "arguments": {"size": size}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return self.ask(json.dumps(message).encode() + b"\n")

    @property
    def peak(self) -> int:
        return peak_of(self.process.pid)


def relayed(server: list[str], *options: str) -> list[str]:
    return [sys.executable, "-m", "beside.main", "mcp", *options, "--", *server]


def _median_ms(run: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


def _started(command: list[str], **environment: str) -> None:
    with Peer(command, **environment) as peer:
        peer.ask(_NOTE)


def _bare() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def _start_ms(run: Callable[[], None]) -> tuple[float, float]:
    """Milliseconds of wall time, the median, and of processor time, the mean."""
    before = os.times()
    wall = _median_ms(run, ROUNDS)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, used / ROUNDS * 1000


@contextmanager
def _own_user() -> Iterator[dict[str, str]]:
    """The environment of a user without a service. One that a relay has started is ended."""
    with tempfile.TemporaryDirectory() as folder:
        own = {"SPILLGATE_STORAGE_URL": f"disk://{folder}", "XDG_STATE_HOME": folder}
        yield own
        stop = [sys.executable, "-m", "beside.main", "service", "stop"]
        subprocess.run(stop, env={**os.environ, **own}, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def _start() -> None:
    print("| start, ms | wall | processor |\n|---|---|---|")
    with _own_user() as own:
        for name, run in (
            ("an empty Python", _bare),
            ("the relay and `cat`, until a message is through", partial(_started, relayed(_ECHO), **own)),
            ("the same with --no-embedded", partial(_started, relayed(_ECHO, "--no-embedded"), **own)),
        ):
            wall, used = _start_ms(run)
            print(f"| {name} | {wall:.0f} | {used:.0f} |")


def _latencies(url: str) -> None:
    print("\n| median, ms | without the relay | with it |\n|---|---|---|")
    for server, name, size in (
        (_ECHO, "a notification there and back", 0),
        (_TOOLS, "a result of 1 KB, which passes", 1 << 10),
        (_TOOLS, "a result of 100 KB, which is stored", 100 << 10),
    ):
        with Peer(server) as direct, Peer(relayed(server), SPILLGATE_URL=url) as through:
            cells = [
                _median_ms(partial(peer.call, size) if size else partial(peer.ask, _NOTE), CALLS)
                for peer in (direct, through)
            ]
        print(f"| {name} | {cells[0]:.3f} | {cells[1]:.3f} |")


def _handing_on(url: str) -> None:
    """A stored result of 1 MiB as an argument: beside a client that writes it out, and a server that is asked
    directly. By turns: the machine may be busy."""
    text = "0123456789abcde\n" * (1 << 16)
    with Peer(_TOOLS) as direct, Peer(relayed(_TOOLS), SPILLGATE_URL=url) as through:
        handle = re.search(rb"session-[^/]+/file-[0-9a-f-]{36}", through.call(len(text)))
        assert handle is not None

        def write(peer: Peer, content: str) -> None:
            params = {"name": "write", "arguments": {"content": content}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            assert b"error" not in peer.ask(json.dumps(message).encode() + b"\n")

        reference = f"spillgate://{handle[0].decode()}"
        taken = [
            (
                _median_ms(partial(write, direct, text), 1),
                _median_ms(partial(write, through, reference), 1),
                _median_ms(partial(write, direct, "x"), 1),
                _median_ms(partial(write, through, "x"), 1),
            )
            for _ in range(CALLS // 3)
        ]
    large, handed, small, passed = (statistics.median(column) for column in zip(*taken, strict=True))
    print("\n| median, ms | the server alone | through the relay | more |\n|---|---|---|---|")
    print(f"| 1 MiB in an argument, handed on | {large:.2f} | {handed:.2f} | {handed - large:.2f} |")
    print(f"| a call without a reference | {small:.2f} | {passed:.2f} | {passed - small:.2f} |")
    _unresolved()


def _unresolved() -> None:
    """What the look for references takes of a call with arguments of 1 KB that has none."""
    arguments = json.dumps({"path": "a", "content": "0123456789abcde\n" * 64})
    began = time.process_time()
    for _ in range(100_000):
        may_refer(arguments)
    print(f"the look for a reference in 1 KB: {(time.process_time() - began) * 10:.3f} µs of processor time")


def _embedded() -> None:
    with _own_user() as own:
        began = time.perf_counter()
        with Peer(relayed(_TOOLS), **own) as through:
            through.call(20 << 10)
            first = time.perf_counter() - began
            idle = through.peak
            through.call(LARGE_BYTES)
            print(_row("the relay with the service in it", idle, through.peak))
    print(f"\nThe first result where no service runs, from the start of the relay on: {first:.1f} s.")


def _row(name: str, idle: int, peak: int) -> str:
    return f"| {name} | {idle >> 20} | {peak >> 20} | {(peak - idle) / LARGE_BYTES:.2f} x |"


def main() -> None:
    _start()
    with running("spillgate", pinned=False) as server:
        url = server.url
        _latencies(url)
        _handing_on(url)
        print("\n| a result of 50 MB | idle, MB | peak, MB | growth |\n|---|---|---|---|")
        with Peer(relayed(_TOOLS), SPILLGATE_URL=url) as through:
            through.call(1 << 10)
            idle, before = through.peak, server.peak
            through.call(LARGE_BYTES)
            print(_row("the relay", idle, through.peak))
            print(_row("the service", before, server.peak))
    _embedded()


if __name__ == "__main__":
    main()
