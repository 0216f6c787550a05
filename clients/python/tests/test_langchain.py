"""LangChain and deep agents, with a model that tells the story."""

from typing import Any

import pytest
from conftest import Budget, HandingOn, Story, Turns
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.types import Command
from page import run_block

from spillgate.langchain import SpillgateMiddleware

pytestmark = pytest.mark.anyio


class Model(BaseChatModel):
    """Chat model of the story."""

    story: Any
    offered: Any = ()

    def bind_tools(self, tools: Any, **kwargs: Any) -> "Model":
        names = [one["function"]["name"] if isinstance(one, dict) else one.name for one in tools]
        return Model(story=self.story, offered=names)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        results = [one.text for one in messages if isinstance(one, ToolMessage)]
        system = "".join(one.text for one in messages if one.type == "system")
        made = self.story.step(list(self.offered), results, system)
        calls = [{"name": name, "args": args, "id": f"call_{n}"} for n, (name, args) in enumerate(made)]
        usage = {"input_tokens": 40_000, "output_tokens": 2, "total_tokens": 40_002}
        message = AIMessage("" if calls else "done", tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])

    @property
    def _llm_type(self) -> str:
        return "story"


def reader(story: Story) -> Any:
    @tool
    def read_log() -> str:
        """Reads the log."""
        return story.read_log()

    return read_log


async def run(agent: Any, asynchronous: bool, thread: str) -> str:
    given = {"messages": [{"role": "user", "content": "Which disk is full?"}]}
    config = {"configurable": {"thread_id": thread}}
    state = await agent.ainvoke(given, config) if asynchronous else agent.invoke(given, config)
    return str(state["messages"][-1].text)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_model_asks_back(story: Story, asynchronous: bool, budget: Budget) -> None:
    thread = f"langchain/{asynchronous}"
    agent = run_block(
        "LangChain, LangGraph agents, deep agents", model=Model(story=story), read_log=reader(story)
    )
    story.check(await run(agent["agent"], asynchronous, thread))
    if len(story.offered) == 3:
        assert "Some tool outputs" not in story.instructions[1]
        assert budget(f"langchain-{asynchronous}")["used_tokens"] == 40_002


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_ids_that_repeat_in_each_turn_lose_nothing(turns: Turns, asynchronous: bool) -> None:
    agent = create_agent(Model(story=turns), [reader(turns)], middleware=[SpillgateMiddleware()])
    assert await run(agent, asynchronous, f"turns-{asynchronous}") == "done"
    turns.check_stored()


async def test_blocks_are_governed_and_a_command_is_left_alone(running: Any) -> None:
    class Steps(Story):
        def step(
            self, offered: list[str], results: list[str], instructions: str = ""
        ) -> list[tuple[str, Any]]:
            self.results.append(results)
            self.instructions.append(instructions)
            return [("small", {}), ("large", {}), ("command", {})] if len(self.results) == 1 else []

    @tool
    def small() -> list[Any]:
        """Returns blocks."""
        return [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    @tool
    def large() -> list[Any]:
        """Returns blocks."""
        return [{"type": "text", "text": "b" * 20_000}]

    @tool
    def command() -> Any:
        """Changes the state."""
        return Command(update={"messages": [ToolMessage("c" * 20_000, tool_call_id="call_2")]})

    steps = Steps()
    agent = create_agent(
        Model(story=steps),
        [small, large, command],
        system_prompt="Be brief.",
        middleware=[SpillgateMiddleware(base_url=running.url)],
    )
    assert await run(agent, True, "blocks") == "done"
    assert steps.instructions == ["Be brief."] * 2
    texts = steps.results[1]
    assert (texts[0], texts[2]) == ("ab", "c" * 20_000)
    assert texts[1].startswith("Tool output is too large (20000 bytes")


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_stored_result_is_handed_on_unread(handing_on: HandingOn, asynchronous: bool) -> None:
    @tool
    def save(text: str) -> str:
        """Saves a text."""
        return handing_on.save(text)

    tools = [reader(handing_on), save]
    agent = create_agent(Model(story=handing_on), tools, middleware=[SpillgateMiddleware()])
    assert await run(agent, asynchronous, f"handing-on-{asynchronous}") == "done"
    handing_on.check_saved()
