"""`spillgate mcp --tools`: the model's tools for clients that start their MCP servers, over stdin and stdout.

Each message goes to /mcp of the service, which is started where none runs.
"""

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from command.client import TOOL_SECONDS, ServiceError, ServiceRequest
from domain.doors import NAMED_BY
from relay.service import GoverningService
from relay.streams import Output, lines, read_from, to_stderr

KEEP_SECONDS = 600.0
"""The service is asked so often while a client runs, and does not end: hooks over HTTP cannot start one."""

THREADS = 4
_FAILED = -32603


def serve(service: GoverningService) -> int:
    """Returns when the client closes stdin and has its answers."""
    client = Output(1)
    threading.Thread(target=_keep, args=(service,), daemon=True).start()
    with ThreadPoolExecutor(THREADS) as pool:
        for line in lines(read_from(0)):
            if line.strip():
                pool.submit(_answer, service, client, bytes(line))
    service.close()
    sys.stdout.flush()
    return 0


def _keep(service: GoverningService) -> None:
    while True:
        service.warm_up()
        time.sleep(KEEP_SECONDS)


def _answer(service: GoverningService, client: Output, line: bytes) -> None:
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    try:
        request = ServiceRequest("POST", "/mcp", line, _headers(message), seconds=TOOL_SECONDS)
        answer = service.request(request).body
    except ServiceError as error:
        to_stderr(f"spillgate mcp: {error}\n".encode("utf-8", "replace"))
        answer = _failure(message, str(error))
    if answer:
        try:
            client.write(answer.rstrip(b"\n") + b"\n")
        except OSError:
            return  # The client is gone.


def _headers(message: Any) -> dict[str, str]:
    """Those that the stateless version of the protocol wants beside the body."""
    match message:
        case {
            "method": str(method),
            "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": str(version)}},
        }:
            headers = {"MCP-Protocol-Version": version, "Mcp-Method": method}
            name = message["params"].get(NAMED_BY.get(method))
            return headers | ({"Mcp-Name": name} if isinstance(name, str) and name.isascii() else {})
    return {}


def _failure(message: Any, why: str) -> bytes:
    """b"" for a message that needs no response."""
    match message:
        case {"id": str() | int() as number, "method": str()}:
            error = {"code": _FAILED, "message": why}
            return json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode()
    return b""
