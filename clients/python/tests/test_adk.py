"""Google ADK, with a model that tells the story."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import Budget, Story
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from page import run_block

pytestmark = pytest.mark.anyio


class Teller(BaseLlm):
    """Model of the story."""

    story: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        parts = [part for one in llm_request.contents for part in one.parts or []]
        answers = [part.function_response.response for part in parts if part.function_response]
        results = [one["result"] for one in answers if one]
        offered = [d.name for one in llm_request.config.tools or [] for d in one.function_declarations]
        made = self.story.step(offered, results, str(llm_request.config.system_instruction or ""))
        calls = [
            types.Part(function_call=types.FunctionCall(name=name, args=args, id=f"call-{name}"))
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
    runner = InMemoryRunner(app=made["app"])
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    asked = types.Content(role="user", parts=[types.Part(text="Which disk is full?")])
    said = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=asked):
        said = "".join(part.text or "" for part in (event.content.parts if event.content else None) or [])
    story.check(said)
    if len(story.offered) == 3:
        assert "Some tool outputs" not in story.instructions[1]
        assert budget(session.id)["used_tokens"] == 40_002
