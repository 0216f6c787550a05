"""OpenAI Agents SDK: `Agent(tools=SpillgateTools().govern(tool, other_tool))`."""

import asyncio
from dataclasses import replace
from typing import Any, Unpack

from agents import (
    FunctionTool,
    RunContextWrapper,
    Tool,
    ToolGuardrailFunctionOutput,
    ToolOutputGuardrail,
    ToolOutputGuardrailData,
)
from agents.tool_context import ToolContext

from spillgate.client import AsyncSpillgate
from spillgate.exchange import TOOL_NAMES, ClientOptions, Tools, UsageFields, is_blocks


class SpillgateTools:
    """`govern(*tools)` are the tools of an agent: each with the guardrail, and Spillgate's own, which are
    enabled while there is something to ask. `guardrail` is for the tools of an MCP server:
    `tool_output_guardrails= [spillgate.guardrail]`. The SDK names no session: run it inside `session()`,
    or configure one."""

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncSpillgate(**options)
        self._asking: dict[str, asyncio.Task[Tools]] = {}
        self.guardrail: ToolOutputGuardrail[Any] = ToolOutputGuardrail(self._governed, name="spillgate")
        self.tools = [self._tool(name) for name in TOOL_NAMES]

    def govern(self, *tools: Tool) -> list[Tool]:
        """Hosted tools, which run at the provider, pass through as they are."""
        guarded = [self._guarded(tool) if isinstance(tool, FunctionTool) else tool for tool in tools]
        return [*guarded, *self.tools]

    def _guarded(self, tool: FunctionTool) -> FunctionTool:
        guardrail: ToolOutputGuardrail[Any] = ToolOutputGuardrail(
            self._resolved_and_governed, name="spillgate"
        )

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            resolved = await self._client.resolve(arguments, tool.name)
            return resolved.refusal or await tool.on_invoke_tool(context, resolved.arguments)

        guardrails = [*(tool.tool_output_guardrails or []), guardrail]
        return replace(tool, on_invoke_tool=invoke, tool_output_guardrails=guardrails)

    async def _resolved_and_governed(self, data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        return await self._governed(data, passes_on="any")

    async def _governed(
        self, data: ToolOutputGuardrailData, passes_on: str | None = None
    ) -> ToolGuardrailFunctionOutput:
        output, context = data.output, data.context
        blocks = [output] if isinstance(output, dict) else output
        content = blocks if is_blocks(blocks) else str(output)
        governed = await self._client.govern(
            context.tool_name,
            context.tool_call_id,
            content,
            arguments=context.tool_arguments or None,
            passes_on=passes_on,
            **_usage(context),
        )
        if governed.complete:
            return ToolGuardrailFunctionOutput.allow()
        return ToolGuardrailFunctionOutput.reject_content(governed.text)

    def _tool(self, name: str) -> FunctionTool:
        async def invoke(context: ToolContext[Any], arguments: str) -> str:
            return await self._client.call(name, arguments, **_usage(context))

        async def is_enabled(context: RunContextWrapper[Any], agent: object) -> bool:
            for offered in (await self._offered()).definitions:
                if offered["name"] == name:
                    tool.description, tool.params_json_schema = offered["description"], offered["inputSchema"]
                    return True
            return False

        tool = FunctionTool(name, "", {}, invoke, strict_json_schema=False, is_enabled=is_enabled)
        return tool

    async def _offered(self) -> Tools:
        """The SDK asks about all tools at once: that is one question to the service."""
        key = f"{id(asyncio.get_running_loop())} {self._client.session_id}"
        if (asking := self._asking.get(key)) is None:
            asking = self._asking[key] = asyncio.ensure_future(self._client.tools("mcp"))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)


def _usage(context: RunContextWrapper[Any]) -> UsageFields:
    """The usage that the model's last reply reported."""
    entries = context.usage.request_usage_entries
    return {"used_tokens": entries[-1].total_tokens if entries else None}
