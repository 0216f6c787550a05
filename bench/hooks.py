"""What a hook adds to a call of a tool, over HTTP and as a command, beside a bare server and a bare start."""

import http.client
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.servers import Server, running

ROUNDS = 200
COMMANDS = 25
SMALL, LARGE = 2_000, 200_000
SPILLGATE = Path(sys.executable).with_name("spillgate")


def _payload(size: int, number: int) -> bytes:
    """Claude Code's, for a Bash output of about `size` bytes that no other call has."""
    lines = "".join(f"{number}-{line}: one line of the output of a command\n" for line in range(size // 46))
    sent = {
        "session_id": f"bench-{number}",
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "make test"},
        "tool_response": {"stdout": lines, "stderr": "", "interrupted": False, "isImage": False},
        "tool_use_id": f"toolu_{number}",
    }
    return json.dumps(sent).encode()


def _over_http(server: Server, size: int, *, keeps: bool) -> Callable[[int], None]:
    """Asks once; an agent that keeps no connection opens one for each call."""
    kept = http.client.HTTPConnection("127.0.0.1", server.port)

    def ask(number: int) -> None:
        connection = kept if keeps else http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/hooks/claude-code", _payload(size, number))
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200
        assert server.name == "bare" or (body == b"{}") == (size == SMALL)
        if not keeps:
            connection.close()

    return ask


def _by_command(server: Server, size: int, home: str) -> Callable[[int], None]:
    environ = {**os.environ, "HOME": home, "SPILLGATE_URL": server.url}
    # A busy machine makes it slow, and does not make it give up.
    environ["SPILLGATE_HOOK_TIMEOUT_MS"] = "60000"

    def ask(number: int) -> None:
        ran = subprocess.run(
            [SPILLGATE, "hook", "claude-code"],
            input=_payload(size, 100_000 + number),
            env=environ,
            capture_output=True,
        )
        assert (ran.stdout == b"{}\n") == (size == SMALL)

    return ask


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _bare_start(number: int) -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def _times(asks: dict[str, Callable[[int], None]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in asks}
    for number in range(rounds + 2):
        for at, (name, ask) in enumerate(asks.items()):
            began = time.perf_counter()
            ask(1000 * at + number)
            if number >= 2:
                times[name].append(1000 * (time.perf_counter() - began))
    return times


def _print(times: dict[str, list[float]], against: str) -> None:
    base = statistics.median(times[against])
    for name, taken in times.items():
        middle, most = statistics.median(taken), statistics.quantiles(taken, n=20)[-1]
        print(f"| {name} | {middle:.1f} | {most:.1f} | {middle / base:.1f} x |")


def main() -> None:
    print("| a call of a tool | p50 ms | p95 ms | against bare |\n|---|---|---|---|")
    with running("bare", pinned=False) as bare, running("spillgate", pinned=False) as ours:
        asks = {
            "bare server, 2 KB": _over_http(bare, SMALL, keeps=True),
            "HTTP, 2 KB, passes": _over_http(ours, SMALL, keeps=True),
            "HTTP, 2 KB, passes, a connection each": _over_http(ours, SMALL, keeps=False),
            "HTTP, 200 KB, replaced": _over_http(ours, LARGE, keeps=True),
        }
        _print(_times(asks, ROUNDS), "bare server, 2 KB")
        with tempfile.TemporaryDirectory() as home:
            commands = {
                "`python -c pass`": _bare_start,
                "command, 2 KB, passes": _by_command(ours, SMALL, home),
                "command, 200 KB, replaced": _by_command(ours, LARGE, home),
            }
            began = _children_seconds()
            _print(_times(commands, COMMANDS), "`python -c pass`")
            spent = 1000 * (_children_seconds() - began) / (COMMANDS + 2)
            print(f"\nProcessor time of one of each command, together: {spent:.0f} ms")


if __name__ == "__main__":
    main()
