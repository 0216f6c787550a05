"""What a replacement would not make smaller passes. No text names a handle without the means to use it."""

import re
import tracemalloc
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content.tokens import load_encoding
from tests.conftest import Serve
from tests.counts import FULL, count

pytestmark = pytest.mark.anyio

COUNT = load_encoding("o200k_base").count
NAMES_A_HANDLE = re.compile(r"session-\S+/file-")

TEXTS = st.one_of(
    st.sampled_from(["", "x", "1\n", "few words ", "é中", "😀\n", '{"a": 1},\n']).flatmap(
        lambda piece: st.integers(0, 900).map(lambda times: piece * times)
    ),
    st.text(st.characters(codec="utf-8"), max_size=400),
)
POLICIES = st.fixed_dictionaries(
    {
        "on_oversize": st.sampled_from(["store", "truncate", "cap", "reject"]),
        "max_bytes": st.integers(0, 3000),
        "max_tokens": st.sampled_from([0, 0, 50, 400]),
        "head_chars": st.integers(0, 1500),
        "keep": st.booleans(),
        "preview": st.sampled_from(["none", "about", "digest", "head", "outline"]),
        "offer": st.sampled_from([["ask"], []]),
    }
)
WINDOWS = st.one_of(st.none(), st.integers(1, 1500))


