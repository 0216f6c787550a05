"""The recipe for CrewAI, with a model that tells the story."""

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Story
from crewai import BaseLLM, Crew, Task
from crewai.hooks import clear_all_tool_call_hooks
from crewai.tools import tool
from page import run_block


class Teller(BaseLLM):
    """Model of the story."""

    story: Any = None

    def call(self, messages: Any, tools: Any = None, *args: Any, **kwargs: Any) -> Any:
        results = [one["content"] for one in messages if one["role"] == "tool"]
        made = self.story.step([one["function"]["name"] for one in tools or []], results)
        if not made:
            return "done"
        return [
            {"id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": args}}
            for name, args in made
        ]

    def get_context_window_size(self) -> int:
        return 200_000  # So that CrewAI's own offloading, by the window, has nothing to do.

    def supports_function_calling(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _no_hooks_afterwards() -> Iterator[None]:
    yield
    clear_all_tool_call_hooks()


def test_crewai(story: Story) -> None:
    @tool("read_log")
    def read_log() -> str:
        """Reads the log."""
        return story.read_log()

    agent = run_block("CrewAI", model=Teller(model="story", story=story), read_log=read_log)["agent"]
    task = Task(description="Which disk is full?", expected_output="A disk.", agent=agent)
    result = Crew(agents=[agent], tasks=[task]).kickoff()
    story.check(str(result.raw), tools_at_once=True)
