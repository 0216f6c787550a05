"""Microsoft Agent Framework, with a chat client that tells the story."""

from typing import Any

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)
from conftest import LOG, Budget, HandingOn, Story
from page import run_block

from spillgate.agent_framework import spillgate_middleware

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
                Content.from_function_call(call_id=f"{name}-{len(results)}", name=name, arguments=args)
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


async def test_a_stored_result_is_handed_on_unread(handing_on: HandingOn) -> None:
    def read_log() -> str:
        """Reads the log."""
        return handing_on.read_log()

    def save(text: str) -> str:
        """Saves a text."""
        return handing_on.save(text)

    client = Teller()
    client.story = handing_on
    agent = Agent(client, tools=[read_log, save], middleware=spillgate_middleware())
    session = agent.create_session(session_id="agent-framework-handing-on")
    result = await agent.run("Save it.", session=session)
    assert result.text == "done"
    handing_on.check_saved()
    assert LOG[:100] not in str(result.to_dict())
