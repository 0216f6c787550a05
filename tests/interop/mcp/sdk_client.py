"""The official Python SDK's client against /mcp, in the environment `.mcp`: prints what it gets."""

import asyncio
import json
import sys
from typing import Any

from mcp import Client
from mcp.shared.exceptions import MCPError


async def use(url: str, mode: Any, handle: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with Client(url, mode=mode) as client:
        found["version"] = client.protocol_version
        found["instructions"] = client.instructions
        found["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        asked = {"handle": handle, "extract": "ERROR"}
        answer = await client.call_tool("tool_output", asked)
        found["answer"], found["failed"] = answer.content[0].text, answer.is_error
        answer = await client.call_tool("tool_output", {"handle": "nothing", "lines": "1"})
        found["fault"], found["is_fault"] = answer.content[0].text, answer.is_error
        found["resources"] = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        found["templates"] = [template.uri_template for template in templates]
        found["read"] = (await client.read_resource(f"spillgate://{handle}")).contents[0].text
        for name, call in (
            ("unknown resource", client.read_resource("spillgate://session-a/file-b")),
            ("no prompts", client.list_prompts()),
        ):
            try:
                await call
            except MCPError as error:
                found[name] = error.error.code
    return found


print(json.dumps(asyncio.run(use(*sys.argv[1:]))))
