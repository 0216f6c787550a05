"""OpenAI Agents SDK, with a model that tells the story, and an MCP server in this process."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import Agent, FunctionTool, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.mcp import MCPServer
from conftest import Budget, HandingOn, Story
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as McpTool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from page import run_block

from spillgate import AsyncSpillgate
from spillgate.openai_agents import SpillgateTools

pytestmark = pytest.mark.anyio
QUIET = RunConfig(tracing_disabled=True)


class Teller(Model):
    """Model of the story."""

    def __init__(self, story: Story) -> None:
        self.story = story

    async def get_response(self, **asked: Any) -> ModelResponse:  # type: ignore[override]
        rows = [] if isinstance(asked["input"], str) else asked["input"]
        results = [_text(one["output"]) for one in rows if one.get("type") == "function_call_output"]
        names = [tool.name for tool in asked["tools"]]
        made = self.story.step(names, results)
        output: list[Any] = [
            ResponseFunctionToolCall(
                arguments=json.dumps(args), call_id=f"{name}-{len(results)}", name=name, type="function_call"
            )
            for name, args in made
        ]
        if not made:
            said = ResponseOutputText(text="done", type="output_text", annotations=[])
            output = [
                ResponseOutputMessage(
                    id="m", content=[said], role="assistant", status="completed", type="message"
                )
            ]
        usage = Usage(requests=1, input_tokens=40_000, output_tokens=2, total_tokens=40_002)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *a: Any, **k: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def _text(output: Any) -> str:
    return output if isinstance(output, str) else "".join(one["text"] for one in output)


async def test_the_model_asks_back(story: Story, budget: Budget) -> None:
    @function_tool
    def read_log() -> str:
        """Reads the log."""
        return story.read_log()

    made = run_block("OpenAI Agents", model=Teller(story), read_log=read_log)
    agent, spillgate = made["agent"], made["spillgate"]
    async with AsyncSpillgate() as client, client.session("openai-agents"):
        result = await Runner.run(agent, "Which disk is full?", run_config=QUIET)
        story.check(result.final_output)
        if len(story.offered) == 3:
            assert budget("openai-agents")["used_tokens"] == 40_002
            tool = spillgate.tools[0]
            assert isinstance(tool, FunctionTool)
            assert tool.params_json_schema["required"] == ["handle"]


async def test_the_tools_of_an_mcp_server_are_governed(story: Story) -> None:
    spillgate = SpillgateTools()

    class Server(MCPServer):
        name = "logs"

        async def connect(self) -> None: ...

        async def cleanup(self) -> None: ...

        async def list_tools(self, *a: Any, **k: Any) -> list[McpTool]:
            return [McpTool(name="read_log", inputSchema={"type": "object", "properties": {}})]

        async def call_tool(self, *a: Any, **k: Any) -> CallToolResult:
            return CallToolResult(content=[TextContent(type="text", text=story.read_log())])

        async def list_prompts(self) -> Any:
            raise NotImplementedError

        async def get_prompt(self, *a: Any, **k: Any) -> Any:
            raise NotImplementedError

    server = Server(tool_output_guardrails=[spillgate.guardrail])
    agent = Agent(name="a", model=Teller(story), mcp_servers=[server], tools=spillgate.govern())
    async with AsyncSpillgate() as client, client.session("openai-agents-mcp"):
        result = await Runner.run(agent, "Which disk is full?", run_config=QUIET)
    story.check(result.final_output)


async def test_a_stored_result_is_handed_on_unread(handing_on: HandingOn) -> None:
    @function_tool
    def read_log() -> str:
        """Reads the log."""
        return handing_on.read_log()

    @function_tool
    def save(text: str) -> str:
        """Saves a text."""
        return handing_on.save(text)

    agent = Agent(name="a", model=Teller(handing_on), tools=SpillgateTools().govern(read_log, save))
    async with AsyncSpillgate() as client, client.session("openai-agents-handing-on"):
        result = await Runner.run(agent, "Save it.", run_config=QUIET)
    assert result.final_output == "done"
    handing_on.check_saved()
