"""Pydantic AI 2.x: `Agent(model, capabilities=[SpillgateCapability()])`."""

from typing import Any, Unpack

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapToolExecuteHandler
from pydantic_ai.exceptions import SkipToolExecution
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturn, ToolReturnPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from spillgate.client import AsyncSpillgate
from spillgate.exchange import ClientOptions, UsageFields, is_own_tool

_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))


class SpillgateCapability(AbstractCapability[Any]):
    """Governs what every tool returns, and brings Spillgate's tools and instructions while there is
    something to ask. The session is the conversation, unless one is configured. A result with pictures
    (`ToolReturn`, binary content) is left alone."""

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncSpillgate(**options)

    def get_toolset(self) -> AbstractToolset[Any]:
        return _Tools(self._client)

    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> dict[str, Any]:
        if is_own_tool(call.tool_name):
            return args
        given = await self._client.resolve(args, call.tool_name, session_id=_session(self._client, ctx))
        if given.refusal:
            raise SkipToolExecution(given.refusal)
        resolved: dict[str, Any] = given.arguments
        return resolved

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Any,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Governs the text of `ModelRetry` and `ToolFailed`, which the model reads."""
        try:
            return await handler(args)
        except Exception as error:
            part = getattr(error, "tool_retry", None) or getattr(error, "tool_failed", None)
            if isinstance(part, ToolReturnPart) and isinstance(part.content, str):
                part.content = (await self._governed(ctx, call, part.content, is_error=True)) or part.content
            raise

    async def after_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, result: Any
    ) -> Any:
        read = ToolReturnPart(call.tool_name, result)
        if is_own_tool(call.tool_name) or isinstance(result, ToolReturn) or read.files:
            return result
        shown = await self._governed(ctx, call, read.model_response_str())
        return result if shown is None else shown

    async def _governed(
        self, ctx: RunContext[Any], call: ToolCallPart, text: str, *, is_error: bool = False
    ) -> str | None:
        """What the model reads instead of the text; None if it passes."""
        governed = await self._client.govern(
            call.tool_name,
            call.tool_call_id,
            text,
            arguments=call.args,
            is_error=is_error,
            passes_on="any",
            **_usage(self._client, ctx),
        )
        return None if governed.complete else governed.text


class _Tools(AbstractToolset[Any]):
    """The tools that the service offers at each step, as it defines them."""

    def __init__(self, client: AsyncSpillgate) -> None:
        self._client = client

    @property
    def id(self) -> str:
        return "spillgate"

    async def get_instructions(self, ctx: RunContext[Any]) -> str | None:
        return (await self._client.tools("mcp", session_id=_session(self._client, ctx))).instructions or None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        offered = await self._client.tools("mcp", session_id=_session(self._client, ctx))
        return {one["name"]: self._tool(one) for one in offered.definitions}

    def _tool(self, offered: dict[str, Any]) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=offered["name"],
            description=offered["description"],
            parameters_json_schema=offered["inputSchema"],
        )
        # The service checks the arguments itself: what is wrong with them is a text for the model.
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=1, args_validator=_ANY_OBJECT)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        return await self._client.call(name, tool_args, **_usage(self._client, ctx))


def _session(client: AsyncSpillgate, ctx: RunContext[Any]) -> str | None:
    return client.session_for(ctx.conversation_id)


def _usage(client: AsyncSpillgate, ctx: RunContext[Any]) -> UsageFields:
    """The usage that the model's last reply reported."""
    replies = (one for one in reversed(ctx.messages) if isinstance(one, ModelResponse))
    reply = next(replies, None)
    used = reply.usage.input_tokens + reply.usage.output_tokens if reply else 0
    return {"session_id": _session(client, ctx), "used_tokens": used or None}
