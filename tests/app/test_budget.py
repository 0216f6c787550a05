"""Budgets, turns and the atomic reservation, over HTTP."""

import asyncio
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

HUNDRED = " the" * 100
"""Exactly 100 tokens of o200k_base."""


async def put(client: httpx.AsyncClient, limit: int, session: str = "s") -> None:
    window = {"context_window": limit, "buffer_tokens": 0, "max_output_tokens": 0}
    assert (await client.put(f"/sessions/{session}", json=window)).status_code == 200


async def post(client: httpx.AsyncClient, content: str = HUNDRED, **fields: Any) -> dict[str, Any]:
    sent = {"session_id": "s", "tool_name": "t", "content": content, **fields}
    answer = await client.post("/results", json=sent)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()  # type: ignore[no-any-return]


async def test_what_fits_is_reserved(client: httpx.AsyncClient) -> None:
    await put(client, 1000)
    told = await post(client)
    assert told["outcome"] == "pass"
    assert told["budget"] == {
        "limit_tokens": 1000,
        "used_tokens": 0,
        "reserved_tokens": 100,
        "remaining_tokens": 900,
        "exhausted": False,
        "enforced": True,
    }


async def test_what_would_not_fit_alone_fires_token_budget(client: httpx.AsyncClient) -> None:
    await put(client, 99)
    assert (await post(client))["trigger"] == "token_budget"


async def test_what_fits_alone_but_not_beside_the_others_fires_reserve_failed(
    client: httpx.AsyncClient,
) -> None:
    await put(client, 150)
    assert (await post(client))["outcome"] == "pass"
    told = await post(client)
    assert told["trigger"] == "reserve_failed"
    assert told["handle"]


async def test_the_size_cap_is_judged_before_the_budget(client: httpx.AsyncClient) -> None:
    await put(client, 10)
    assert (await post(client, "x " * 10_000))["trigger"] == "size_cap"


async def test_the_message_is_charged_even_past_the_limit(client: httpx.AsyncClient) -> None:
    await put(client, 20)
    budget = (await post(client))["budget"]
    assert budget["reserved_tokens"] > 20
    assert budget["remaining_tokens"] == 0
    assert budget["exhausted"] is True


async def test_without_a_window_nothing_is_refused_but_everything_counted(
    client: httpx.AsyncClient,
) -> None:
    for _ in range(2000):
        last = await post(client)
    assert last["outcome"] == "pass"
    assert last["budget"]["enforced"] is False
    assert last["budget"]["reserved_tokens"] == 200_000
    assert last["budget"]["exhausted"] is False


async def test_a_required_budget_holds_every_session_to_one(serve) -> None:  # type: ignore[no-untyped-def]
    fields = {"context_window": 100, "buffer_tokens": 0, "max_output_tokens": 10}
    async with serve(require_budget=True, **fields) as client:
        assert (await post(client))["trigger"] == "token_budget"


async def test_a_report_enforces_the_default_window(client: httpx.AsyncClient) -> None:
    told = await post(client, context={"used_tokens": 106_400})
    assert told["trigger"] == "token_budget"
    assert told["budget"]["enforced"] is True


async def test_a_new_turn_starts_with_nothing_reserved(client: httpx.AsyncClient) -> None:
    await put(client, 1000)
    await post(client, context={"used_tokens": 100, "turn": 1})
    same = await post(client, context={"used_tokens": 100, "turn": 1})
    assert same["budget"]["reserved_tokens"] == 200
    later = await post(client, context={"used_tokens": 350, "turn": 2})
    assert (later["budget"]["used_tokens"], later["budget"]["reserved_tokens"]) == (350, 100)
    late = await post(client, context={"used_tokens": 100, "turn": 1})
    assert (late["budget"]["used_tokens"], late["budget"]["reserved_tokens"]) == (350, 200)


async def test_without_turns_a_changed_usage_is_a_new_turn(client: httpx.AsyncClient) -> None:
    await put(client, 1000)
    await post(client, context={"used_tokens": 100})
    assert (await post(client, context={"used_tokens": 100}))["budget"]["reserved_tokens"] == 200
    assert (await post(client, context={"used_tokens": 300}))["budget"]["reserved_tokens"] == 100


async def test_a_retry_with_an_old_report_does_not_turn_back_the_session(client: httpx.AsyncClient) -> None:
    await put(client, 1000)
    await post(client, tool_call_id="a", context={"used_tokens": 100})
    await post(client, tool_call_id="b", context={"used_tokens": 200})
    retried = await post(client, tool_call_id="a", context={"used_tokens": 100})
    assert retried["budget"]["used_tokens"] == 200
    assert retried["budget"]["reserved_tokens"] == 100


async def test_usage_can_be_reported_on_its_own(client: httpx.AsyncClient) -> None:
    answer = await client.post("/sessions/s/usage", json={"used_tokens": 106_000, "turn": 3})
    assert answer.json()["budget"]["remaining_tokens"] == 496
    assert answer.json()["turn"] == 3


@pytest.mark.parametrize("seed", range(5))
async def test_concurrent_results_never_hold_more_than_the_limit_together(
    client: httpx.AsyncClient, seed: int
) -> None:
    session = f"crowd-{seed}"
    await put(client, 10_000, session)
    answers = await asyncio.gather(*(post(client, session_id=session) for _ in range(200)))
    outcomes = [told["outcome"] for told in answers]
    triggers = {told["trigger"] for told in answers if told["outcome"] == "store"}
    # Messages are charged past the limit, and may so take the place of a result: never the other way.
    held = sum(told["measure"]["tokens"] for told in answers if told["outcome"] == "pass")
    assert held <= 10_000
    assert outcomes.count("pass") == 100
    assert triggers == {"reserve_failed"}


async def test_a_model_known_to_the_operator_needs_no_declared_window(
    serve,
    tmp_path,  # type: ignore[no-untyped-def]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[models."small"]\ncontext_window = 24640\nmax_output_tokens = 16384\n')
    async with serve(policy_file=policy) as client:
        told = await post(client, model="small")
        assert told["budget"]["limit_tokens"] == 64
        assert told["trigger"] == "token_budget"
