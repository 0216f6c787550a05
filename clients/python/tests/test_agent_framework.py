"""Microsoft Agent Framework, with a chat client that tells the story."""

from typing import Any

import pytest
from agent_framework import (
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)
from conftest import Budget, Story
from page import run_block

pytestmark = pytest.mark.anyio


class Teller(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore[misc]
    """Model of the story."""

    story: Story

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        async def respond() -> ChatResponse:
            contents = [one for message in messages for one in message.contents]
            results = [str(one.result) for one in contents if one.type == "function_result"]
            made = self.story.step([tool.name for tool in options.get("tools") or []], results)
            calls = [
                Content.from_function_call(call_id=f"call-{name}", name=name, arguments=args)
                for name, args in made
            ]
            usage: Any = {"total_token_count": 40_002}
            reply = Message(role="assistant", contents=calls or [Content.from_text("done")])
            return ChatResponse(messages=[reply], usage_details=usage)

        return respond()


async def test_the_model_asks_back(story: Story, budget: Budget) -> None:

    def read_log() -> str:
        """Reads the log."""
        return story.read_log()

    client = Teller()
    client.story = story
    agent = run_block("Microsoft Agent Framework", model=client, read_log=read_log)["agent"]
    session = agent.create_session(session_id="agent-framework")
    result = await agent.run("Which disk is full?", session=session)
    story.check(result.text)
    if len(story.offered) == 3:
        assert budget("agent-framework")["used_tokens"] == 40_002
