"""Spillgate beside what a user would pick instead: the twin, and Headroom's proxy where it is installed.

    python3 -m venv /tmp/headroom && /tmp/headroom/bin/pip install 'headroom-ai[proxy]'
    RECORDED_RESULTS=... .venv/bin/python -m bench.peers --headroom /tmp/headroom/bin/headroom

The same texts go through the same client to each, by turns. Headroom runs as installed, without its limit of
requests a minute and without network: it compresses by structure, and does not load a model.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import httpx
from tqdm import tqdm

from bench import corpus, load
from bench.ranks import o200k_base
from bench.servers import LOAD_CORE, Server, pin, running

SIZES = {"2 KB": 2_000, "100 KB": 100_000, "1 MB": 1_000_000}
SAMPLES = 8
"""Answers whose tokens are counted."""
HEADROOM_WAIT = 180.0
OFFLINE = {
    "HEADROOM_OFFLINE": "1",
    "HF_HUB_OFFLINE": "1",
    "HEADROOM_TELEMETRY": "off",
    "HEADROOM_BEACON": "off",
    "DO_NOT_TRACK": "1",
}
MISSING = (
    "Headroom is not installed, so it is not measured. Install it into an environment of its own\n"
    "(pip install 'headroom-ai[proxy]'), and name its command: --headroom /path/bin/headroom, or HEADROOM=..."
)


class Peer(NamedTuple):
    """How a server is asked about a text, and where its answer holds the text for the model."""

    path: str
    body: Callable[[str], dict[str, Any]]
    text: Callable[[dict[str, Any]], str]


def _conversation(text: str) -> dict[str, Any]:
    """A user's question, a call, and its result: the newest turn, which Headroom compresses."""
    function = {"name": "bench", "arguments": "{}"}
    call = {"id": "call_1", "type": "function", "function": function}
    return {
        "model": "gpt-4o",
        "messages": [
            {"role": "user", "content": "What failed, and why?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": text},
        ],
    }


_RESULTS = Peer(
    "/results", lambda text: {"tool_name": "bench", "content": text}, lambda answer: str(answer["content"])
)
PEERS = {
    "spillgate": _RESULTS,
    "twin": _RESULTS,
    "headroom": Peer("/v1/compress", _conversation, lambda answer: str(answer["messages"][2]["content"])),
}


class Round(NamedTuple):
    """Results a second; p99 in ms; the server's processor time for each result, in ms."""

    rate: float
    p99: float
    milliseconds: float


def one_round(server: Server, texts: list[str], clients: int, seconds: float) -> Round:
    peer = PEERS[server.name]
    sent = [load.request(peer.path, json.dumps(peer.body(text)).encode()) for text in texts]
    before = server.cpu_seconds
    tally = asyncio.run(load.run(server.port, sent, seconds, clients))
    assert set(tally.statuses) <= {200, 201}, f"{server.name} answered {tally.statuses}"
    spent = server.cpu_seconds - before
    return Round(tally.rate, tally.percentile(99) * 1000, 1000 * spent / len(tally.seconds))


def kept(server: Server, texts: list[str]) -> float:
    """The share of the texts' tokens that is in the answers."""
    peer, encoding = PEERS[server.name], o200k_base()
    before = after = 0
    with httpx.Client(base_url=server.url, trust_env=False, timeout=300) as http:
        for text in texts[:SAMPLES]:
            answer = http.post(peer.path, json=peer.body(text)).raise_for_status().json()
            before += len(encoding.encode_ordinary(text))
            after += len(encoding.encode_ordinary(peer.text(answer)))
    return after / before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--headroom", default=os.environ.get("HEADROOM"), help="Headroom's command")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    with ExitStack() as stack:
        servers = [stack.enter_context(running(name)) for name in ("spillgate", "twin")]
        command = shutil.which(options.headroom or "headroom")
        if command is None:
            print(MISSING, file=sys.stderr)
        else:
            proxy = [command, "proxy", "--no-rate-limit"]
            state = stack.enter_context(tempfile.TemporaryDirectory())
            settings = {**OFFLINE, "HEADROOM_WORKSPACE_DIR": state}
            started = running("headroom", command=proxy, wait=HEADROOM_WAIT, **settings)
            servers.append(stack.enter_context(started))
        pin(os.getpid(), LOAD_CORE)
        print(
            "| result | server | a second | p99 ms | processor ms | tokens kept | its rate, Spillgate is 1 |"
        )
        print("|---|---|---|---|---|---|---|")
        for label, size in SIZES.items():
            # Other texts in each round: Headroom keeps what it answered.
            count = min(2000, 16_000_000 // size)
            texts = corpus.texts(size, count * options.rounds)
            rounds: dict[str, list[Round]] = {server.name: [] for server in servers}
            for number in tqdm(range(options.rounds), desc=label, disable=None):
                sent = texts[number * count : (number + 1) * count]
                for server in servers:
                    rounds[server.name].append(one_round(server, sent, options.clients, options.seconds))
            shares = {server.name: kept(server, texts) for server in servers}
            for name, found in rounds.items():
                rate, p99, spent = (statistics.median(column) for column in zip(*found, strict=True))
                pairs = zip(found, rounds["spillgate"], strict=True)
                ratio = statistics.median(theirs.rate / ours.rate for theirs, ours in pairs)
                row = f"{rate:,.1f} | {p99:,.0f} | {spent:,.2f} | {100 * shares[name]:.1f} % | {ratio:.3f}"
                print(f"| {label} | {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
