"""Microsoft Agent Framework: `Agent(client, tools=[…], middleware=spillgate_middleware())`."""

import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
)

from spillgate.client import AsyncSpillgate
from spillgate.exchange import TOOL_NAMES, ClientOptions, is_own_tool

Next = Callable[[], Awaitable[None]]


def spillgate_middleware(**options: Unpack[ClientOptions]) -> list[FunctionMiddleware | ChatMiddleware]:
    """Governs what every function returns, gives the run Spillgate's tools while there is something to
    ask, and reports usage. The session is the AgentSession's, unless one is configured. A result with
    pictures is left alone, and the usage of a streamed reply is not reported."""
    client = AsyncSpillgate(**options)
    return [_Functions(client), _Replies(client)]


class _Functions(FunctionMiddleware):
    def __init__(self, client: AsyncSpillgate) -> None:
        self._client = client

    async def process(self, context: FunctionInvocationContext, call_next: Next) -> None:
        name, session = context.function.name, _session(self._client, context)
        arguments: Any = context.arguments
        if not is_own_tool(name) and isinstance(arguments, dict):
            resolved = await self._client.resolve(arguments, name, session_id=session)
            if resolved.refusal:
                context.result = resolved.refusal
                return
            context.arguments = resolved.arguments
        await call_next()
        text = _text(context.result)
        if is_own_tool(name) or text is None:
            return
        governed = await self._client.govern(
            name,
            context.metadata.get("call_id"),
            text,
            arguments=arguments if isinstance(arguments, dict) else None,
            session_id=session,
            passes_on="any",
        )
        if not governed.complete:
            context.result = governed.text
        if context.tools is not None:
            await self._offer(context, session)

    async def _offer(self, context: FunctionInvocationContext, session: str | None) -> None:
        offered = {
            one["name"]: one for one in (await self._client.tools("mcp", session_id=session)).definitions
        }
        there = {tool.name for tool in context.tools or () if isinstance(tool, FunctionTool)}
        with warnings.catch_warnings():
            # Adding tools in mid-run is marked as experimental.
            warnings.simplefilter("ignore", FutureWarning)
            context.add_tools(
                [self._tool(one, session) for name, one in offered.items() if name not in there]
            )
            context.remove_tools([name for name in TOOL_NAMES if name in there and name not in offered])

    def _tool(self, offered: dict[str, Any], session: str | None) -> FunctionTool:
        async def call(**arguments: Any) -> str:
            return await self._client.call(offered["name"], arguments, session_id=session)

        return FunctionTool(
            name=offered["name"],
            description=offered["description"],
            func=call,
            input_model=offered["inputSchema"],
        )


class _Replies(ChatMiddleware):
    """Reports usage."""

    def __init__(self, client: AsyncSpillgate) -> None:
        self._client = client

    async def process(self, context: ChatContext, call_next: Next) -> None:
        await call_next()
        if isinstance(context.result, ChatResponse) and (counted := context.result.usage_details):
            used = counted.get("total_token_count")
            if used:
                await self._client.report(used, session_id=_session(self._client, context))


def _session(client: AsyncSpillgate, context: FunctionInvocationContext | ChatContext) -> str | None:
    return client.session_for(context.session.session_id if context.session else None)


def _text(result: Any) -> str | None:
    """None for what is more than text."""
    if isinstance(result, str):
        return result
    if isinstance(result, list) and all(getattr(one, "type", "") == "text" for one in result):
        return "\n".join(one.text or "" for one in result)
    return None
