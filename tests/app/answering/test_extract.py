"""POST /extract: frames, fallback, coverage, and what the answer costs."""

from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

LOG = "\n".join(f"{n:05} nothing to see" for n in range(3000))
UNKNOWN = "session-default/file-00000000-0000-4000-8000-000000000000"


async def keep(client: httpx.AsyncClient, text: str = LOG, session: str = "s") -> str:
    sent = {"session_id": session, "tool_name": "journal", "content": text}
    return str((await client.post("/results", json=sent)).json()["handle"])


async def ask(client: httpx.AsyncClient, named: str, **fields: Any) -> httpx.Response:
    return await client.post("/extract", json={"handle": named, "extract": "errors", **fields})


async def test_a_mode_that_needs_a_model_is_answered_by_retrieve_where_there_is_none(
    client: httpx.AsyncClient,
) -> None:
    handle = await keep(client)
    told = (await ask(client, handle, mode="read-grep")).json()
    frame = f"ABSTRACT FROM TOOL OUTPUT journal WITH HANDLE {handle}, STRATEGY:retrieve:\n\n"
    warning = "WARNING: tool_output fallback to retrieve (no model is configured)."
    assert told["text"] == frame + told["body"]
    assert told["body"].startswith(f"{warning}\n")
    assert (told["status"], told["strategy"], told["warnings"]) == ("fallback", "retrieve", [warning])
    assert len(told["text"].encode()) <= 12_288


async def test_truncate_keeps_both_ends_and_names_what_is_missing(client: httpx.AsyncClient) -> None:
    for text in (LOG, "日本語" * 5000):
        told = (await ask(client, await keep(client, text), mode="truncate")).json()
        (gap,) = told["coverage"]["missing"]
        head, tail = told["body"].split("\n... [")[0], told["body"].split("kept] ...\n")[1]
        assert told["status"] == "partial"
        assert gap == {
            "start": len(head.encode()),
            "end": len(text.encode()) - len(tail.encode()),
            "reason": "truncated",
        }
        assert f"[{gap['end'] - gap['start']} bytes truncated; head + tail kept]" in told["body"]
        assert 0 < told["coverage"]["ratio"] < 1


async def test_what_fits_is_answered_whole(client: httpx.AsyncClient) -> None:
    handle = await keep(client, "x" * 20_000)
    told = (await ask(client, handle, mode="truncate", ranges=[{"start": 5, "end": 105}])).json()
    assert told["body"] == "x" * 100
    assert (told["status"], told["coverage"]["missing"]) == ("complete", [])


async def test_a_range_that_cuts_characters_still_answers_text(client: httpx.AsyncClient) -> None:
    handle = await keep(client, "é" * 10_000)
    told = (await ask(client, handle, mode="truncate", ranges=[{"start": 1, "end": 8}])).json()
    assert told["body"] == "ééé"


async def test_all_or_nothing_is_502(client: httpx.AsyncClient) -> None:
    answer = await ask(client, await keep(client), mode="truncate", require_complete=True)
    assert answer.status_code == 502
    assert answer.json()["code"] == "incomplete"


async def test_a_persons_question_is_no_cost_of_the_session(client: httpx.AsyncClient) -> None:
    handle = await keep(client)
    before = (await client.get("/sessions/s")).json()
    sums = (await client.get("/accounting/summary?group_by=session_id")).json()["rows"]
    told = (await ask(client, handle, asked_by="person")).json()
    assert "STRATEGY:retrieve" in told["text"]
    after = (await client.get("/sessions/s")).json()
    assert after["budget"] == before["budget"]
    (entry,) = (await client.get("/accounting/entries?type=extract")).json()["entries"]
    assert (entry["id"], entry["session_id"], entry["client"]) == (told["entry_id"], "dashboard", "dashboard")
    assert (entry["details"]["tool_output_handle"], entry["tokens_saved"]) == (handle, 0)
    assert entry["tokens_out"] > 0
    rows = (await client.get("/accounting/summary?group_by=session_id")).json()["rows"]
    assert [row for row in rows if row["group"] == "s"] == sums
    (row,) = (await client.get("/accounting/summary?group_by=tool_name")).json()["rows"]
    assert (row["tokens_saved"], row["asked_back"]) == (sums[0]["tokens_saved"], 0)
    given = (await client.get(f"/results/{handle}/given")).json()["given"]
    assert [one["type"] for one in given] == ["tool"]
    sessions = (await client.get("/sessions")).json()["sessions"]
    assert [one["session_id"] for one in sessions] == ["s"]
    # It is answered where the session has no budget left.
    await client.post("/sessions/s/usage", json={"used_tokens": 10_000_000, "turn": 2})
    exhausted = (await ask(client, handle)).json()
    assert exhausted["status"] == "failed"
    assert (await ask(client, handle, asked_by="person")).json()["status"] != "failed"


async def test_the_answer_is_reserved_and_booked_as_a_cost(client: httpx.AsyncClient) -> None:
    handle = await keep(client)
    before = (await client.get("/sessions/s")).json()["budget"]["reserved_tokens"]
    told = (await ask(client, handle)).json()
    after = (await client.get("/sessions/s")).json()["budget"]["reserved_tokens"]
    entry = (await client.get("/accounting/entries?type=extract")).json()["entries"][0]
    assert entry["id"] == told["entry_id"]
    assert entry["tokens_out"] == after - before > 0
    assert entry["tokens_saved"] == -entry["tokens_out"]
    assert entry["strategy"] == "retrieve"


