"""Uses all of a server with the official Python SDK's client, and prints what it got as JSON.

Arguments: the mode of the client, and as JSON what to use (["sdk"], ["git", PATH] or ["time"]), the command
or URL, and the environment of the command."""

import asyncio
import json
import re
import sys
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

Got = dict[str, Any]
HANDLE = re.compile(r"session-[^/]+/file-[0-9a-f-]{36}")


def plain(found: Any) -> Any:
    return found.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def tried(call: Any) -> Any:
    try:
        return plain(await call)
    except MCPError as error:
        return {"code": error.error.code, "message": error.error.message}


async def use_sdk(client: Client, got: Got) -> None:
    progress: list[Any] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        progress.append([done, total, message])

    got["log"] = await tried(client.call_tool("log", {"lines": 5000}))
    got["short log"] = await tried(client.call_tool("log", {"lines": 3}))
    got["rows"] = await tried(client.call_tool("rows", {"count": 2000}))
    got["short rows"] = await tried(client.call_tool("rows", {"count": 2}))
    got["region"] = await tried(client.call_tool("region", {"name": "Zürich"}))
    got["fail"] = await tried(client.call_tool("fail"))
    got["picture"] = await tried(client.call_tool("picture"))
    got["work"] = await tried(client.call_tool("work", {"steps": 5}, progress_callback=note))
    got["progress"] = progress
    got["confirm"] = await tried(client.call_tool("confirm"))
    got["unknown tool"] = await tried(client.call_tool("nothing"))
    with anyio.move_on_after(0.5) as scope:
        await client.call_tool("wait")
    got["cancelled"] = scope.cancelled_caught
    got["resources"] = await tried(client.list_resources())
    got["templates"] = await tried(client.list_resource_templates())
    got["resource"] = await tried(client.read_resource("notes://all"))
    got["from template"] = await tried(client.read_resource("notes://x"))
    got["unknown resource"] = await tried(client.read_resource("other://x"))
    got["prompts"] = await tried(client.list_prompts())
    got["prompt"] = await tried(client.get_prompt("greet", {"name": "Ada"}))


async def use_git(client: Client, got: Got, repository: str) -> None:
    for tool, arguments in (
        ("git_status", {}),
        ("git_log", {"max_count": 400}),
        ("git_log", {"max_count": 1}),
        ("git_show", {"revision": "HEAD"}),
        ("git_diff_unstaged", {}),
        ("git_branch", {"branch_type": "local"}),
        ("git_checkout", {"branch_name": "no-such-branch"}),
    ):
        call = client.call_tool(tool, {"repo_path": repository, **arguments})
        got[f"{tool} {arguments}"] = await tried(call)


async def use_time(client: Client, got: Got) -> None:
    asked = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Asia/Kolkata"}
    got["convert"] = await tried(client.call_tool("convert_time", asked))
    got["wrong"] = await tried(client.call_tool("convert_time", {**asked, "time": "noon"}))


async def use(mode: Any, what: list[str], target: str | list[str], env: dict[str, str]) -> Got:
    async def elicited(context: Any, asked: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"yes": True})

    if isinstance(target, list):
        target = StdioServerParameters(command=target[0], args=target[1:], env=env)
    async with Client(target, mode=mode, elicitation_callback=elicited) as client:
        got: Got = {"version": client.protocol_version, "instructions": client.instructions}
        got["server"] = plain(client.server_info) if client.server_info else None
        got["capabilities"] = plain(client.server_capabilities)
        got["tools"] = (await tried(client.list_tools()))["tools"]
        await {"sdk": use_sdk, "git": use_git, "time": use_time}[what[0]](client, got, *what[1:])
        got["questions"] = []
        if any(tool["name"] == "tool_output" for tool in got["tools"]):
            for handle in HANDLE.findall(json.dumps(got)):
                asked = {"handle": handle, "lines": "2"}
                got["questions"].append(await tried(client.call_tool("tool_output", asked)))
    return got


print(json.dumps(asyncio.run(use(sys.argv[1], *(json.loads(one) for one in sys.argv[2:])))))
