"""A deep agent: its own eviction of large results finds only what Spillgate left."""

import pytest
from conftest import Story
from deepagents import create_deep_agent
from test_langchain import Model, reader, run

from spillgate.langchain import SpillgateMiddleware

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_model_asks_back(story: Story, asynchronous: bool) -> None:
    agent = create_deep_agent(Model(story=story), [reader(story)], middleware=[SpillgateMiddleware()])
    story.check(await run(agent, asynchronous, f"deep-{asynchronous}"))
    assert "read_file" in story.offered[0]
