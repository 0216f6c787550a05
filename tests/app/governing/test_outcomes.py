"""The other designs over HTTP: truncate, cap, reject, view caps, kept or not; policies that observe."""

import asyncio
import itertools
import json
import re
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from policies.outcomes.store import TOO_LARGE

pytestmark = pytest.mark.anyio

PLAIN = {"Content-Type": "text/plain"}
LINES = "".join(f"line {number} of the log\n" for number in range(1, 1001))
CODE = "import os\n\n\nclass DataProcessor:\n    def load(self):\n        return 1\n" + "x = 1\n" * 1000
MARKER = r"\n\.\.\. \[(\d+) bytes truncated; head \+ tail kept\] \.\.\.\n"

OURO = {"profile": "ouro", "keep": False}
OXIDE = {"profile": "oxide-code", "keep": False}
CLAUDE = {"profile": "claude-code", "keep": False}
OBSERVE = {"mode": "observe", "tools": {"read_file": {"on_oversize": "cap"}}}


async def post(client: httpx.AsyncClient, content: str, tool: str = "read_file", **fields: Any) -> Any:
    answer = await client.post("/results", json={"tool_name": tool, "content": content, **fields})
    told = answer.json()
    assert answer.status_code == (201 if told.get("handle") else 200), told
    return told


async def entries(client: httpx.AsyncClient) -> list[Any]:
    found: list[Any] = (await client.get("/accounting/entries?type=tool")).json()["entries"]
    return found


def where(told: Any) -> str:
    handle = told["handle"]
    how = "reads it by query, pattern, lines or extract"
    return f'\n\nThe whole result is kept: tool_output(handle = "{handle}") {how}.'


async def adopt(client: httpx.AsyncClient, policy: dict[str, Any]) -> None:
    (await client.put("/sessions/default", json={"policy": policy})).raise_for_status()


# ouro: truncate


async def test_each_tool_is_truncated_past_its_own_threshold(client: httpx.AsyncClient) -> None:
    for tool, threshold in [
        ("read_file", 3500),
        ("grep_content", 3500),
        ("execute_shell", 3500),
        ("glob_files", 3500),
        ("any_other", 3500),
        ("web_search", 4000),
        ("web_fetch", 5000),
    ]:
        await adopt(client, OURO)
        passed = await post(client, "é" * threshold, tool)
        assert passed["outcome"] == "pass"
        told = await post(client, "é" * (threshold + 1), tool)
        assert (told["outcome"], told["trigger"]) == ("truncate", "size_cap")
        assert (told["complete"], told["handle"]) == (False, None)
        cut = f"[... {threshold - 1999} characters truncated ...]"
        assert told["content"].startswith(
            f"{'é' * 2000}\n\n{cut}\n\n--- Recovery Options ---\nTool: {tool} | 1 "
        )
        assert told["truncated_bytes"] == 2 * (threshold + 1)
        assert told["truncated_total"] is None
        assert told["measure"]["chars"] == threshold + 1


async def test_bypassed_tools_are_never_truncated(serve: Any) -> None:
    async with serve(storage_url="memory:", bypass_tools=("read_*",)) as client:
        await adopt(client, OURO)
        assert (await post(client, CODE))["outcome"] == "pass"
        assert (await post(client, CODE, "execute_shell"))["outcome"] == "truncate"


async def test_a_head_that_is_all_of_it_is_shortened_to_the_cap(client: httpx.AsyncClient) -> None:
    rules = {"on_oversize": "truncate", "keep": False, "head_chars": 20_000}
    for size in (17_000, 19_000, 21_000):
        told = await post(client, ("few words " * 2100)[:size], "get_weather", policy=rules)
        assert (told["outcome"], told["trigger"], told["handle"]) == ("truncate", "size_cap", None)
        assert 12_000 < len(told["content"]) <= 12_288


async def test_a_head_that_is_all_of_it_gives_way_where_the_budget_fired(client: httpx.AsyncClient) -> None:
    window = {"context_window": 200, "buffer_tokens": 0, "max_output_tokens": 0}
    await client.put("/sessions/s", json=window)
    told = await post(client, "few words " * 150, session_id="s", policy={"on_oversize": "truncate"})
    assert (told["outcome"], told["trigger"]) == ("store", "token_budget")
    assert told["content"].startswith(f"{TOO_LARGE} (")


