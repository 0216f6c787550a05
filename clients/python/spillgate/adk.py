"""Google ADK 2.x: `App(name=…, root_agent=…, plugins=[SpillgatePlugin()])`."""

import json
from typing import Any, Unpack

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from spillgate.client import AsyncSpillgate
from spillgate.exchange import ClientOptions, is_own_tool


class SpillgatePlugin(BasePlugin):
    """Governs what every tool returns, and offers Spillgate's tools and instructions while there is
    something to ask. The session is ADK's, unless one is configured."""

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        super().__init__(name="spillgate")
        self._client = AsyncSpillgate(**options)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> None:
        offered = await self._client.tools("mcp", session_id=_session(self._client, callback_context))
        if offered.definitions:
            llm_request.append_tools([_OwnTool(self._client, one) for one in offered.definitions])
            if offered.instructions:
                llm_request.append_instructions([offered.instructions])

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> None:
        counted = llm_response.usage_metadata
        if counted and counted.total_token_count:
            session = _session(self._client, callback_context)
            await self._client.report(counted.total_token_count, session_id=session)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """ADK calls the tool with `tool_args`, a copy of what the model wrote."""
        if is_own_tool(tool.name):
            return None
        session = _session(self._client, tool_context)
        resolved = await self._client.resolve(tool_args, tool.name, session_id=session)
        if resolved.refusal:
            return {"error": resolved.refusal}
        tool_args.update(resolved.arguments)
        return None

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> dict[str, Any] | None:
        """ADK makes `{"result": …}` of what is no dict. A dict is governed as JSON."""
        if is_own_tool(tool.name) or result is None:
            return None
        alone = isinstance(result, dict) and set(result) == {"result"}
        content = result["result"] if alone else result
        if not isinstance(content, str):
            content = json.dumps(content, ensure_ascii=False, default=str)
        governed = await self._client.govern(
            tool.name,
            tool_context.function_call_id,
            content,
            arguments=tool_args,
            passes_on="any",
            session_id=_session(self._client, tool_context),
        )
        return None if governed.complete else {"result": governed.content}


class _OwnTool(BaseTool):
    """One of Spillgate's tools, as the service defines it."""

    def __init__(self, client: AsyncSpillgate, offered: dict[str, Any]) -> None:
        super().__init__(name=offered["name"], description=offered["description"])
        self._client = client
        self._schema = offered["inputSchema"]

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> str:
        return await self._client.call(self.name, args, session_id=_session(self._client, tool_context))


def _session(client: AsyncSpillgate, context: CallbackContext) -> str | None:
    return client.session_for(context.session.id)
