"""`spillgate mcp --tools`: the model's tools for clients that start their MCP servers, over stdin and stdout.

Each message goes to /mcp of the service, which is started where none runs.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from beside.client import TOOL_SECONDS, ServiceError, ServiceRequest
from beside.relay.messages import INTERNAL_ERROR, NOT_JSON, LazyJson, failure, id_of, method_of, parse
from beside.relay.routing_headers import RoutingHeaders
from beside.relay.service_calls import GoverningService
from beside.relay.streams import MessageOutput, lines, read_from, to_stderr

KEEP_SECONDS = 600.0
"""The interval at which the service is asked while a client runs, so that it does not end: a plugin cannot
start one."""

THREADS = 4


def serve(service: GoverningService) -> int:
    """Returns when the client closes stdin and has its answers."""
    client = MessageOutput(1)
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


def _answer(service: GoverningService, client: MessageOutput, line: bytes) -> None:
    message = None
    headers = dict[str, str]()
    with suppress(*NOT_JSON):  # The service answers what is no request.
        message = parse(line)
        headers = RoutingHeaders().of(message)
    try:
        answer = service.request(ServiceRequest("POST", "/mcp", line, headers, seconds=TOOL_SECONDS)).body
    except ServiceError as error:
        to_stderr(f"spillgate mcp: {error}\n".encode("utf-8", "replace"))
        answer = b"" if message is None else _failure(message, str(error))
    if answer:
        with suppress(OSError):  # The client may be gone.
            client.write(answer.rstrip(b"\n") + b"\n")


def _failure(message: LazyJson, why: str) -> bytes:
    """b"" for a message that needs no response."""
    if id_of(message) is None or method_of(message) is None:
        return b""
    return failure(message.members["id"].text, INTERNAL_ERROR, why)
