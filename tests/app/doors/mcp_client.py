"""A client of /mcp in each era of the protocol, and a result to ask about."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

META = "io.modelcontextprotocol/"
STATELESS = "2026-07-28"
NAMES = {"tools/call": "name", "resources/read": "uri"}
LOG = "".join(
    f"line {number} of the log, {'ERROR' if number % 900 == 7 else 'fine'}\n" for number in range(2000)
)
SECRET = "zebra-4711"
"""What no answer to a bad message may repeat."""


UNKNOWN = f"{'0' * 8}-0000-4000-8000-{'0' * 12}"


@dataclass(frozen=True)
class Era:
    """Messages as the official Python SDK and the coding agents were recorded to send them."""

    version: str | None

    @property
    def is_stateless(self) -> bool:
        return self.version == STATELESS

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        if self.is_stateless:
            client = {"name": "mcp", "version": "0.1.0"}
            params["_meta"] = {
                f"{META}protocolVersion": STATELESS,
                f"{META}clientInfo": client,
                f"{META}clientCapabilities": {},
            }
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": method}
        return {**message, "params": params} if params else message

    def headers(self, method: str, **params: Any) -> dict[str, str]:
        found = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if self.version is not None:
            found["mcp-protocol-version"] = self.version
        if self.is_stateless:
            found["mcp-method"] = method
            if (name := NAMES.get(method)) in params:
                found["mcp-name"] = params[name]
        return found

    async def post(self, client: httpx.AsyncClient, method: str, **params: Any) -> httpx.Response:
        headers = self.headers(method, **params)
        return await client.post("/mcp", json=self.request(method, **params), headers=headers)

    async def call(self, client: httpx.AsyncClient, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.post(client, method, **params)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/json"
        told = answer.json()
        assert (told["jsonrpc"], told["id"]) == ("2.0", 7)
        result: dict[str, Any] = told["result"]
        if self.is_stateless:
            assert result.pop("resultType") == "complete"
            assert result.pop("_meta")[f"{META}serverInfo"]["name"] == "spillgate"
            if method != "tools/call":
                assert (result.pop("ttlMs"), result.pop("cacheScope")) == (0, "private")
        return result

    async def tool(self, client: httpx.AsyncClient, tool: str, **arguments: Any) -> tuple[str, bool]:
        result = await self.call(client, "tools/call", name=tool, arguments=arguments)
        (block,) = result["content"]
        assert block["type"] == "text"
        return block["text"], result["isError"]


NEW = Era(STATELESS)
OLD = Era("2025-11-25")
ERAS = pytest.mark.parametrize(
    "era", [NEW, OLD, Era("2025-06-18"), Era("2025-03-26"), Era(None)], ids=lambda era: str(era.version)
)


async def keep(client: httpx.AsyncClient, content: str = LOG, session: str = "run-1", **more: Any) -> str:
    sent = {"session_id": session, "tool_name": "read_log", "content": content, **more}
    handle: str = (await client.post("/results", json=sent)).json()["handle"]
    return handle
