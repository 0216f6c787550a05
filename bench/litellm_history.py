"""LiteLLM's guardrail over a history of 200 tool results, of which 10 are new with each request."""

import json
import statistics
import time
from http.client import HTTPConnection
from typing import Any

from bench import corpus
from bench.servers import Server, running

ROWS, FRESH, ROUNDS = 200, 10, 15
PATH = "/beta/litellm_basic_guardrail_api"


def _request(texts: list[str], first: int) -> bytes:
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
    sent = {
        "input_type": "request",
        "structured_messages": rows,
        "tools": tools,
        "request_headers": headers,
    }
    return json.dumps(sent).encode()


def _milliseconds(connection: HTTPConnection, body: bytes, path: str = PATH) -> float:
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


def main() -> None:
    print("| size of a result | all new, ms | 190 of 200 seen, ms | best | CPU, ms | against one result |")
    print("|---|---|---|---|---|---|")
    with running("spillgate") as server:
        connection = HTTPConnection("127.0.0.1", server.port)
        for size in (2_000, 20_000, 50_000):
            texts = corpus.texts(size, 50)
            new = _milliseconds(connection, _request(texts, 0))
            bodies = [_request(texts, FRESH * number) for number in range(1, ROUNDS + 1)]
            busy = server.cpu_seconds
            seen = [_milliseconds(connection, body) for body in bodies]
            busy = 1000 * (server.cpu_seconds - busy) / ROUNDS
            median = statistics.median(seen)
            ratio = busy / _single(server, connection, texts)
            times = f"{new:.0f} | {median:.1f} | {min(seen):.1f} | {busy:.1f} | {ratio:.0f} x"
            print(f"| {size:,} bytes | {times} |", flush=True)


if __name__ == "__main__":
    main()