# oxide-code: cap and view caps


async def test_a_capped_result_keeps_head_and_tail_within_the_cap(client: httpx.AsyncClient) -> None:
    for tool in ["execute_shell", "bash", "edit", "write"]:
        text = LINES * 10
        await adopt(client, OXIDE)
        assert (await post(client, "y" * 131_072, tool))["outcome"] == "pass"
        told = await post(client, text, tool)
        assert (told["outcome"], told["trigger"], told["handle"]) == ("cap", "size_cap", None)
        assert len(told["content"].encode()) <= 131_072
        head, gone, tail = re.split(MARKER, told["content"])
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) == len(tail)
        assert len(head) + int(gone) + len(tail) == len(text)
        assert (told["truncated_bytes"], told["truncated_total"]) == (len(text), None)


async def test_a_cap_is_a_ceiling(client: httpx.AsyncClient) -> None:
    cap = {"on_oversize": "cap", "max_bytes": 1000, "keep": False}
    assert (await post(client, "x" * 1000, policy=cap))["outcome"] == "pass"
    for size in (1001, 1010, 1060, 1100, 1333, 1600):
        for text in ("x" * size, "é" * (size // 2) + "z", "word and word\n" * (size // 14 + 1)):
            told = await post(client, text, policy=cap)
            assert (told["outcome"], told["trigger"], told["complete"]) == ("cap", "size_cap", False)
            assert len(told["content"].encode()) <= 1000
            assert told["truncated_bytes"] == len(text.encode())
    for kept in (True, False):
        text = "".join(f"{number}: a row of words, of which there are many\n" for number in range(3500))
        assert 131_072 < len(text) < 170_000
        told = await post(client, text, "bash", policy={"profile": "oxide-code", "keep": kept})
        assert (told["outcome"], bool(told["handle"])) == ("cap", kept)
        assert len(told["content"].encode()) <= 131_072


async def test_a_check_refuses_what_a_cap_would_cut(client: httpx.AsyncClient) -> None:
    for outcome, allowed in (("cap", False), ("truncate", True)):
        await adopt(client, {"on_oversize": outcome, "max_tokens": 1000, "max_bytes": 0, "head_chars": 9000})
        answer = await client.post("/check", json={"tool_name": "t", "tokens": 1100})
        assert answer.json()["allowed"] is allowed


async def test_rows_are_capped_before_size_is_judged(client: httpx.AsyncClient) -> None:
    text = "".join(f"{number}: {'x' * 50}\n" for number in range(3000))
    assert len(text) > 131_072
    await adopt(client, OXIDE)
    for tool, rows, footer in [
        ("read_file", 2000, "(Showing lines 1–2000 of 3000 total)"),
        ("read", 2000, "(Showing lines 1–2000 of 3000 total)"),
        ("grep_content", 250, "(Showing 250 of 3000 matches.)"),
        ("grep", 250, "(Showing 250 of 3000 matches.)"),
        ("glob_files", 100, "(Showing 100 of 3000 matches.)"),
        ("glob", 100, "(Showing 100 of 3000 matches.)"),
    ]:
        told = await post(client, text, tool)
        *_, entry = await entries(client)
        assert (told["outcome"], told["trigger"], told["complete"]) == ("cap", None, False)
        assert told["content"] == "".join(text.splitlines(keepends=True)[:rows]) + f"\n{footer}"
        assert (told["truncated_total"], told["truncated_bytes"]) == (3000, None)
        assert told["measure"]["bytes"] == len(text)
        assert (entry["details"]["truncated"], entry["details"]["truncated_total"]) == (True, 3000)
        assert entry["tokens_saved"] == entry["tokens_in"] - entry["tokens_out"] > 0


async def test_the_two_layers_count_in_two_fields(client: httpx.AsyncClient) -> None:
    rules = {"on_oversize": "cap", "max_bytes": 2000, "max_rows": 500, "keep": False}
    told = await post(client, LINES, policy=rules)
    view = "".join(LINES.splitlines(keepends=True)[:500]) + "\n(Showing lines 1–500 of 1000 total)"
    head, gone, tail = re.split(MARKER, told["content"])
    assert (told["outcome"], told["trigger"]) == ("cap", "size_cap")
    assert view.startswith(head)
    assert view.endswith(tail)
    assert len(head.encode()) + int(gone) + len(tail.encode()) == len(view.encode())
    assert (told["truncated_bytes"], told["truncated_total"]) == (len(view.encode()), 1000)


async def test_a_view_that_is_still_too_large_gets_what_the_policy_names(client: httpx.AsyncClient) -> None:
    for outcome in ["truncate", "cap", "reject", "store"]:
        rules = {"on_oversize": outcome, "max_bytes": 3000, "max_rows": 500}
        told = await post(client, LINES, policy=rules)
        assert (told["outcome"], told["trigger"]) == (outcome, "size_cap")
        assert told["measure"]["lines"] == 1000
        assert (told["truncated_total"] == 1000) == (outcome in ("truncate", "cap"))


async def test_a_view_has_a_size_cap_in_any_case(client: httpx.AsyncClient) -> None:
    for outcome in ["truncate", "cap", "reject", "store"]:
        text = ("x" * 90 + "\n") * 20_000
        rules = {"on_oversize": outcome, "max_bytes": 0, "max_rows": 19_000}
        told = await post(client, text, policy=rules)
        assert (told["outcome"], told["trigger"]) == (outcome, "size_cap")
        assert len(told["content"].encode()) <= 1_000_000
        fits = await post(client, text, policy=rules | {"max_rows": 10_000})
        assert (fits["outcome"], fits["trigger"]) == ("cap", None)
        assert fits["content"].startswith(text[:910_000])


async def test_a_view_that_leaves_all_changes_nothing(client: httpx.AsyncClient) -> None:
    told = await post(client, "a\nb\n", policy={"max_rows": 2, "max_line_chars": 1})
    assert (told["outcome"], told["content"], told["complete"]) == ("pass", "a\nb\n", True)
    assert told["truncated_total"] is None


# RFC 002: reject, and the question before


async def test_a_rejection_names_tokens_limit_and_a_way_out_and_shows_nothing(
    client: httpx.AsyncClient,
) -> None:
    text = "alpha beta gamma delta\n" * 6000
    await adopt(client, CLAUDE)
    for tool, noun, suggestion in [
        ("read_file", "File content", "offset and limit"),
        ("execute_shell", "Command output", "head, tail or grep"),
        ("grep_content", "Search output", "more specific pattern"),
        ("glob_files", "Search output", "narrower pattern"),
        ("web_search", "Search output", "more specific query"),
        ("web_fetch", "Tool output", "save_to"),
        ("get_weather", "Tool output", "narrow the request"),
    ]:
        told = await post(client, text, tool)
        *_, entry = await entries(client)
        asked = {"tool_name": tool, "tokens": told["measure"]["tokens"]}
        before = (await client.post("/check", json=asked)).json()
        paged = (await client.post("/check", json=asked | {"paginated": True})).json()
        health = (await client.get("/healthz")).json()
        first, second = told["content"].split("\n")
        tokens = told["measure"]["tokens"]
        assert first == f"Error: {noun} (~{tokens} tokens) exceeds maximum allowed tokens (25000)."
        assert suggestion in second
        assert "alpha" not in told["content"]
        assert (told["outcome"], told["trigger"], told["complete"]) == ("reject", "size_cap", False)
        assert (told["truncated_bytes"], told["truncated_total"]) == (None, None)
        assert before == {"allowed": False, "trigger": "size_cap", "content": told["content"]}
        passed = {"allowed": True, "trigger": None, "content": None}
        assert paged == (passed if tool == "read_file" else before)
        assert (entry["outcome"], entry["status"], entry["details"]["truncated"]) == ("reject", "ok", True)
        assert health["stored_bytes"] == 0


async def test_a_check_knows_a_cap_in_characters(client: httpx.AsyncClient) -> None:
    rules = {"tools": {"t": {"max_bytes": 0, "max_chars": 5000}}}
    await client.put("/sessions/s", json={"policy": rules})
    told = (await client.post("/check", json={"session_id": "s", "tool_name": "t", "bytes": 6000})).json()
    assert "(~6000 characters) exceeds maximum allowed characters (5000)." in told["content"]


async def test_a_rejection_for_want_of_room_names_what_is_left_now(client: httpx.AsyncClient) -> None:
    window = {"context_window": 1000, "buffer_tokens": 0, "max_output_tokens": 0}
    await client.put("/sessions/s", json=window | {"policy": {"on_oversize": "reject", "keep": False}})
    first = await post(client, "word " * 600, session_id="s")
    told = await post(client, "word " * 600, session_id="s")
    left = first["budget"]["remaining_tokens"]
    assert (told["outcome"], told["trigger"]) == ("reject", "reserve_failed")
    assert f"tokens) exceeds maximum allowed tokens ({left})." in told["content"]
    large = await post(client, "word " * 2000, session_id="s")
    assert (large["outcome"], large["trigger"]) == ("reject", "token_budget")
    assert "exceeds maximum allowed tokens (1000)." in large["content"]


# keep


async def test_what_is_kept_is_whole_and_the_text_ends_with_where(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    reserved = 0
    for outcome in ("truncate", "cap", "reject"):
        told = await post(client, LINES, "execute_shell", policy={"on_oversize": outcome})
        assert told["outcome"] == outcome
        assert told["content"].endswith(where(told))
        assert (await client.get(f"/results/{told['handle']}/content")).text == LINES
        assert (await client.get("/tools")).json()["tools"]
        *_, entry = await entries(client)
        assert entry["details"]["tool_output_handle"] == told["handle"]
        reserved += entry["tokens_out"]
        assert (entry["outcome"], reserved) == (outcome, told["budget"]["reserved_tokens"])
        *_, line = [record for record in caplog.records if "stored for tool_output" in record.getMessage()]
        assert line.fields["outcome"] == outcome  # type: ignore[attr-defined]
        if outcome == "cap":
            assert len(told["content"].encode()) <= 12_288


async def test_what_is_not_kept_leaves_nothing(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for outcome in ("truncate", "cap", "reject"):
        told = await post(client, LINES * 60, policy={"on_oversize": outcome, "keep": False})
        assert (told["outcome"], told["handle"]) == (outcome, None)
        assert "tool_output" not in told["content"]
        assert (await client.get("/tools")).json()["tools"] == []
        assert (await client.get("/healthz")).json()["stored_bytes"] == 0
        assert {one["details"]["tool_output_handle"] for one in await entries(client)} == {None}
        assert "stored for tool_output" not in caplog.text


async def test_a_view_that_is_kept_says_where_after_its_footer(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    told = await post(client, LINES, "grep_content", policy={"max_rows": 2})
    assert told["content"] == (
        f"line 1 of the log\nline 2 of the log\n\n(Showing 2 of 1000 matches.){where(told)}"
    )
    assert (told["outcome"], told["trigger"]) == ("cap", None)
    assert (await client.get(f"/results/{told['handle']}/content")).text == LINES
    assert "stored for tool_output (view_caps)." in caplog.text


# the same over every way in, and twice


async def test_the_same_call_again_answers_the_same(client: httpx.AsyncClient) -> None:
    cases = itertools.product((True, False), ("truncate", "cap", "reject", "store"))
    for number, (keep, outcome) in enumerate(cases):
        call = f"c{number}"
        rules = {"on_oversize": outcome, "keep": keep, "max_rows": 900}
        first = await post(client, LINES, tool_call_id=call, policy=rules)
        assert first["outcome"] == outcome
        # Whatever the policy is by then.
        for other in ({"on_oversize": "store"}, {"on_oversize": "reject", "max_bytes": 0, "max_rows": 1}):
            assert await post(client, LINES, tool_call_id=call, policy=other) == first
        assert len(await entries(client)) == number + 1
        sent = {"tool_name": "t", "content": LINES + "!", "tool_call_id": call, "policy": rules}
        refused = await client.post("/results", json=sent)
        assert refused.json()["code"] == "idempotency_key_reused"


async def test_sends_of_one_call_at_once_are_answered_alike(client: httpx.AsyncClient) -> None:
    for outcome in ("truncate", "cap", "reject", "store"):
        sent = {"session_id": outcome, "tool_name": "t", "content": LINES, "tool_call_id": "c"}
        policies = [{"on_oversize": outcome, "keep": number % 2 == 0} for number in range(8)]
        answers = await asyncio.gather(
            *[client.post("/results", json=sent | {"policy": policy}) for policy in policies]
        )
        assert {answer.status_code for answer in answers} <= {200, 201, 409}
        told = {answer.text for answer in answers if answer.status_code != 409}
        handles = {json.loads(text)["handle"] for text in told}
        assert len(handles) == 1
        assert len({json.loads(text)["content"] for text in told}) == 1
        stored = (await client.get(f"/sessions/{outcome}")).json()["stored_results"]
        assert stored == (0 if handles == {None} else 1)
        assert len([one for one in await entries(client) if one["session_id"] == outcome]) == 1


async def streamed(size: int) -> AsyncIterator[bytes]:
    """Lines of 22 bytes with a character that chunks cut in two."""
    piece = "an ordinary liné 123\n".encode() * 2500
    for _ in range(size // len(piece)):
        yield piece[:34_998]
        yield piece[34_998:]


@pytest.mark.parametrize(
    ("outcome", "keep", "rows"),
    [
        ("truncate", "true", 0),
        ("truncate", "false", 10_000),
        ("cap", "false", 10_000),
        ("reject", "true", 0),
        ("store", "true", 0),
    ],
)
async def test_a_long_stream_is_answered_in_constant_memory(
    disk_client: httpx.AsyncClient, outcome: str, keep: str, rows: int
) -> None:
    client = disk_client
    await post(client, LINES, policy={"on_oversize": outcome})
    rules = f'{{"on_oversize":"{outcome}","keep":{keep},"max_rows":{rows},"max_line_chars":500}}'
    query = {"tool_name": "read_file", "policy": rules}
    tracemalloc.start()
    answer = await client.post("/results", params=query, content=streamed(3_000_000), headers=PLAIN)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    told = answer.json()
    assert (told["outcome"], told["trigger"]) == (outcome, "size_cap")
    assert told["measure"]["lines"] == 135_000
    # A chunk, what waits for the disk, and the tokenizer take three megabytes.
    assert peak < 3_850_000
    if told["handle"] is not None:
        info = (await client.get(f"/results/{told['handle']}")).json()
        assert info["measure"]["bytes"] == told["measure"]["bytes"]
    if rows and outcome in ("truncate", "cap"):
        assert told["truncated_total"] == told["measure"]["lines"]
        assert told["truncated_bytes"] < told["measure"]["bytes"]


async def test_a_view_is_the_same_however_its_text_arrives(client: httpx.AsyncClient) -> None:
    text = "a línë that is longer than twelve characters\r\n" * 400

    async def chunks(size: int) -> AsyncIterator[bytes]:
        data = text.encode()
        for start in range(0, len(data), size):
            yield data[start : start + size]

    for size in (7, 5_001):
        for caps in ({"max_rows": 3}, {"max_rows": 3, "max_line_chars": 12}):
            rules = caps | {"keep": False}
            whole = await post(client, text, policy=rules)
            query = {"tool_name": "read_file", "policy": json.dumps(rules)}
            answer = await client.post(
                "/results", params=query, content=chunks(size), headers=PLAIN | {"Accept": "text/plain"}
            )
            assert answer.text == whole["content"]
            assert answer.headers["spillgate-outcome"] == "cap"
            assert "spillgate-trigger" not in answer.headers


# budgets


async def test_a_replacement_is_charged_and_gives_way_to_store_where_it_does_not_fit(
    client: httpx.AsyncClient,
) -> None:
    window = {"context_window": 1000, "buffer_tokens": 0, "max_output_tokens": 0}
    for outcome in ("truncate", "cap"):
        await client.put(f"/sessions/{outcome}", json=window | {"policy": {"on_oversize": outcome}})
        told = await post(
            client, "word " * 5000, session_id=outcome, policy={"head_chars": 500, "max_bytes": 600}
        )
        assert told["outcome"] == outcome
        (entry,) = [one for one in await entries(client) if one["session_id"] == outcome]
        assert told["budget"]["reserved_tokens"] == entry["tokens_out"] > 0
        # The window holds no more.
        assert entry["tokens_saved"] == 1000 - entry["tokens_out"]
        big = await post(
            client, "word " * 5000, session_id=outcome, policy={"head_chars": 4900, "max_bytes": 9999}
        )
        assert (big["outcome"], big["trigger"]) == ("store", "size_cap")
        assert big["content"].startswith(f"{TOO_LARGE} (")
        assert (await client.get(f"/results/{big['handle']}/content")).text == "word " * 5000


async def test_what_gives_way_is_stored_once_and_named_once(client: httpx.AsyncClient) -> None:
    window = {"context_window": 30, "buffer_tokens": 0, "max_output_tokens": 0}
    for session, keep in (("kept", True), ("not-kept", False)):
        await client.put(f"/sessions/{session}", json=window)
        rules = {"on_oversize": "truncate", "keep": keep, "preview": "head", "preview_bytes": 20}
        told = await post(client, LINES, session_id=session, tool_call_id="c", policy=rules)
        assert told["outcome"] == "store"
        # No tool is offered any more, and so none is named.
        assert told["content"].endswith(
            "It is not shown, and cannot be asked about here. Go on with what you have."
        )
        assert str(told["handle"]) not in told["content"]
        assert told["budget"]["exhausted"] is True
        assert (await client.get("/tools", params={"session_id": session})).json()["tools"] == []
        assert (await client.get(f"/sessions/{session}")).json()["stored_results"] == 1
        (entry,) = [one for one in await entries(client) if one["session_id"] == session]
        assert (entry["outcome"], entry["details"]["truncated_bytes"]) == ("store", None)


@pytest.mark.parametrize("preview", ["sketch", "head", "outline"])
async def test_a_preview_that_does_not_fit_what_remains_is_left_out(
    client: httpx.AsyncClient, preview: str
) -> None:
    code = "".join(f"def function_{number}():\n    return {number}\n" for number in range(400))
    rules = {"preview": preview, "max_bytes": 1200}
    whole = await post(client, code, "read_file", session_id="s", policy=rules)
    plain = await post(client, code, "read_file", session_id="s", policy=rules | {"preview": "none"})
    message, shown = plain["content"].replace(plain["handle"], whole["handle"]), whole["content"]
    assert shown.startswith(f"{message}\n\n")
    sizes = [one["tokens_out"] for one in await entries(client)]
    window = {"context_window": sum(sizes) + 20, "buffer_tokens": 0, "max_output_tokens": 0}
    await client.put("/sessions/s", json=window)
    # Of two at once the second finds too little when it is charged, or before.
    fields = {"context": {"used_tokens": 1, "turn": 1}}
    both = [post(client, code, "read_file", session_id="s", policy=rules, **fields) for _ in range(2)]
    told = await asyncio.gather(*both)
    texts = sorted((one["content"].replace(one["handle"], whole["handle"]) for one in told), key=len)
    assert texts == [message, shown]
    assert (await client.get("/tools", params={"session_id": "s"})).json()["tools"]


async def test_a_view_that_does_not_fit_what_remains_gives_way_as_well(client: httpx.AsyncClient) -> None:
    window = {"context_window": 1000, "buffer_tokens": 0, "max_output_tokens": 0}
    await client.put("/sessions/s", json=window)
    await post(client, "word " * 700, session_id="s")
    rules = {"max_rows": 80, "on_oversize": "truncate", "head_chars": 100}
    told = await post(client, LINES, session_id="s", policy=rules)
    assert (told["outcome"], told["trigger"]) == ("truncate", "reserve_failed")
    assert told["truncated_total"] == 1000


# observe


async def test_an_observing_policy_passes_all_and_counts_what_it_would_have_saved(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await adopt(client, OBSERVE)
    small = await post(client, "small")
    told = await post(client, LINES)
    other = await post(client, LINES, "execute_shell")
    found = await entries(client)
    health = (await client.get("/healthz")).json()
    summary = (await client.get("/accounting/summary?group_by=tool_name")).json()
    check = (await client.post("/check", json={"tool_name": "t", "bytes": 99_999})).json()
    exported = (await client.get("/accounting/entries", headers={"Accept": "text/csv"})).text
    assert small["trigger"] is None
    for one in (told, other):
        assert (one["outcome"], one["trigger"], one["complete"]) == ("pass", "size_cap", True)
        assert (one["content"], one["handle"], one["measure"]["tokens_exact"]) == (LINES, None, True)
    assert [one["details"]["observed_outcome"] for one in found] == [None, "cap", "store"]
    assert [one["trigger"] for one in found] == [None, "size_cap", "size_cap"]
    assert all(one["tokens_saved"] == 0 for one in found)
    saved = [one["details"]["observed_tokens_saved"] for one in found]
    assert saved[0] == 0 < saved[1] < saved[2] < told["measure"]["tokens"]
    by_tool = {row["group"]: row["tokens_saved_observed"] for row in summary["rows"]}
    assert by_tool == {"read_file": saved[1], "execute_shell": saved[2]}
    assert summary["total"]["tokens_saved_observed"] == saved[1] + saved[2]
    assert summary["total"]["tokens_saved"] == 0
    assert check == {"allowed": True, "trigger": "size_cap", "content": None}
    assert health["stored_bytes"] == 0
    assert "stored for tool_output" not in caplog.text
    assert "details.observed_tokens_saved" in exported.splitlines()[0]


async def test_an_observed_result_is_told_as_enforce_decides_it(client: httpx.AsyncClient) -> None:
    window = {"context_window": 200_000, "buffer_tokens": 0, "max_output_tokens": 0}
    rules: list[dict[str, Any]] = [
        {"repeat": "name"},
        {"on_oversize": "truncate", "head_chars": 500},
        {"on_oversize": "reject", "max_rows": 80, "max_line_chars": 8},
        {"preview": "head", "preview_bytes": 2000, "max_bytes": 100},
    ]
    texts = "few words", "word " * 180, *("a line that passes and comes again\n" * 40,) * 2, LINES
    for (number, rule), left in itertools.product(enumerate(rules), (60, 700, 100_000)):
        for mode in ("enforce", "observe"):
            session = f"{mode}-{number}-{left}"
            await client.put(f"/sessions/{session}", json={**window, "policy": {**rule, "mode": mode}})
            for turn, text in enumerate(texts):
                usage = {"used_tokens": 200_000 - left, "turn": turn}
                await post(client, text, session_id=session, tool_call_id=f"c{turn}", context=usage)
    found = (await client.get("/accounting/entries?limit=1000")).json()["entries"]
    told = {(one["session_id"], one["tool_call_id"]): one for one in found}
    enforced = [key for key in told if key[0].startswith("enforce")]
    assert {told[key]["trigger"] for key in enforced} == {None, "size_cap", "token_budget", "repeat"}
    for session, call in enforced:
        wanted, observed = told[session, call], told[session.replace("enforce", "observe"), call]
        outcome = observed["details"]["observed_outcome"] or "pass"
        assert (observed["trigger"], outcome) == (wanted["trigger"], wanted["outcome"]), (session, call)
        # The handles of two sessions may differ by a token or two, and a text may name them several times.
        text_tokens = observed["tokens_in"] - observed["details"]["observed_tokens_saved"]
        assert text_tokens == pytest.approx(wanted["tokens_out"], abs=12), (session, call)


async def test_an_observed_result_is_charged_past_the_limit(client: httpx.AsyncClient) -> None:
    window = {"context_window": 1000, "buffer_tokens": 0, "max_output_tokens": 0}
    rules = {"mode": "observe", "on_oversize": "truncate", "head_chars": 50, "max_rows": 990}
    await client.put("/sessions/s", json=window | {"policy": rules})
    first = await post(client, "word " * 600, session_id="s")
    told = await post(client, "word " * 600, session_id="s")
    large = await post(client, LINES, session_id="s", policy={"max_bytes": 0})
    assert (first["trigger"], told["trigger"], large["trigger"]) == (None, "reserve_failed", "token_budget")
    for one in (told, large):
        assert (one["outcome"], one["complete"]) == ("pass", True)
    total = sum(one["measure"]["tokens"] for one in (first, told, large))
    assert large["budget"]["reserved_tokens"] == total > 1000
    assert large["budget"]["exhausted"] is True
    outcomes = [one["details"]["observed_outcome"] for one in await entries(client)]
    assert outcomes == [None, "truncate", "store"]


async def test_an_observed_view_and_a_long_stream_pass_whole(client: httpx.AsyncClient) -> None:
    rules = '{"mode":"observe","max_rows":5,"max_bytes":0}'
    answer = await client.post(
        "/results",
        params={"tool_name": "t", "policy": rules, "tool_call_id": "c"},
        content=LINES.encode() * 100,
        headers=PLAIN | {"Accept": "text/plain"},
    )
    assert answer.text == LINES * 100
    assert answer.headers["spillgate-outcome"] == "pass"
    (entry,) = await entries(client)
    assert entry["details"]["observed_outcome"] == "cap"
    assert entry["details"]["observed_tokens_saved"] > 100_000
    assert entry["trigger"] is None
