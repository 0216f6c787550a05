"""What redaction costs as secrets become many, and how long another tenant and the event loop wait.

The reference of a row is a text of the same size without secrets, sent to the same server a moment before."""

import argparse
import asyncio
import json
import random
import string
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

from bench import load
from bench.servers import ROOT, Server, running
from tests.keys import key_file

COUNTS = (4_000, 24_000, 100_000)
MASKS = 1_100_000
LETTERS = string.ascii_letters + string.digits + "!%&*"
POLICY = """
[defaults]
redact = ["secrets"]
[tools.numbers]
redact = ["number"]
[redact.number]
pattern = "[0-9]{6}"
"""


def passwords(count: int, chance: random.Random) -> str:
    values = ("".join(chance.choices(LETTERS, k=18)) for _ in range(count))
    return "".join(f'user{number} password = "{value}"\n' for number, value in enumerate(values))


def words(size: int) -> str:
    return "2026-11-20 08:12:01 INFO request 17 done\n" * (size // 41)


def _sent(path: str, body: str, key: str, media: str = "text/plain", method: str = "POST") -> bytes:
    sent = load.request(path, body.encode(), media, method)
    return sent.replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {key}\r\n\r\n".encode(), 1)


class Taken(NamedTuple):
    """Seconds of a request, by the clock and of the server's processor time, and the answers to another one
    while it was served."""

    seconds: float
    processor: float
    waits: load.Tally

    @property
    def shown(self) -> str:
        return ", ".join(f"{self.waits.percentile(at) * 1000:.0f}" for at in (50, 99, 100))


async def _during(server: Server, busy: bytes, other: bytes) -> Taken:
    began, before = time.perf_counter(), server.cpu_seconds
    task = asyncio.create_task(load.run(server.port, [busy], 0, clients=1))
    tally = load.Tally()
    while not task.done():
        tally.seconds += (await load.run(server.port, [other], 0, clients=1)).seconds
        await asyncio.sleep(0.01)
    assert set((await task).statuses) <= {200, 201}
    return Taken(time.perf_counter() - began, server.cpu_seconds - before, tally)


def search_rows(server: Server) -> None:
    chance = random.Random(1)
    others = [
        _sent("/results", json.dumps({"tool_name": "run", "content": words(size)}), "two", "application/json")
        for size in (2000, 40_000)
    ]
    print("| passwords | MB | s | processor s a MB | x the first row | x a text without |", end="")
    print(" another tenant's 2 KB, ms p50, p99, max | its 40 KB | the same beside the text without |")
    print("|---" * 9 + "|")
    first = 0.0
    # The first search of a process, and the first message, load what they need.
    asyncio.run(
        load.run(server.port, [_sent("/results?tool_name=run", passwords(900, chance), "one")], 0, clients=1)
    )
    for count in COUNTS:
        text = passwords(count, chance)
        size = len(text) / 1e6
        without, *taken = (
            asyncio.run(_during(server, _sent("/results?tool_name=run", sent, "one"), other))
            for sent, other in ((words(len(text)), others[1]), *((text, other) for other in others))
        )
        a_megabyte = min(one.processor for one in taken) / size
        first = first or a_megabyte
        print(
            f"| {count:,} | {size:.2f} | {min(one.seconds for one in taken):.2f} | {a_megabyte:.2f} "
            f"| {a_megabyte / first:.2f} | {a_megabyte * size / without.processor:.0f} "
            f"| {taken[0].shown} | {taken[1].shown} | {without.shown} |",
            flush=True,
        )


def loop_rows(server: Server) -> None:
    text = "".join(f"{100_000 + number % 900_000}\n" for number in range(MASKS))
    asked = urllib.request.Request(f"{server.url}/results?tool_name=numbers", text.encode(), method="POST")
    asked.add_header("Content-Type", "text/plain")
    asked.add_header("Authorization", "Bearer one")
    with urllib.request.urlopen(asked, timeout=600) as answer:
        handle = json.load(answer)["handle"]
    livez = load.request("/livez", method="GET")
    print(f"\n| reading of {MASKS:,} masks | s | /livez, ms p50, p99, max |")
    print("|---|---|---|")
    for name, path in (
        ("/content", "content"),
        ("the same again", "content"),
        ("/lines", "lines?offset=500000&limit=5"),
    ):
        busy = _sent(f"/results/{handle}/{path}", "", "one", method="GET")
        taken = asyncio.run(_during(server, busy, livez))
        print(f"| {name} | {taken.seconds:.2f} | {taken.shown} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="the directory of another version")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        policy = Path(place, "policy.toml")
        policy.write_text(POLICY)
        keys = key_file(Path(place, "keys"), "red:one", "blue:two")
        files = {"SPILLGATE_POLICY_FILE": str(policy), "SPILLGATE_API_KEYS_FILE": str(keys)}
        with running("spillgate", pinned=False, tree=options.tree, **files) as server:
            search_rows(server)
            loop_rows(server)


if __name__ == "__main__":
    main()
