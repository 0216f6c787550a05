"""GET /config and POST /policy/what-if: what is in force and who set it; what another policy would do."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from tests.conftest import Serve
from tests.misbehaving_server import answering, http

pytestmark = pytest.mark.anyio

POLICY = '[tools."web_*"]\nmax_bytes = 400\n'


async def test_config_says_what_is_in_force_and_keeps_secrets(serve: Serve, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    given = {
        "policy_file": policy,
        "llm_base_url": "http://127.0.0.1:9/v1",
        "llm_models": ("small",),
        "llm_api_key": SecretStr("sk-secret"),
    }
    async with serve(**given) as client:
        answer = await client.get("/config?tool_name=web_search&model=gpt-4o")
        told = answer.json()
        assert "sk-secret" not in answer.text
        assert told["policy"]["max_bytes"] == 400
        assert told["set_by"]["policy"]["max_bytes"] == 'policy.toml, [tools."web_*"], line 2'
        assert told["set_by"]["policy"]["mode"] == "built-in, line 5"
        assert told["settings"]["SPILLGATE_LLM_API_KEY"] == "**********"
        assert told["terms"]["context_window"] == 128_000
        assert told["models"] == [
            {
                "name": "small",
                "base_url": "http://127.0.0.1:9/v1",
                "is_default": True,
                "in_flight": 0,
                "retry_ms": 0,
                "reason": "",
            }
        ]
        assert (await client.get("/config")).json()["policy"]["max_bytes"] == 12_288


async def test_a_model_that_failed_is_shown_as_left_alone(serve: Serve) -> None:
    # It is left alone for a minute, however slow the machine.
    busy = http("429 Too Many Requests\r\nRetry-After: 9999", b"{}")
    with answering(busy) as url:
        async with serve(llm_base_url=f"{url}/v1", llm_models=("far",)) as client:
            stored = await client.post(
                "/results", json={"tool_name": "t", "content": "line of text\n" * 2000}
            )
            question = {
                "handle": stored.json()["handle"],
                "extract": "text",
                "mode": "full-chunked",
                "deadline_ms": 120_000,
            }
            await client.post("/extract", json=question)
            (model,) = (await client.get("/config")).json()["models"]
            assert model["retry_ms"] > 0
            assert model["reason"]


async def sent(client: httpx.AsyncClient, tool: str, size: int) -> dict[str, Any]:
    answer = await client.post("/results", json={"tool_name": tool, "content": "word " * (size // 5)})
    found: dict[str, Any] = answer.json()
    return found


async def test_what_if_is_what_then_happens(client: httpx.AsyncClient) -> None:
    for size in (500, 6000, 20_000):
        await sent(client, "read_file", size)
    await sent(client, "bash", 6000)
    same = (await client.post("/policy/what-if", json={"policy": {}})).json()
    assert same["results"] == 4
    assert (same["was"], same["changed_results"]) == (same["would_be"], 0)
    asked = {"tool_name": "read_file", "policy": {"max_bytes": 5000}}
    told = (await client.post("/policy/what-if", json=asked)).json()
    sums = {one["outcome"]: one["results"] for one in told["would_be"]}
    assert (told["results"], sums, told["changed_results"]) == (3, {"pass": 1, "store": 2}, 1)
    assert (told["changed"][0]["outcome"], told["changed"][0]["would_be"]) == ("pass", "store")
    # In force, the policy does the same to the same results.
    await client.put("/sessions/new", json={"policy": {"max_bytes": 5000}})
    outcomes = [
        (
            await client.post(
                "/results",
                json={"session_id": "new", "tool_name": "read_file", "content": "word " * (size // 5)},
            )
        ).json()["outcome"]
        for size in (500, 6000, 20_000)
    ]
    assert outcomes == ["pass", "store", "store"]


async def test_what_if_leaves_out_what_a_client_always_has_pass(client: httpx.AsyncClient) -> None:
    """Reading tools, files that a command reads, the report of a sub-agent: as when they came."""
    text = "word " * 2000
    for tool, command, outcome in (
        ("Read", "", "pass"),
        ("Agent", "", "pass"),
        ("Bash", "cat main.py", "pass"),
        ("Bash", "make", "store"),
    ):
        fields = {"tool_name": tool, "door": "claude-code", "tool_arguments": {"command": command}}
        assert (await client.post("/results", json={**fields, "content": text})).json()["outcome"] == outcome
    told = (await client.post("/policy/what-if", json={"policy": {"max_bytes": 3000}})).json()
    sums = {one["outcome"]: one["results"] for one in told["would_be"]}
    assert (sums, told["changed_results"]) == ({"pass": 3, "store": 1}, 0)
    await client.put("/sessions/new", json={"policy": {"max_bytes": 3000}})
    sent = {"tool_name": "Read", "door": "claude-code", "session_id": "new", "content": text}
    assert (await client.post("/results", json=sent)).json()["outcome"] == "pass"


async def test_results_of_hooks_have_a_cap_of_their_own(serve: Serve, tmp_path: Path) -> None:
    """Unless the operator sets one for all: by the setting, or in the policy file."""
    policy = tmp_path / "policy.toml"
    policy.write_text("[defaults]\nmax_bytes = 9000\n")
    cases: list[tuple[dict[str, Any], int, int]] = [
        ({}, 7168, 12_288),
        ({"hook_max_bytes": 5000}, 5000, 12_288),
        ({"max_bytes": 20_000}, 20_000, 20_000),
        ({"max_bytes": 20_000, "hook_max_bytes": 5000}, 5000, 20_000),
        ({"hook_max_bytes": 0}, 1_000_000, 12_288),
        ({"policy_file": policy}, 9000, 9000),
    ]
    for number, (settings, by_hook, by_others) in enumerate(cases):
        async with serve(**settings, storage_url="memory:") as http:
            for door, cap in (("opencode", by_hook), ("pipe", by_others), (None, by_others)):
                for size, outcome in ((cap, "pass"), (cap + 1, "store"))[: 1 + (cap < 1_000_000)]:
                    sent = {"tool_name": "bash", "content": "w" * size, "door": door}
                    told = (await http.post("/results", json=sent)).json()
                    assert told["outcome"] == outcome, (number, door, size)


async def test_what_if_estimates_what_each_outcome_shows(client: httpx.AsyncClient) -> None:
    cases: list[tuple[dict[str, Any], str, tuple[int, int]]] = [
        ({"on_oversize": "reject"}, "reject", (1, 100)),
        ({"on_oversize": "truncate", "head_chars": 4000}, "truncate", (800, 1300)),
        ({"on_oversize": "cap", "max_bytes": 8000}, "cap", (1500, 2100)),
        ({"mode": "observe"}, "pass", (4000, 4001)),
        ({"bypass": True}, "pass", (4000, 4001)),
    ]
    await sent(client, "read_file", 20_000)
    for policy, outcome, tokens in cases:
        told = (await client.post("/policy/what-if", json={"policy": policy})).json()
        (row,) = told["would_be"]
        assert row["outcome"] == outcome
        assert tokens[0] <= row["tokens"] <= tokens[1]


async def test_what_if_refuses_what_a_session_could_not_set(client: httpx.AsyncClient) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"max_bites": 1}, "invalid_policy"),
        ({"models": {"m": {"context_window": 5}}}, "invalid_policy"),
        ({"suggestion": "\ud800"}, "invalid_field"),
        ({"tool_names": {"shell": "x" * 9000}}, "invalid_field"),
    ]
    for policy, code in cases:
        body = json.dumps({"policy": policy})
        answer = await client.post("/policy/what-if", content=body)
        assert (answer.status_code, answer.json()["code"]) == (422, code)
