"""Resident memory: idle, during a 500 MB text upload, during 8 MB JSON bodies of many kinds."""

import argparse
import asyncio
import http.client
import json
from collections.abc import Iterator
from pathlib import Path

from bench import corpus, hostile, load
from bench.servers import ROOT, Server, running

MB = 1_000_000


def _upload(size: int, piece: bytes) -> Iterator[bytes]:
    for _ in range(size // len(piece)):
        yield piece


def text_upload(server: Server) -> int:
    """Growth of the peak, in bytes."""
    before = server.rss
    piece = corpus.texts(MB, 1)[0].encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    headers = {"Content-Type": "text/plain", "Transfer-Encoding": "chunked"}
    connection.request(
        "POST", "/results?tool_name=bench", _upload(500 * MB, piece), headers, encode_chunked=True
    )
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    answer.read()
    return server.peak - before


def _growth(server: Server, path: str, body: bytes) -> tuple[str, float]:
    """The statuses of the answers, and the growth of the peak as a multiple of the body."""
    asyncio.run(load.run(server.port, [load.request("/results", hostile.SMALL)], 0, clients=1))
    before = server.rss
    tally = asyncio.run(load.run(server.port, [load.request(path, body)], 0, clients=1))
    return ", ".join(map(str, tally.statuses)), (server.peak - before) / len(body)


def hostile_bodies(tree: Path) -> None:
    """Growth of the peak for each body of `bench.hostile`, as a result and within a hook's JSON."""
    print("\n| 8 MB JSON body | answer | growth of the peak | as a hook's | growth of the peak |")
    print("|---|---|---|---|---|")
    for label in hostile.LABELS:
        body = hostile.body(label)
        cells = []
        for path, sent in (("/results", body), ("/hooks/codex", hostile.of_hook(body))):
            with running("spillgate", pinned=False, tree=tree) as server:
                statuses, times = _growth(server, path, sent)
                cells += [statuses, f"{times:.2f} x its size"]
        print(f"| `{label}` | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="the directory of another version")
    tree = parser.parse_args().tree
    print("| memory | MB |\n|---|---|")
    with running("spillgate", pinned=False, tree=tree) as server:
        print(f"| idle, resident | {server.rss / MB:.0f} |")
    most = str(600 * MB)
    with running("spillgate", pinned=False, tree=tree, SPILLGATE_MAX_BODY_BYTES=most) as server:
        print(f"| 500 MB text upload, growth of the peak | {text_upload(server) / MB:.0f} |")
    ordinary = corpus.texts(7 * MB, 1)[0]
    for label, text in (("ordinary text", ordinary), ("one emoji in ASCII", "a" * (7 * MB) + "\U0001f600")):
        with running("spillgate", pinned=False, tree=tree) as server:
            body = json.dumps({"tool_name": "bench", "content": text}).encode()
            statuses, times = _growth(server, "/results", body)
            assert statuses == "201", statuses
            print(f"| 8 MB JSON body, {label}, growth of the peak | {times:.2f} x its size |")
    hostile_bodies(tree)


if __name__ == "__main__":
    main()
