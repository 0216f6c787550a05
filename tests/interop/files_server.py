"""An MCP server on plain Python: `fetch` returns 200 KB of text, `save` writes a text to a file."""

import json
import sys
from pathlib import Path
from typing import Any

LINES = [f'{number}: "quoted" \\ é 鬱 \t {"x" * (number % 50)}\n' for number in range(5000)]
TEXT = "".join(LINES)[:200_000]
STRING = {"type": "string"}
TOOLS = [
    {"name": "fetch", "description": "Fetches.", "inputSchema": {"type": "object", "properties": {}}},
    {
        "name": "save",
        "description": "Writes a text to a file.",
        "inputSchema": {
            "type": "object",
            "properties": {"path": STRING, "text": STRING},
            "required": ["path", "text"],
        },
    },
]


def called(name: str, arguments: dict[str, Any]) -> str:
    if name == "fetch":
        return TEXT
    Path(arguments["path"]).write_text(arguments["text"])
    return "saved"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        version = params["protocolVersion"]
        return {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "files", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": called(params["name"], params.get("arguments") or {})}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
