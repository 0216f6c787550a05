"""LiteLLM's guardrail and /v1/compress over a history of 200 tool results, of which 10 are new each time."""

import json
import statistics
import time
from http.client import HTTPConnection
from typing import Any

from bench import corpus
from bench.servers import Server, running

ROWS, FRESH, ROUNDS = 200, 10, 15
PATHS = {"structured_messages": "/beta/litellm_basic_guardrail_api", "messages": "/v1/compress"}
"""By the name of the messages in the body."""


def _request(member: str, texts: list[str], first: int) -> bytes:
    """With the results numbered from `first` on."""
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Go on."}]
    for number in range(first, first + ROWS):
        function = {"name": "execute_shell", "arguments": '{"command": "ls"}'}
        call = {"id": f"call-{number}", "type": "function", "function": function}
        rows.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"{number} {texts[number % len(texts)]}"
        rows.append({"role": "tool", "tool_call_id": f"call-{number}", "content": text})
    tools = [{"type": "function", "function": {"name": "execute_shell", "parameters": {}}}]
    headers = {"x-session-id": f"bench-{len(texts[0])}"}
    sent = {"input_type": "request", member: rows, "tools": tools, "request_headers": headers}
    return json.dumps(sent).encode()


def _milliseconds(connection: HTTPConnection, body: bytes, path: str) -> float:
    started = time.perf_counter()
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    told = answer.read()
    took = 1000 * (time.perf_counter() - started)
    assert answer.status in (200, 201), told[:500]
    return took


def _single(server: Server, connection: HTTPConnection, texts: list[str]) -> float:
    """Processor ms of one result of this size that is sent to POST /results."""
    bodies = [
        json.dumps(
            {"tool_name": "execute_shell", "tool_call_id": f"{len(text)}-{n}", "content": text}
        ).encode()
        for n, text in enumerate(texts)
    ]
    busy = server.cpu_seconds
    for body in bodies:
        _milliseconds(connection, body, "/results")
    return 1000 * (server.cpu_seconds - busy) / len(bodies)


def _measure(server: Server, connection: HTTPConnection, member: str, size: int) -> None:
    path, texts = PATHS[member], corpus.texts(size, 50)
    new = _milliseconds(connection, _request(member, texts, 0), path)
    bodies = [_request(member, texts, FRESH * number) for number in range(1, ROUNDS + 1)]
    busy = server.cpu_seconds
    seen = [_milliseconds(connection, body, path) for body in bodies]
    busy = 1000 * (server.cpu_seconds - busy) / ROUNDS
    median = statistics.median(seen)
    ratio = busy / _single(server, connection, texts)
    times = f"{new:.0f} | {median:.1f} | {min(seen):.1f} | {busy:.1f} | {ratio:.0f} x"
    print(f"| {path} | {size:,} bytes | {times} |", flush=True)


def main() -> None:
    print("| route | size of a result | all new, ms | 190 seen, ms | best | CPU, ms | against one result |")
    print("|---|---|---|---|---|---|---|")
    for member in PATHS:
        with running("spillgate") as server:
            connection = HTTPConnection("127.0.0.1", server.port)
            for size in (2_000, 20_000, 50_000):
                _measure(server, connection, member, size)


if __name__ == "__main__":
    main()
