"""An MCP server on plain Python, for the tests of the relay: `python scripted_mcp.py RECEIVED`.

Each line that it reads is appended to the file RECEIVED. A call of a tool does what its argument `what` says.
The method `emit` writes the bytes of the file `path`. After `tells`, it tells of changes in its resources."""

import json
import os
import signal
import sys
from pathlib import Path

# A shell ignores SIGINT for what it starts in the background, and so would this. Python's own handler would
# see a signal that comes just before a read only after the next line.
signal.signal(signal.SIGINT, signal.SIG_DFL)
received = Path(sys.argv[1]).open("ab", buffering=0)  # noqa: SIM115
out = sys.stdout.buffer
held: list[object] = []
SIZED = b"0123456789abcde\\n"


def say(request: object, result: dict) -> None:
    out.write(json.dumps({"jsonrpc": "2.0", "id": request, "result": result}).encode() + b"\n")
    out.flush()


def text(said: str) -> dict:
    return {"content": [{"type": "text", "text": said}]}


def tools(cursor: str | None) -> dict:
    """Three pages, with what a careless JSON reader would lose."""
    if cursor == "odd":
        return {"tools": [{"name": ["a"]}, 7, {}]}
    page = int(cursor or 1)
    tool = {
        "name": f"tool-{page}",
        "description": "d\ud800é",
        "inputSchema": {"type": "object", "properties": {"n": {"maximum": 12345678901234567890123}}},
        "outputSchema": {"type": "object"},
        "_meta": {"kept": 1} if page == 1 else None,
    }
    return {"tools": [tool], **({"nextCursor": str(page + 1)} if page < 3 else {})}


def call(request: object, arguments: dict) -> None:
    what, size = arguments["what"], arguments.get("size", 0)
    if what == "text":
        say(request, text("line é of text\n" * (size // 16)))
    elif what == "result":
        say(request, arguments["result"])
    elif what == "hold":
        held.append(request)
    elif what == "release":
        say(request, text("released"))
        for one in held:
            say(one, text(f"held {one}"))
    elif what == "exit":
        sys.exit(arguments["status"])
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "close":
        os.close(1)
    elif what == "garbage":
        out.write(b"Listening on \xff\xfe stdout!\n\n\x00\x01\n")
        out.write(b'{"jsonrpc": "2.0", "id": 4711, "result": {"unfinished": \n')
        say(request, text("after garbage"))
    elif what == "raw":
        head = {"jsonrpc": "2.0", "id": request, "result": text("@")}
        before, after = json.dumps(head).encode().split(b"@")
        out.write(before)
        for _ in range(size >> 20):
            out.write(SIZED * (1 << 16))
        out.write(after + b"\n")
        out.flush()


def answer(message: dict) -> None:
    method, params, request = message["method"], message.get("params") or {}, message["id"]
    if method == "initialize":
        info = {"serverInfo": {"name": "scripted", "version": "1"}}
        say(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, **info})
    elif method == "server/discover":
        capabilities = {"tools": {}, **({"resources": {"listChanged": True}} if "tells" in sys.argv else {})}
        say(request, {"supportedVersions": ["2026-07-28"], "capabilities": capabilities})
    elif method == "subscriptions/listen":
        meta = {"io.modelcontextprotocol/subscriptionId": request}
        told = {"notifications": {"resourcesListChanged": True}, "_meta": meta}
        acknowledged = {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": told,
        }
        out.write(json.dumps(acknowledged).encode() + b"\n")
        out.flush()
    elif method == "tools/list":
        say(request, tools(params.get("cursor")))
    elif method == "tools/call":
        call(request, params["arguments"])
    elif method == "emit":
        out.write(Path(params["path"]).read_bytes())
        out.flush()
    else:
        say(request, params.get("result", {}))


for line in sys.stdin.buffer:
    received.write(line)
    try:
        messages = json.loads(line)
    except (ValueError, RecursionError):
        continue
    for one in messages if isinstance(messages, list) else [messages]:
        if isinstance(one, dict) and "id" in one and "method" in one:
            answer(one)
