"""Pydantic AI, with a function model that tells the story."""

import pytest
from conftest import Budget, Story
from page import run_block
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

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


async def test_the_model_asks_back(story: Story, budget: Budget) -> None:
    agent = run_block("Pydantic AI", model=model(story), read_log=story.read_log)["agent"]
    result = await agent.run("Which disk is full?", conversation_id="pydantic/1")
    story.check(result.output)
    if len(story.offered) == 3:
        assert "Some tool outputs are too large to show." in story.instructions[1]
        assert budget("pydantic-1")["used_tokens"] == 40_002
