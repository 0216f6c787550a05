"""Windows of models by the names that providers, gateways and libraries give them; and models without one."""

from pathlib import Path

import httpx
import pytest

from app.models.model_windows import context_window
from tests.conftest import Serve

pytestmark = pytest.mark.anyio

WINDOWS = dict(
    line.split() for line in Path(__file__).with_name("model_windows.txt").read_text().splitlines()
)
"""Tokens by name, `-` for a model that the table does not know."""


def test_a_models_window_is_found_by_any_of_its_names() -> None:
    for spelled in (str, str.upper):
        assert {name: str(context_window(spelled(name)) or "-") for name in WINDOWS} == WINDOWS


async def sent(client: httpx.AsyncClient, model: str, call: str, session: str = "s") -> dict[str, object]:
    context = {"used_tokens": 500_000, "turn": 1}
    body = {"session_id": session, "tool_name": "t", "tool_call_id": call, "content": "few words " * 200}
    answer = await client.post("/results", json=body | {"model": model, "context": context})
    assert answer.status_code in (200, 201)
    told: dict[str, object] = answer.json()
    return told


async def test_a_model_that_no_table_knows_has_no_window_and_the_answer_warns_once_a_session(
    client: httpx.AsyncClient,
) -> None:
    first, second = [await sent(client, "gemini-9-pro", call) for call in ("a", "b")]
    for answer in (first, second):
        assert (answer["outcome"], answer["trigger"]) == ("pass", None)
        assert answer["budget"]["enforced"] is False  # type: ignore[index]
    assert "context window" in str(first["warnings"])
    assert second["warnings"] == []
    assert "context window" in str((await sent(client, "gemini-9-pro", "c", "other"))["warnings"])
    known = await sent(client, "bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0", "d", "known")
    assert (known["outcome"], known["trigger"], known["warnings"]) == ("store", "token_budget", [])


async def test_a_window_that_is_declared_holds_for_an_unknown_model(serve: Serve) -> None:
    async with serve() as client:
        await client.put("/sessions/s", json={"context_window": 100_000, "model": "gemini-9-pro"})
        assert (await sent(client, "gemini-9-pro", "a"))["trigger"] == "token_budget"
    for setting in ({"context_window": 100_000}, {"require_budget": True}):
        async with serve(storage_url="memory:", **setting) as client:
            answer = await sent(client, "gemini-9-pro", "b")
            assert (answer["trigger"], answer["warnings"]) == ("token_budget", [])
