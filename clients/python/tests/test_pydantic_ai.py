"""Pydantic AI, with a function model that tells the story."""

from datetime import date

import pytest
from conftest import Budget, HandingOn, Service, Story, Turns
from page import run_block
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry, Tool
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
        calls = [ToolCallPart(name, args, tool_call_id=f"call_{n}") for n, (name, args) in enumerate(made)]
        usage = RequestUsage(input_tokens=40_000, output_tokens=2)
        return ModelResponse(parts=[*calls] or [TextPart("done")], usage=usage)

    return FunctionModel(reply)


async def test_the_model_asks_back(story: Story, budget: Budget) -> None:
    agent = run_block("Pydantic AI", model=model(story), read_log=story.read_log)["agent"]
    result = await agent.run("Which disk is full?", conversation_id="pydantic/1")
    story.check(result.output)
    if len(story.offered) == 3:
        assert "Some tool outputs" not in story.instructions[1]
        assert budget("pydantic-1")["used_tokens"] == 40_002


async def test_ids_that_repeat_in_each_turn_lose_nothing(turns: Turns) -> None:
    agent = Agent(model(turns), tools=[turns.read_log], capabilities=[SpillgateCapability()])
    assert (await agent.run("Read it.", conversation_id="turns")).output == "done"
    turns.check_stored()


async def test_what_a_retry_says_is_governed(running: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLGATE_URL", running.url)
    said: list[str] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        results = [part for part in parts if isinstance(part, ToolReturnPart)]
        said[:] = [part.model_response_str() for part in results]
        if len(results) < 2:
            call = ToolCallPart("read_log", {"long": not results}, tool_call_id=f"call_{len(results)}")
            return ModelResponse(parts=[call])
        return ModelResponse(parts=[TextPart("done")])

    def read_log(long: bool) -> str:
        raise ModelRetry("the disk is full\n" * (2000 if long else 1))

    agent = Agent(
        FunctionModel(reply), tools=[Tool(read_log, max_retries=3)], capabilities=[SpillgateCapability()]
    )
    assert (await agent.run("Read it.", conversation_id="retries")).output == "done"
    assert "Tool output is too large (34000 bytes" in said[0]
    assert len(said[0]) < 1500
    assert "the disk is full" in said[1]
    assert "too large" not in said[1]


class Line(BaseModel):
    number: int
    at: date = date(2026, 11, 23)


async def test_what_becomes_json_is_governed_and_pictures_are_not(
    running: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLGATE_URL", running.url)
    picture = BinaryContent(b"p" * 20_000, media_type="image/png")
    returned = {
        "lines": [Line(number=number) for number in range(900)],
        "one": Line(number=1),
        "shot": [picture],
    }
    read: list[str | None] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart(name, {}) for name in returned])
        results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        read.extend(None if one.files else one.model_response_str() for one in results)
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(reply), capabilities=[SpillgateCapability()])
    for name, value in returned.items():
        agent.tool_plain(lambda value=value: value, name=name)
    await agent.run("Go.", conversation_id="pydantic-types")
    assert read[0] is not None
    assert read[0].startswith("Tool output is too large (")
    assert "JSON 900 × {number: " in read[0]
    assert read[1:] == ['{"number":1,"at":"2026-11-23"}', None]


async def test_a_stored_result_is_handed_on_unread(handing_on: HandingOn) -> None:
    tools = [handing_on.read_log, handing_on.save]
    agent = Agent(model(handing_on), tools=tools, capabilities=[SpillgateCapability()])
    assert (await agent.run("Save it.", conversation_id="handing-on")).output == "done"
    handing_on.check_saved()
