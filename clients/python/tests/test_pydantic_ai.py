"""Pydantic AI, with a function model that tells the story."""

from typing import Any

import pytest
from conftest import Budget, Story
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from spillgate.pydantic_ai import SpillgateCapability

pytestmark = pytest.mark.anyio


def model(story: Story) -> FunctionModel:
    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        results = [part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)]
        offered = [tool.name for tool in info.function_tools]
        made = story.step(offered, results, info.instructions or "")
        calls = [ToolCallPart(name, args, tool_call_id=f"call-{name}") for name, args in made]
        usage = RequestUsage(input_tokens=40_000, output_tokens=2)
        return ModelResponse(parts=[*calls] or [TextPart("done")], usage=usage)

    return FunctionModel(reply)


async def test_the_model_asks_back(story: tuple[Story, dict[str, Any]], budget: Budget) -> None:
    told, options = story
    agent = Agent(model(told), instructions="Be brief.", capabilities=[SpillgateCapability(**options)])

    @agent.tool_plain
    def read_log() -> Any:
        return told.read_log()

    result = await agent.run("Which disk is full?", conversation_id="pydantic/1")
    told.check(result.output)
    assert told.instructions[0] == "Be brief."
    if len(told.offered) == 3:
        assert "Some tool outputs are too large to show." in told.instructions[1]
        assert budget("pydantic-1")["used_tokens"] == 40_002
