"""Google ADK, with a model that tells the story."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import LOG, Budget, HandingOn, Story
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from page import run_block

from spillgate.adk import SpillgatePlugin

pytestmark = pytest.mark.anyio


class Teller(BaseLlm):
    """Model of the story."""

    story: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        parts = [part for one in llm_request.contents for part in one.parts or []]
        answers = [part.function_response.response for part in parts if part.function_response]
        results = [one.get("result") or one["error"] for one in answers if one]
        offered = [d.name for one in llm_request.config.tools or [] for d in one.function_declarations]
        made = self.story.step(offered, results, str(llm_request.config.system_instruction or ""))
        calls = [
            types.Part(function_call=types.FunctionCall(name=name, args=args, id=f"{name}-{len(results)}"))
            for name, args in made
        ]
        usage = types.GenerateContentResponseUsageMetadata(total_token_count=40_002)
        content = types.Content(role="model", parts=calls or [types.Part(text="done")])
        yield LlmResponse(content=content, usage_metadata=usage)


@pytest.mark.parametrize("shape", ["text", "dict"])
async def test_the_model_asks_back(story: Story, shape: str, budget: Budget) -> None:

    def read_log() -> Any:
        """Reads the log."""
        return story.read_log() if shape == "text" else {"result": story.read_log()}

    made = run_block("Google ADK", model=Teller(model="story", story=story), read_log=read_log)
    said, session = await run(InMemoryRunner(app=made["app"]))
    story.check(said)
    if len(story.offered) == 3:
        assert "Some tool outputs" not in story.instructions[1]
        assert budget(session)["used_tokens"] == 40_002


async def run(runner: InMemoryRunner) -> tuple[str, str]:
    """The reply, and the session."""
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
    asked = types.Content(role="user", parts=[types.Part(text="Which disk is full?")])
    said = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=asked):
        said = "".join(part.text or "" for part in (event.content.parts if event.content else None) or [])
    return said, session.id


async def test_a_stored_result_is_handed_on_unread(handing_on: HandingOn) -> None:
    sent: list[str] = []

    class Noting(Teller):
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncIterator[LlmResponse]:
            sent.append(str(llm_request.contents))
            async for reply in super().generate_content_async(llm_request, stream):
                yield reply

    def read_log() -> str:
        """Reads the log."""
        return handing_on.read_log()

    def save(text: str) -> str:
        """Saves a text."""
        return handing_on.save(text)

    agent = LlmAgent(name="a", model=Noting(model="story", story=handing_on), tools=[read_log, save])
    app = App(name="handing_on", root_agent=agent, plugins=[SpillgatePlugin()])
    assert (await run(InMemoryRunner(app=app)))[0] == "done"
    handing_on.check_saved()
    assert LOG[:100] not in "".join(sent)
