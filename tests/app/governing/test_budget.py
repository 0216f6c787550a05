"""Budgets, turns and the atomic reservation, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.conftest import Serve

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


async def test_tokens_are_estimated_once_more_of_them_can_change_nothing(client: httpx.AsyncClient) -> None:
    cases: list[tuple[int, dict[str, Any], str, bool]] = [
        (30_000, {}, "store", False),
        (60_000, {}, "pass", True),
        (60_000, {"max_tokens": 30_000}, "store", False),
        (60_000, {"max_tokens": 60_000}, "pass", True),
        (60_000, {"max_chars": 239_999}, "store", False),
        (1, {"max_tokens": 1, "mode": "observe"}, "pass", True),
    ]
    for number, (limit, policy, outcome, exact) in enumerate(cases):
        session = f"of-{number}"
        await put(client, limit, session)
        told = await post(client, " the" * 60_000, session_id=session, policy={"max_bytes": 0, **policy})
        assert (told["outcome"], told["measure"]["tokens_exact"]) == (outcome, exact)
        assert told["measure"]["tokens"] == pytest.approx(60_000, rel=0.02 * (not exact))


async def test_what_fits_alone_but_not_beside_the_others_fires_reserve_failed(
    client: httpx.AsyncClient,
) -> None:
    await put(client, 150)
    assert (await post(client))["outcome"] == "pass"
    told = await post(client)
    assert told["trigger"] == "reserve_failed"
    assert told["handle"]


async def test_the_message_is_charged_even_past_the_limit(client: httpx.AsyncClient) -> None:
    await put(client, 20)
    budget = (await post(client))["budget"]
    assert budget["reserved_tokens"] > 20
    assert budget["remaining_tokens"] == 0
    assert budget["exhausted"] is True


async def test_parallel_results_share_one_window_but_for_those_that_no_message_makes_smaller(
    client: httpx.AsyncClient,
) -> None:
    await put(client, 2000)
    larger = await asyncio.gather(*(post(client, HUNDRED * 6) for _ in range(12)))
    passed = [one for one in larger if one["outcome"] == "pass"]
    assert 0 < sum(one["measure"]["tokens"] for one in passed) <= 2000
    assert len(passed) < 12
    small = await asyncio.gather(*(post(client, " the" * 40) for _ in range(60)))
    assert {one["outcome"] for one in small} == {"pass"}
    budget = (await client.get("/sessions/s")).json()["budget"]
    assert budget["reserved_tokens"] > 60 * 40 > 2000
    assert budget["exhausted"] is True


async def test_without_a_window_nothing_is_refused_but_everything_counted(client: httpx.AsyncClient) -> None:
    for _ in range(200):
        last = await post(client, HUNDRED * 10)
    assert last["outcome"] == "pass"
    assert last["budget"]["enforced"] is False
    assert last["budget"]["reserved_tokens"] == 200_000
    assert last["budget"]["exhausted"] is False


async def test_a_required_budget_holds_every_session_to_one(serve) -> None:  # type: ignore[no-untyped-def]
    fields = {"context_window": 100, "buffer_tokens": 0, "max_output_tokens": 10}
    async with serve(require_budget=True, **fields) as client:
        assert (await post(client))["trigger"] == "token_budget"


async def test_a_new_turn_starts_with_nothing_reserved(client: httpx.AsyncClient) -> None:
    await put(client, 1000)
    await post(client, context={"used_tokens": 100, "turn": 1})
    # In JSON 1.0 is a whole number, in a policy too.
    policy = {"defaults": {"max_bytes": 12288.0}}
    same = await post(client, context={"used_tokens": 100.0, "turn": 1.0}, policy=policy)
    assert same["budget"]["reserved_tokens"] == 200
    later = await post(client, context={"used_tokens": 350, "turn": 2})
    assert (later["budget"]["used_tokens"], later["budget"]["reserved_tokens"]) == (350, 100)
    late = await post(client, context={"used_tokens": 100, "turn": 1})
    assert (late["budget"]["used_tokens"], late["budget"]["reserved_tokens"]) == (350, 200)


async def test_usage_can_be_reported_on_its_own(client: httpx.AsyncClient) -> None:
    answer = await client.post("/sessions/s/usage", json={"used_tokens": 106_000, "turn": 3})
    assert answer.json()["budget"]["remaining_tokens"] == 496
    assert answer.json()["turn"] == 3


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


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, 8000 - 8000 // 3),
        ({"buffer_tokens": 500}, 8000 - 500 - 8000 // 3),
        ({"max_output_tokens": 1000}, 8000 - 1000 - 8000 // 3),
        ({"buffer_tokens": 500, "max_output_tokens": 4000}, 3500),
    ],
)
async def test_a_small_window_of_the_settings_is_not_spent_by_what_no_setting_declares(
    serve: Serve, settings: dict[str, int], limit: int
) -> None:
    async with serve(context_window=8000, **settings) as client:
        told = await post(client, context={"used_tokens": 0})
        assert (told["budget"]["limit_tokens"], told["outcome"]) == (limit, "pass")


async def usage(client: httpx.AsyncClient, used: int, turn: int | None = None) -> dict[str, Any]:
    answer = await client.post("/sessions/s/usage", json={"used_tokens": used, "turn": turn})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def test_a_second_run_in_one_session_is_guarded_by_its_own_reports(client: httpx.AsyncClient) -> None:
    async def by_usage(used: int, turn: int) -> dict[str, Any]:
        return await usage(client, used, turn)

    async def by_result(used: int, turn: int) -> dict[str, Any]:
        return await post(client, "x", session_id="t", context={"used_tokens": used, "turn": turn})

    for report in (by_usage, by_result):
        for turn in (1, 2, 3):
            assert (await report(1000 * turn, turn))["warnings"] == []
        second = await report(60_000, 1)
        assert second["budget"]["used_tokens"] == 60_000
        assert "new run" in second["warnings"][0]
        assert (await report(61_000, 2))["warnings"] == []
        # A late result of this run's first turn.
        late = await report(60_000, 1)
        assert (late["budget"]["used_tokens"], late["warnings"]) == (61_000, [])


async def test_a_second_report_of_one_turn_is_applied_with_a_warning(client: httpx.AsyncClient) -> None:
    await put(client, 1000)
    await post(client, context={"used_tokens": 100, "turn": 1})
    told = await post(client, context={"used_tokens": 300, "turn": 1})
    assert (told["budget"]["used_tokens"], told["budget"]["reserved_tokens"]) == (300, 200)
    assert "same `turn`" in told["warnings"][0]
    assert told["complete"] is True


async def test_a_report_with_a_repeated_call_is_not_applied_and_the_answer_says_so(
    client: httpx.AsyncClient,
) -> None:
    await post(client, tool_call_id="a", context={"used_tokens": 100, "turn": 1})
    again = await post(client, tool_call_id="a", context={"used_tokens": 100, "turn": 1})
    assert again["warnings"] == []
    again = await post(client, tool_call_id="a", context={"used_tokens": 900, "turn": 2})
    assert again["budget"]["used_tokens"] == 100
    assert "not applied" in again["warnings"][0]


async def test_a_session_that_names_a_model_has_its_window(client: httpx.AsyncClient) -> None:
    async def limit(**fields: Any) -> tuple[int, bool]:
        budget = (await client.put("/sessions/s", json=fields)).json()["budget"]
        return budget["limit_tokens"], budget["enforced"]

    assert await limit(model="gpt-4") == (8192 - 2730, True)
    assert await limit(model="openai/gpt-4o") == (128_000 - 8192 - 16_384, True)
    assert await limit(model="a-model-of-our-own") == (106_496, False)
    # What the session declares goes before what is known of its model.
    assert await limit(model="gpt-4", context_window=6000) == (4000, True)
    assert await limit(context_window=None, buffer_tokens=92, max_output_tokens=100) == (8000, True)
    assert (await post(client, HUNDRED * 81, policy={"max_bytes": 0}))["trigger"] == "token_budget"


async def test_a_result_that_names_a_model_is_held_to_its_window(client: httpx.AsyncClient) -> None:
    policy = {"max_bytes": 0}
    assert (await post(client, HUNDRED * 60, policy=policy))["trigger"] is None
    told = await post(client, HUNDRED * 60, policy=policy, model="gpt-4")
    assert (told["trigger"], told["budget"]["limit_tokens"]) == ("token_budget", 5462)


async def test_a_check_decides_as_the_result_does(client: httpx.AsyncClient) -> None:
    async def check(**fields: Any) -> Any:
        sent = {"session_id": "s", "tool_name": "t", **fields}
        return (await client.post("/check", json=sent)).json()["trigger"]

    policy = {"max_bytes": 1000, "tools": {"free": {"bypass": True}}}
    await client.put("/sessions/s", json={"model": "gpt-4", "policy": policy})
    # Tokens are no bytes: 2,000 of them may be 1,000 bytes long or less.
    assert await check(tokens=2000) is None
    assert await check(tokens=2000, bytes=1001) == "size_cap"
    assert await check(tokens=5463) == "token_budget"
    await post(client, HUNDRED, context={"used_tokens": 5262, "turn": 1})
    assert await check(tokens=100) is None
    assert await check(tokens=101) == "reserve_failed"
    assert await check(tokens=101, tool_name="free") is None
    assert (await post(client, HUNDRED + " the"))["trigger"] == "reserve_failed"
    assert await check(tokens=100, model="gpt-4o") is None
    budget = (await client.get("/sessions/s")).json()["budget"]
    assert budget["reserved_tokens"] > 100
    # The view of 300 rows has 900 bytes.
    await client.put("/sessions/s", json={"context_window": 100_000, "policy": policy | {"max_rows": 300}})
    assert await check(bytes=3000, rows=1000) is None
    assert (await post(client, "ab\n" * 1000))["trigger"] is None
    assert await check(bytes=3000, rows=890) == await check(bytes=3000) == "size_cap"


async def test_what_is_refused_for_want_of_memory_is_not_charged(serve) -> None:  # type: ignore[no-untyped-def]
    text = "the " * 500_000

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"the " * 25_000

    query = {"tool_name": "t", "session_id": "s", "policy": '{"max_bytes": 0}'}
    headers = {"Content-Type": "text/plain"}
    async with serve() as client:
        gate = client._transport.app.state.gate
        await client.put("/sessions/s", json={"context_window": 2_000_000})
        for policy in ('{"max_bytes": 0}', '{"max_bytes": 10, "mode": "observe"}'):
            # Enough to read the body piece by piece, and too little to hold all of it.
            gate.in_flight = gate.capacity - 1_000_000
            for _ in range(3):
                sent = query | {"policy": policy}
                answer = await client.post("/results", params=sent, content=pieces(), headers=headers)
                assert (answer.status_code, answer.json()["stored"]) == (503, False)
            gate.in_flight = 0
            assert (await client.get("/sessions/s")).json()["budget"]["reserved_tokens"] == 0
            assert (await client.get("/accounting/entries")).json()["entries"] == []
        answer = await client.post("/results", params=query, content=pieces(), headers=headers)
        assert (answer.status_code, answer.json()["content"]) == (200, text)
        (entry,) = (await client.get("/accounting/entries")).json()["entries"]
        reserved = (await client.get("/sessions/s")).json()["budget"]["reserved_tokens"]
        assert reserved == entry["tokens_out"] > 0
