"""LangChain 1.x: `create_agent(model, tools, middleware=[SpillgateMiddleware()])`, deep agents too."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias, Unpack

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langgraph.config import get_config
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from spillgate.client import AsyncSpillgate, Spillgate
from spillgate.exchange import ClientOptions, Governed, Tools, UsageFields, is_own_tool

Answer: TypeAlias = ToolMessage | Command[Any]


class SpillgateMiddleware(AgentMiddleware[Any, Any]):
    """Governs what every tool returns, and offers Spillgate's tools while there is something to ask. The
    session is the thread's (`configurable.thread_id`), unless one is configured. A tool that returns a
    Command is left alone."""

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        super().__init__()
        self._blocking = Spillgate(**options)
        self._waiting = AsyncSpillgate(**options)

    def wrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
    ) -> ModelResponse:
        return handler(_offering(request, self._blocking.tools(session_id=self._session())))

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        return await handler(_offering(request, await self._waiting.tools(session_id=self._session())))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answer]
    ) -> Answer:
        call, usage = request.tool_call, self._usage(request)
        if is_own_tool(call["name"]):
            return _answer(call, self._blocking.call(call["name"], call["args"], **usage))
        resolved = self._blocking.resolve(call["args"], call["name"], session_id=usage["session_id"])
        if resolved.refusal:
            return _answer(call, resolved.refusal, "error")
        message = handler(_called(request, resolved.arguments))
        if not isinstance(message, ToolMessage):
            return message
        return _shown(message, self._blocking.govern(**_result(call, message, usage)))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]
    ) -> Answer:
        call, usage = request.tool_call, self._usage(request)
        if is_own_tool(call["name"]):
            return _answer(call, await self._waiting.call(call["name"], call["args"], **usage))
        resolved = await self._waiting.resolve(call["args"], call["name"], session_id=usage["session_id"])
        if resolved.refusal:
            return _answer(call, resolved.refusal, "error")
        message = await handler(_called(request, resolved.arguments))
        if not isinstance(message, ToolMessage):
            return message
        return _shown(message, await self._waiting.govern(**_result(call, message, usage)))

    def _session(self) -> str | None:
        thread = get_config().get("configurable", {}).get("thread_id")
        return self._blocking.session_for(None if thread is None else str(thread))

    def _usage(self, request: ToolCallRequest) -> UsageFields:
        """The usage that the model's last reply reported."""
        messages = request.state["messages"] if isinstance(request.state, Mapping) else request.state.messages
        replies = (one for one in reversed(messages) if isinstance(one, AIMessage))
        reply = next(replies, None)
        counted = reply.usage_metadata if reply else None
        return {"session_id": self._session(), "used_tokens": counted["total_tokens"] if counted else None}


def _offering(request: ModelRequest, offered: Tools) -> ModelRequest:
    if not offered.definitions:
        return request
    tools = [*request.tools, *offered.definitions]
    if not offered.instructions:
        return request.override(tools=tools)
    prompt = request.system_message
    own = {"type": "text", "text": offered.instructions}
    if prompt is None:
        system = SystemMessage(offered.instructions)
    elif isinstance(prompt.content, str):
        system = SystemMessage(f"{prompt.content}\n\n{offered.instructions}")
    else:
        system = SystemMessage([*prompt.content, own])  # Its blocks may mark what a provider caches.
    return request.override(tools=tools, system_message=system)


def _result(call: Mapping[str, Any], message: ToolMessage, usage: UsageFields) -> Any:
    """The arguments of `govern`."""
    content: object = message.content
    if isinstance(content, list):
        content = [{"type": "text", "text": one} if isinstance(one, str) else one for one in content]
    named = {"tool_name": call["name"], "call_id": call["id"], "arguments": call["args"], "passes_on": "any"}
    return {**usage, **named, "content": content, "is_error": message.status == "error"}


def _shown(message: ToolMessage, governed: Governed) -> ToolMessage:
    return message if governed.complete else message.model_copy(update={"content": governed.content})


def _called(request: ToolCallRequest, arguments: Any) -> ToolCallRequest:
    """The message of the model keeps the arguments that it wrote."""
    call = request.tool_call
    return request if arguments is call["args"] else request.override(tool_call={**call, "args": arguments})


def _answer(
    call: Mapping[str, Any], text: str, status: Literal["success", "error"] = "success"
) -> ToolMessage:
    return ToolMessage(text, tool_call_id=call["id"], name=call["name"], status=status)
