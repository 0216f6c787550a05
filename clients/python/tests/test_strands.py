"""Strands, with a model that tells the story; and its own offloader over Spillgate's storage."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import HANDLE, LOG, Budget, HandingOn, Service, Story
from page import run_block
from strands import Agent, tool
from strands.handlers import null_callback_handler
from strands.models import Model
from strands.vended_plugins.context_offloader import ContextOffloader

from spillgate import AsyncSpillgate, Spillgate
from spillgate.strands import SpillgateHooks, SpillgateStorage

pytestmark = pytest.mark.anyio


class Teller(Model):
    """Model of the story."""

    def __init__(self, story: Story) -> None:
        self.story = story

    def update_config(self, **config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *a: Any, **k: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, tool_specs: Any = None, *a: Any, **k: Any) -> AsyncIterator[Any]:
        blocks = [
            block["toolResult"] for one in messages for block in one["content"] if "toolResult" in block
        ]
        results = ["".join(one.get("text", "") for one in block["content"]) for block in blocks]
        made = self.story.step([one["name"] for one in tool_specs or []], results)
        yield {"messageStart": {"role": "assistant"}}
        for name, arguments in made:
            use = {"toolUseId": f"{name}-{len(results)}", "name": name}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
            yield {"contentBlockStop": {}}
        if not made:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if made else "end_turn"}}
        usage = {"inputTokens": 40_000, "outputTokens": 2, "totalTokens": 40_002}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_model_asks_back(story: Story, asynchronous: bool, budget: Budget) -> None:

    @tool
    def read_log() -> str:
        """Reads the log."""
        return story.read_log()

    agent = run_block("Strands", model=Teller(story), read_log=read_log)["agent"]
    agent.callback_handler = null_callback_handler
    with Spillgate().session(f"strands-{asynchronous}"):
        question = "Which disk is full?"
        result = await agent.invoke_async(question) if asynchronous else agent(question)
        story.check(str(result).strip())
        if len(story.offered) == 3:
            assert budget(f"strands-{asynchronous}")["used_tokens"] == 40_002


async def test_the_offloader_keeps_what_it_takes_out_in_spillgate(running: Service) -> None:
    class Steps(Story):
        def step(
            self, offered: list[str], results: list[str], instructions: str = ""
        ) -> list[tuple[str, Any]]:
            self.results.append(results)
            if len(self.results) == 1:
                return [("read_log", {})]
            if len(self.results) == 2:
                found = HANDLE.search(results[0])
                assert found, results[0]
                return [("retrieve_offloaded_content", {"reference": found[0], "pattern": "ERROR"})]
            return []

    story = Steps()

    @tool
    def read_log() -> str:
        """Reads the log."""
        return story.read_log()

    storage = SpillgateStorage(base_url=running.url)
    agent = Agent(
        model=Teller(story),
        tools=[read_log],
        plugins=[ContextOffloader(storage=storage)],
        callback_handler=None,
    )
    async with AsyncSpillgate(base_url=running.url) as client:
        assert str(await agent.invoke_async("Which disk is full?")).strip() == "done"
        assert "4507 ERROR disk 4507 is full" in story.results[2][1]
        found = HANDLE.search(story.results[1][0])
        assert found
        assert await client.content(found[0]) == LOG.encode()
    with pytest.raises(KeyError):
        await storage.retrieve("session-none/file-00000000-0000-4000-8000-000000000000")
    away = SpillgateStorage(base_url="http://127.0.0.1:9", patience=0.0)
    with pytest.raises(OSError, match="did not store"):
        await away.store("k", b"text")


async def test_a_stored_result_is_handed_on_unread(handing_on: HandingOn) -> None:
    @tool
    def read_log() -> str:
        """Reads the log."""
        return handing_on.read_log()

    @tool
    def save(text: str) -> str:
        """Saves a text."""
        return handing_on.save(text)

    agent = Agent(model=Teller(handing_on), tools=[read_log, save], hooks=[SpillgateHooks()])
    agent.callback_handler = null_callback_handler
    with Spillgate().session("strands-handing-on"):
        assert str(await agent.invoke_async("Save it.")).strip() == "done"
    handing_on.check_saved()
    assert LOG[:1000] not in json.dumps(agent.messages)