async def governed(client: httpx.AsyncClient, text: str, **fields: Any) -> Any:
    body = {"tool_name": "t", "content": text, **fields}
    answer = await client.post("/results", json=body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def test_no_replacement_holds_three_quarters_of_what_it_replaces(serve: Serve) -> None:
    drawn: list[tuple[str, dict[str, Any], int | None, int]] = []

    @settings(max_examples=count(60, 3000))
    @given(TEXTS, POLICIES, WINDOWS, st.integers(0, 1200))
    def draw(text: str, policy: dict[str, Any], window: int | None, used: int) -> None:
        drawn.append((text, policy, window, used))

    draw()
    async with serve(storage_url="memory:") as client:
        for number, (text, policy, window, used) in enumerate(drawn):
            session = f"s{number}"
            opened: dict[str, Any] = {"policy": policy}
            if window is not None:
                opened |= {"context_window": window, "buffer_tokens": 0, "max_output_tokens": 0}
            await client.put(f"/sessions/{session}", json=opened)
            fields = {"context": {"used_tokens": used}} if window is not None else {}
            told = await governed(client, text, session_id=session, **fields)
            read = told["content"]
            if told["outcome"] == "pass":
                assert (read, told["complete"], told["handle"]) == (text, True, None)
                assert told["budget"]["reserved_tokens"] == COUNT(text)
            elif told["outcome"] == "cap":
                assert len(read.encode()) <= (policy["max_bytes"] or len(text.encode()))
            elif told["outcome"] != "reject":
                assert 4 * COUNT(read) < 3 * COUNT(text)
            if told["outcome"] != "pass" and NAMES_A_HANDLE.search(read):
                tools = (await client.get("/tools", params={"session_id": session})).json()["tools"]
                assert tools, read


@pytest.mark.parametrize("outcome", ["store", "truncate", "cap"])
async def test_a_short_result_at_the_end_of_the_window_passes_and_is_charged(
    client: httpx.AsyncClient, outcome: str
) -> None:
    window = {"context_window": 1000, "buffer_tokens": 0, "max_output_tokens": 0}
    await client.put("/sessions/s", json={**window, "policy": {"on_oversize": outcome}})
    context = {"used_tokens": 998}
    told = await governed(client, "The build took 22 ms.\n", session_id="s", context=context)
    assert (told["outcome"], told["trigger"]) == ("pass", "token_budget")
    assert (told["complete"], told["content"]) == (True, "The build took 22 ms.\n")
    assert told["budget"]["reserved_tokens"] == told["measure"]["tokens"] > 2
    headers = {"Content-Type": "text/plain", "Accept": "text/plain"}
    text = await client.post("/results?tool_name=t&session_id=s", content="22 ms\n", headers=headers)
    assert (text.text, text.headers["Spillgate-Outcome"]) == ("22 ms\n", "pass")
    rejected = await governed(client, "few words " * 9, session_id="s", policy={"on_oversize": "reject"})
    assert rejected["outcome"] != "reject" or rejected["content"].startswith("Error: ")


async def test_an_observing_policy_says_that_such_a_result_would_have_passed(
    client: httpx.AsyncClient,
) -> None:
    told = await governed(client, "few words", policy={"mode": "observe", "max_bytes": 1})
    assert (told["outcome"], told["trigger"]) == ("pass", "size_cap")
    (entry,) = (await client.get("/accounting/entries")).json()["entries"]
    assert entry["details"]["observed_outcome"] == "pass"
    assert entry["details"]["observed_tokens_saved"] == 0


async def test_check_allows_what_would_pass_for_its_size(client: httpx.AsyncClient) -> None:
    window = {"context_window": 1000, "buffer_tokens": 0, "max_output_tokens": 0}
    await client.put("/sessions/s", json=window)
    await client.post("/sessions/s/usage", json={"used_tokens": 999})
    for tokens, allowed in ((20, True), (500, False)):
        asked = {"session_id": "s", "tool_name": "t", "tokens": tokens}
        told = (await client.post("/check", json=asked)).json()
        assert (told["allowed"], told["trigger"]) == (allowed, "token_budget")


WINDOW = {"context_window": 1000, "buffer_tokens": 0, "max_output_tokens": 0}


USED = [0, 800, 950, 990, 1000]
DECIDED: list[dict[str, Any]] = [
    {},
    {"preview": "none"},
    {"preview": "head", "preview_bytes": 200},
    {"offer": []},
    {"on_oversize": "truncate", "head_chars": 2000, "max_bytes": 3000},
    {"on_oversize": "cap"},
    {"on_oversize": "cap", "max_bytes": 0, "max_tokens": 300, "keep": False},
    {"on_oversize": "reject"},
    {"on_oversize": "reject", "keep": False, "max_bytes": 400},
]


@pytest.mark.repeated
@pytest.mark.parametrize("policy", DECIDED, ids=str)
async def test_check_and_results_decide_alike(client: httpx.AsyncClient, policy: dict[str, Any]) -> None:
    """Each policy with each text, and both with each use of the window: all three with the full counts."""
    texts = [" " * size for size in (13_000, 17_000, 30_000)]
    texts += ["few words " * (size // 10) for size in (20, 60, 200, 390, 700, 2500, 4500, 9900)]
    texts += ["words " * (size // 6) for size in (13_000, 15_500, 18_000)]
    first = DECIDED.index(policy)
    for number, text in enumerate(texts):
        for used in USED if FULL else (USED[(first + number) % len(USED)],):
            session = f"s{number}-{used}"
            await client.put(f"/sessions/{session}", json={**WINDOW, "policy": policy})
            if used:
                await client.post(f"/sessions/{session}/usage", json={"used_tokens": used})
            asked = {"session_id": session, "tool_name": "t", "bytes": len(text), "tokens": COUNT(text)}
            checked = (await client.post("/check", json=asked)).json()
            told = await governed(client, text, session_id=session)
            decided = (told["outcome"] == "pass", told["trigger"])
            assert (len(text), used, checked["allowed"], checked["trigger"]) == (len(text), used, *decided)


async def test_check_judges_alike_by_bytes_alone(client: httpx.AsyncClient) -> None:
    await client.put("/sessions/s", json=WINDOW)
    await client.post("/sessions/s/usage", json={"used_tokens": 1000})
    for size, allowed in ((40, True), (4000, False)):
        asked = {"session_id": "s", "tool_name": "t", "bytes": size}
        told = (await client.post("/check", json=asked)).json()
        assert (told["allowed"], told["trigger"]) == (allowed, "token_budget")


@pytest.mark.parametrize("size", [40_000, 200_000_000, 1 << 50])
async def test_check_decides_alike_at_any_size_and_makes_no_text_of_it(
    client: httpx.AsyncClient, size: int
) -> None:
    policy = {"on_oversize": "cap", "max_bytes": 0, "max_tokens": 90, "keep": False}
    await client.put("/sessions/s", json={"policy": policy})
    asked = {"session_id": "s", "tool_name": "t", "bytes": size, "tokens": 100}
    tracemalloc.start()
    try:
        told = (await client.post("/check", json=asked)).json()
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert (told["allowed"], told["trigger"]) == (False, "size_cap")


async def test_without_a_tool_to_offer_a_message_names_no_handle(client: httpx.AsyncClient) -> None:
    told = await governed(client, "few words " * 2000, policy={"offer": []})
    assert told["outcome"] == "store"
    assert not NAMES_A_HANDLE.search(told["content"])