async def test_the_answer_shrinks_to_what_the_budget_still_holds(client: httpx.AsyncClient) -> None:
    handle = await keep(client)
    window = {"context_window": 1000, "buffer_tokens": 0, "max_output_tokens": 0}
    await client.put("/sessions/s", json=window)
    told = (await ask(client, handle, mode="truncate")).json()
    budget = (await client.get("/sessions/s")).json()["budget"]
    assert told["text"].startswith("ABSTRACT FROM TOOL OUTPUT")
    assert len(told["body"]) > 500
    assert budget["used_tokens"] + budget["reserved_tokens"] <= 1000


async def test_a_handle_is_forgiven_its_spelling(client: httpx.AsyncClient) -> None:
    sent = {"tool_name": "t", "session_id": "Run-7", "content": "needle\n" * 5000}
    handle = (await client.post("/results", json=sent)).json()["handle"]
    plain, events = {"Accept": "text/plain"}, {"Accept": "text/event-stream"}
    for spelling in (handle, f' "{handle}" ', f"`{handle.upper()}`", handle.lower(), f"<{handle}>"):
        for headers in ({}, plain, events):
            question = {"handle": spelling, "extract": "needle"}
            answer = await client.post("/extract", json=question, headers=headers)
            assert answer.status_code == 200, spelling
            assert f"WITH HANDLE {handle}, STRATEGY:retrieve" in answer.text
    cut = await client.post("/extract", json={"handle": handle[:-4], "extract": "x"})
    assert cut.json()["detail"].startswith("The handle is cut off: it has 32 of the 36 characters")


async def test_an_unknown_handle_is_404_also_in_the_models_own_words(client: httpx.AsyncClient) -> None:
    assert (await ask(client, UNKNOWN)).json()["code"] == "result_not_found"
    plain = {"Accept": "text/plain"}
    answer = await client.post("/extract", json={"handle": UNKNOWN, "extract": "x"}, headers=plain)
    assert answer.status_code == 404
    assert answer.text.startswith(f"TOOL_OUTPUT FAILED FOR unknown WITH HANDLE {UNKNOWN}, STRATEGY:auto:\n\n")
    near = UNKNOWN[:-3]
    answer = await client.post("/extract", json={"handle": near, "extract": "x"}, headers=plain)
    assert answer.text.startswith(f"TOOL_OUTPUT FAILED FOR unknown WITH HANDLE {near}, STRATEGY:auto:\n\n")
    answer = await client.post("/extract", json={"handle": "<evil>", "extract": "x"}, headers=plain)
    assert "evil" not in answer.text
    assert 'spillgate_errors_total{code="result_not_found"} 4.0' in (await client.get("/metrics")).text


async def test_plain_text_answers_just_the_frame(client: httpx.AsyncClient) -> None:
    sent = {"handle": await keep(client), "extract": "x"}
    answer = await client.post("/extract", json=sent, headers={"Accept": "text/plain"})
    assert answer.status_code == 200
    assert answer.text.startswith("ABSTRACT FROM TOOL OUTPUT journal")
    told = (await client.post("/extract", json=sent)).json()
    ratio = told["coverage"]["ratio"]
    headers = {name: value for name, value in answer.headers.items() if name.startswith("spillgate-")}
    assert headers == {
        "spillgate-status": told["status"],
        "spillgate-strategy": told["strategy"],
        "spillgate-coverage": f"{ratio:.4g}",
    }


async def test_a_wrong_question_is_422(client: httpx.AsyncClient) -> None:
    cases: list[dict[str, Any]] = [
        {"extract": ""},
        {"mode": "guess"},
        {"handle": ""},
        {"color": 1},
        {"ranges": [{"start": -1}]},
    ]
    for wrong in cases:
        answer = await ask(client, UNKNOWN, **wrong)
        assert answer.status_code == 422
        assert answer.json()["code"] == "invalid_field"


SPANS = [{"start": 10**9, "end": 10**9 + 9}, {"start": 9, "end": 2}]


async def test_ranges_that_select_nothing_are_refused(client: httpx.AsyncClient) -> None:
    for span in SPANS:
        answer = await ask(client, await keep(client), ranges=[span])
        assert answer.status_code == 422


async def test_the_answer_is_never_longer_than_the_size_cap(client: httpx.AsyncClient) -> None:
    for cap in [1, 50, 150, 200, 1000]:
        handle = await keep(client)
        await client.put("/sessions/s", json={"policy": {"max_bytes": cap}})
        for mode in ("auto", "read-grep", "truncate"):
            told = (await ask(client, handle, mode=mode)).json()
            assert len(told["text"].encode()) <= cap
        await client.put("/sessions/full", json={"context_window": 50, "policy": {"max_bytes": cap}})
        told = (await ask(client, await keep(client, session="full"))).json()
        assert len(told["text"].encode()) <= cap


async def test_binary_data_of_nearly_the_size_cap_is_not_cut_unsaid(client: httpx.AsyncClient) -> None:
    sent = {
        "session_id": "s",
        "tool_name": "journal",
        "content": "\0" + "".join(map(str, range(400)))[:899],
        "policy": {"max_bytes": 9, "preview": "none"},
    }
    handle = (await client.post("/results", json=sent)).json()["handle"]
    await client.put("/sessions/s", json={"policy": {"max_bytes": 1024}})
    told = (await ask(client, handle)).json()
    assert told["body"].startswith("[Mostly binary: readable parts only.]")
    assert told["text"].endswith(told["body"])
    assert told["status"] == "partial"
