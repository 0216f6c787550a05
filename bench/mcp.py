"""POST /mcp beside POST /tools/call: the same call of a tool, by turns, four clients."""

import asyncio
import json
import statistics
import urllib.request
from typing import Any

from bench import load
from bench.servers import Server, running

ROUNDS = 11
SECONDS = 1.0
LINES = "".join(f"line {number} of the result\n" for number in range(2000))
META = "io.modelcontextprotocol/"
NEW = "2026-07-28"


def _post(server: Server, path: str, body: dict[str, Any]) -> Any:
    asked = urllib.request.Request(f"{server.url}{path}", json.dumps(body).encode())
    asked.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)


def requests(handle: str) -> dict[str, bytes]:
    tool = {"name": "tool_output_lines", "arguments": {"handle": handle, "offset": 7, "limit": 20}}
    meta = {f"{META}protocolVersion": NEW, f"{META}clientCapabilities": {}}
    rpc = {"jsonrpc": "2.0", "id": 1}

    def mcp(method: str, params: dict[str, Any], version: str) -> bytes:
        asked = load.request("/mcp", json.dumps({**rpc, "method": method, "params": params}).encode())
        headers = f"mcp-protocol-version: {version}\r\nmcp-method: {method}\r\nmcp-name: {params.get('name')}"
        return asked.replace(b"\r\n\r\n", f"\r\n{headers}\r\n\r\n".encode(), 1)

    return {
        "`/tools/call`": load.request("/tools/call", json.dumps(tool).encode()),
        "`tools/call`, 2025-11-25": mcp("tools/call", tool, "2025-11-25"),
        "`tools/call`, 2026-07-28": mcp("tools/call", {**tool, "_meta": meta}, NEW),
        "`tools/list`, 2025-11-25": mcp("tools/list", {}, "2025-11-25"),
    }


def main() -> None:
    with running("spillgate") as server:
        sent = {"tool_name": "bench", "content": LINES}
        asked = requests(_post(server, "/results", sent)["handle"])
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
        for _ in range(ROUNDS):
            for name, data in asked.items():
                cpu = server.cpu_seconds
                tally = asyncio.run(load.run(server.port, [data], SECONDS, clients=4))
                assert tally.statuses.keys() == {200}, name
                spent = (server.cpu_seconds - cpu) / len(tally.seconds)
                found[name].append((tally.percentile(50) * 1000, spent * 1000))
    (base, *_) = found.values()
    print("| request | latency, ms | against `/tools/call` | processor, ms | against `/tools/call` |")
    print("|---|---|---|---|---|")
    for name, rounds in found.items():
        cells = [
            cell
            for at in (0, 1)
            for cell in (
                f"{statistics.median(one[at] for one in rounds):.2f}",
                f"{statistics.median(a[at] / b[at] for a, b in zip(rounds, base, strict=True)):.2f} x",
            )
        ]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
