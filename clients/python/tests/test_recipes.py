"""The recipes for LlamaIndex, Haystack and smolagents, each with a model that tells the story."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from conftest import Story
from haystack import component
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import create_tool_from_function
from llama_index.core.base.llms.types import ChatMessage as LlamaMessage
from llama_index.core.base.llms.types import ChatResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from page import run_block
from smolagents import ChatMessage as SmolMessage
from smolagents import Model, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

pytestmark = pytest.mark.anyio
AT_ONCE = {"tools_at_once": True}


class LlamaTeller(FunctionCallingLLM):
    """Model of the story."""

    story: Any
    offered: Any = ()

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True)

    def _prepare_chat_with_tools(self, tools: Sequence[Any], chat_history: Any = None, **kwargs: Any) -> Any:
        return {"messages": chat_history, "offered": [one.metadata.name for one in tools]}

    async def achat(self, messages: Sequence[LlamaMessage], offered: Any = (), **kwargs: Any) -> ChatResponse:
        results = [str(one.content) for one in messages if one.role == "tool"]
        made = self.story.step(offered, results)
        calls = [{"id": f"call-{name}", "name": name, "arguments": args} for name, args in made]
        said = "" if calls else "done"
        message = LlamaMessage(role="assistant", content=said, additional_kwargs={"tool_calls": calls})
        return ChatResponse(message=message)

    async def astream_chat(self, *args: Any, **kwargs: Any) -> Any:
        reply = await self.achat(*args, **kwargs)

        async def once() -> Any:
            yield reply

        return once()

    def get_tool_calls_from_response(self, response: ChatResponse, *a: Any, **k: Any) -> list[ToolSelection]:
        calls = response.message.additional_kwargs["tool_calls"]
        return [
            ToolSelection(tool_id=one["id"], tool_name=one["name"], tool_kwargs=one["arguments"])
            for one in calls
        ]

    def chat(self, *a: Any, **k: Any) -> Any:
        raise NotImplementedError

    complete = stream_complete = stream_chat = chat

    async def acomplete(self, *a: Any, **k: Any) -> Any:
        raise NotImplementedError

    astream_complete = acomplete


async def test_llamaindex(story: Story) -> None:
    def read_log() -> str:
        """Reads the log."""
        return story.read_log()

    agent = run_block("LlamaIndex", model=LlamaTeller(story=story), read_log=read_log)["agent"]
    story.check(str(await agent.run("Which disk is full?")), **AT_ONCE)


@component
class HaystackTeller:
    """Model of the story."""

    def __init__(self, story: Story) -> None:
        self.story = story

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None, **kwargs: Any) -> dict[str, Any]:
        results = [one.tool_call_result.result for one in messages if one.tool_call_result]
        made = self.story.step([one.name for one in tools or []], results)
        calls = [ToolCall(name, args, id=f"call-{name}") for name, args in made]
        return {"replies": [ChatMessage.from_assistant(None if calls else "done", tool_calls=calls)]}


async def test_haystack(story: Story) -> None:
    def read_log() -> str:
        """Reads the log."""
        return story.read_log()

    read = create_tool_from_function(read_log)
    agent = run_block("Haystack", model=HaystackTeller(story), read_log=read)["agent"]
    result = agent.run(messages=[ChatMessage.from_user("Which disk is full?")])
    story.check(result["last_message"].text, **AT_ONCE)


class SmolTeller(Model):
    """Model of the story."""

    def __init__(self, story: Story) -> None:
        super().__init__(model_id="story")
        self.story = story

    def generate(self, messages: Any, tools_to_call_from: Any = None, **kwargs: Any) -> SmolMessage:
        texts = ["".join(part.get("text", "") for part in one.content) for one in messages]
        results = [text.removeprefix("Observation:\n") for text in texts if text.startswith("Observation:")]
        made = self.story.step([one.name for one in tools_to_call_from], results)
        calls = [
            ChatMessageToolCall(
                id=f"call-{name}",
                type="function",
                function=ChatMessageToolCallFunction(name=name, arguments=json.dumps(args)),
            )
            for name, args in made or [("final_answer", {"answer": "done"})]
        ]
        return SmolMessage(role="assistant", content="", tool_calls=calls)


async def test_smolagents(story: Story) -> None:
    @tool
    def read_log() -> str:
        """Reads the log."""
        return story.read_log()

    agent = run_block("smolagents", model=SmolTeller(story), read_log=read_log)["agent"]
    story.check(str(agent.run("Which disk is full?")), **AT_ONCE)
