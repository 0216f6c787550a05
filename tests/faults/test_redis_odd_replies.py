"""What answers as Redis does and means something else by it: each route is 503 or knows nothing, none is a
fault."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from domain.errors import ConfigError
from tests.conftest import Serve
from tests.listening import listening

pytestmark = pytest.mark.anyio

HANDLE = "session-run/file-00000000-0000-4000-8000-000000000000"
REPLIES = {
    "a status": b"+OK\r\n",
    "a number": b":1\r\n",
    "a text": b"$2\r\nhi\r\n",
    "nothing": b"$-1\r\n",
    "no elements": b"*0\r\n",
    "a list": b"*2\r\n:1\r\n$1\r\na\r\n",
    "a list of nothing": b"*3\r\n$-1\r\n$-1\r\n$-1\r\n",
    "a list of lists": b"*2\r\n*1\r\n:1\r\n*0\r\n",
    "a list of numbers": b"*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
}


@asynccontextmanager
async def answering(reply: bytes) -> AsyncIterator[str]:
    """A server that greets as Redis does, has our schema, and answers every other command alike."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while command := await _read(reader):
            if command[0] == b"ECHO":
                writer.write(b"$%d\r\n%b\r\n" % (len(command[1]), command[1]))
            elif command[:2] == [b"HMGET", b"spillgate:schema"]:
                writer.write(b"*2\r\n$1\r\n3\r\n$5\r\n0.2.0\r\n")
            else:
                writer.write(reply)

    async with listening(serve) as port:
        yield f"redis://127.0.0.1:{port}/0"


async def _read(reader: asyncio.StreamReader) -> list[bytes]:
    words = list[bytes]()
    try:
        for _ in range(int((await reader.readline())[1:])):
            size = int((await reader.readline())[1:])
            words.append((await reader.readexactly(size + 2))[:-2])
    except (ValueError, asyncio.IncompleteReadError, ConnectionError):
        return []
    return words


async def _ask(client: httpx.AsyncClient) -> dict[str, int]:
    large = {"session_id": "run", "tool_name": "t", "content": "line\n" * 5000}
    report = {"used_tokens": 5, "turn": 1}
    asked = {
        "pass": ("POST", "/results", {**large, "content": "short"}),
        "named": ("POST", "/results", {**large, "tool_call_id": "a", "context": report}),
        "store": ("POST", "/results", large),
        "check": ("POST", "/check", {"session_id": "run", "tool_name": "t", "bytes": 5}),
        "extract": ("POST", "/extract", {"handle": HANDLE, "extract": "what"}),
        "tool": (
            "POST",
            "/tools/call",
            {"session_id": "run", "name": "tool_output", "arguments": {"handle": HANDLE, "lines": "1"}},
        ),
        "put": ("PUT", "/sessions/run", {"context_window": 1000}),
        "usage": ("POST", "/sessions/run/usage", report),
        "confirm": ("POST", "/clock/confirm", None),
    }
    paths = (
        *(
            f"/results/{HANDLE}{view}"
            for view in ("", "/content", "/lines", "/grep?pattern=x", "/query?query=x")
        ),
        *(
            "/sessions",
            "/sessions/run",
            "/tools?session_id=run",
            "/accounting/entries",
            "/accounting/summary",
        ),
        *(
            "/accounting/summary?group_by=session_id",
            "/accounting/summary?group_by=day",
            "/readyz",
            "/healthz",
        ),
        *("/metrics", "/tenants", "/config", "/clock", "/results"),
    )
    asked |= {path: ("GET", path, None) for path in paths}
    asked |= {
        f"delete {path}": ("DELETE", path, None)
        for path in (f"/results/{HANDLE}", "/sessions/run", "/tenants/default")
    }
    return {
        name: (await client.request(method, path, json=body)).status_code
        for name, (method, path, body) in asked.items()
    }


@pytest.mark.usefixtures("patient_redis")
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
async def test_no_reply_of_another_type_is_a_fault_of_the_service(serve: Serve, reply: bytes) -> None:
    statuses = {"store": 503}
    # A start that is refused is no fault either: what is found may look like what another setting has kept.
    with suppress(ConfigError):
        async with answering(reply) as url, serve(storage_url=url) as client:
            statuses = await _ask(client)
    assert {name: status for name, status in statuses.items() if status == 500} == {}
    assert statuses["store"] == 503
