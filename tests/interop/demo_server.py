"""An MCP server on stdin and stdout with one tool, `blob`: as many lines as it is asked for."""

import json
import sys
from typing import Any

TOOL = {
    "name": "blob",
    "description": "Returns numbered lines.",
    "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}


def answered(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        version = params["protocolVersion"]
        info = {"name": "demo", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        lines = "".join(f"blob line {number} of the demo\n" for number in range(params["arguments"]["n"]))
        return {"content": [{"type": "text", "text": lines}], "isError": False}
    return {}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = answered(request["method"], request.get("params") or {})
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
