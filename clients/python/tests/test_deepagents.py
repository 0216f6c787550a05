"""A deep agent: its own eviction of large results finds only what Spillgate left."""

from typing import Any

import pytest
from conftest import Story
from deepagents import create_deep_agent
from test_langchain import Model, reader, run

from spillgate.langchain import SpillgateMiddleware

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_model_asks_back(story: tuple[Story, dict[str, Any]], asynchronous: bool) -> None:
    told, options = story
    agent = create_deep_agent(Model(story=told), [reader(told)], middleware=[SpillgateMiddleware(**options)])
    told.check(await run(agent, asynchronous, f"deep-{asynchronous}"))
    assert "read_file" in told.offered[0]
