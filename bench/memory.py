"""Resident memory: idle, during a 500 MB text upload, during 60 MB JSON bodies of many kinds."""

import asyncio
import http.client
import json
from collections.abc import Iterator

from bench import corpus, hostile, load
from bench.servers import Server, running

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


def json_body(server: Server, text: str) -> int:
    before = server.rss
    body = json.dumps({"tool_name": "bench", "content": text}).encode()
    tally = asyncio.run(load.run(server.port, [load.request("/results", body)], 0, clients=1))
    assert set(tally.statuses) == {201}, tally.statuses
    return (server.peak - before) * MB // len(body)


def hostile_bodies() -> None:
    """Growth of the peak for each body of `bench.hostile`."""
    print("\n| 60 MB JSON body | answer | growth of the peak |\n|---|---|---|")
    for label, body in hostile.bodies(60 * MB):
        with running("spillgate", pinned=False) as server:
            asyncio.run(load.run(server.port, [load.request("/results", hostile.SMALL)], 0, clients=1))
            before = server.rss
            tally = asyncio.run(load.run(server.port, [load.request("/results", body)], 0, clients=1))
            times = (server.peak - before) / len(body)
            print(f"| `{label}` | {', '.join(map(str, tally.statuses))} | {times:.2f} x its size |")


def main() -> None:
    print("| memory | MB |\n|---|---|")
    with running("spillgate", pinned=False) as server:
        print(f"| idle, resident | {server.rss / MB:.0f} |")
    with running("spillgate", pinned=False, SPILLGATE_MAX_BODY_BYTES=str(600 * MB)) as server:
        print(f"| 500 MB text upload, growth of the peak | {text_upload(server) / MB:.0f} |")
    ordinary = corpus.texts(58 * MB, 1)[0]
    for label, text in (("ordinary text", ordinary), ("one emoji in ASCII", "a" * (59 * MB) + "\U0001f600")):
        with running("spillgate", pinned=False) as server:
            times = json_body(server, text) / MB
            print(f"| 60 MB JSON body, {label}, growth of the peak | {times:.2f} x its size |")
    hostile_bodies()


if __name__ == "__main__":
    main()
