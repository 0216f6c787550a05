"""Strands: `Agent(tools=[…], hooks=[SpillgateHooks()])`, or
`ContextOffloader(storage=SpillgateStorage())`."""

from typing import Any, Unpack

from strands.hooks import (
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookProvider,
    HookRegistry,
)
from strands.tools.tools import PythonAgentTool

from spillgate.client import AsyncSpillgate
from spillgate.exchange import TOOL_NAMES, ClientOptions, UsageFields, is_own_tool


class SpillgateHooks(HookProvider):
    """Governs what every tool returns, and registers Spillgate's tools while there is something to ask.
    Strands names no session: run the agent inside `session()`, or configure one. Pictures and documents of
    a result stay beside the text that replaces its texts and data."""

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncSpillgate(**options)

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(BeforeModelCallEvent, self._offer)
        registry.add_callback(BeforeToolCallEvent, self._resolve)
        registry.add_callback(AfterToolCallEvent, self._govern)

    async def _offer(self, event: BeforeModelCallEvent) -> None:
        offered = {one["name"]: one for one in (await self._client.tools("mcp")).definitions}
        tools = event.agent.tool_registry
        for name in TOOL_NAMES:
            if name not in offered:
                tools.registry.pop(name, None)
            elif name not in tools.registry:
                tools.process_tools([self._tool(offered[name], event.agent)])

    def _tool(self, offered: dict[str, Any], agent: Any) -> PythonAgentTool:
        async def call(tool_use: dict[str, Any], **state: Any) -> dict[str, Any]:
            text = await self._client.call(tool_use["name"], tool_use["input"], **_usage(agent))
            return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": text}]}

        schema = {"json": offered["inputSchema"]}
        spec = {"name": offered["name"], "description": offered["description"], "inputSchema": schema}
        return PythonAgentTool(offered["name"], spec, call)

    async def _resolve(self, event: BeforeToolCallEvent) -> None:
        """The message of the model keeps the arguments that it wrote."""
        use = event.tool_use
        if is_own_tool(use["name"]):
            return
        resolved = await self._client.resolve(use["input"], use["name"])
        if resolved.refusal:
            event.cancel_tool = resolved.refusal
        else:
            event.tool_use = {**use, "input": resolved.arguments}

    async def _govern(self, event: AfterToolCallEvent) -> None:
        use, result = event.tool_use, event.result
        shown = [one for one in result["content"] if "text" in one or "json" in one]
        if is_own_tool(use["name"]) or not shown:
            return
        content = [_block(one) for one in shown]
        governed = await self._client.govern(
            use["name"],
            use["toolUseId"],
            content[0]["text"] if len(content) == 1 and "text" in content[0] else content,
            arguments=use["input"],
            is_error=result["status"] == "error",
            passes_on="any",
            **_usage(event.agent),
        )
        if not governed.complete:
            others = [one for one in result["content"] if one not in shown]
            event.result = {**result, "content": [{"text": governed.text}, *others]}


class SpillgateStorage:
    """Where Strands' own `ContextOffloader` keeps what it takes out of the context. Its references are
    handles, so that other doors can ask about them as well."""

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncSpillgate(**options)

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        """Raises OSError if it cannot be stored: then the offloader leaves the result in the context."""
        policy = {"max_bytes": 1, "on_oversize": "store"}
        governed = await self._client.govern("offloaded", key, content, policy=policy)
        if governed.handle is None:
            raise OSError("Spillgate did not store it.")
        return governed.handle

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Raises KeyError if nothing is stored under the reference."""
        content = await self._client.content(reference)
        if content is None:
            raise KeyError(reference)
        return content, "text/plain"


def _block(content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": content["text"]} if "text" in content else {"type": "json", **content}


def _usage(agent: Any) -> UsageFields:
    """The usage that the model's last reply reported."""
    runs = agent.event_loop_metrics.agent_invocations
    cycles = runs[-1].cycles if runs else []
    counted = [cycle.usage["totalTokens"] for cycle in cycles if cycle.usage["totalTokens"]]
    return {"used_tokens": counted[-1] if counted else None}
