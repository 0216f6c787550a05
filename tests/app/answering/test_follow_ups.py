"""What the summary says of stored results, and the bound of what was kept out."""

import base64
import random
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

LINES = "".join(f"line {number} of the log\n" for number in range(3000))


async def send(client: httpx.AsyncClient, text: str = LINES, **more: Any) -> dict[str, Any]:
    answer = await client.post("/results", json={"tool_name": "logs", "content": text, **more})
    assert answer.status_code in (200, 201)
    found: dict[str, Any] = answer.json()
    return found


async def row(client: httpx.AsyncClient) -> dict[str, Any]:
    (found,) = (await client.get("/accounting/summary?group_by=tool_name")).json()["rows"]
    return dict(found)


async def counts(client: httpx.AsyncClient) -> tuple[int, ...]:
    found = await row(client)
    return tuple(found[name] for name in ("stored", "asked_back", "found_nothing", "costs_more"))


async def test_a_summary_counts_what_was_asked_about_stored_results(client: httpx.AsyncClient) -> None:
    first, second, _ = [(await send(client))["handle"] for _ in range(3)]
    await send(client, "short")
    assert await counts(client) == (3, 0, 0, 0)
    for _ in range(2):
        await client.get(f"/results/{first}/lines?limit=1")
    assert await counts(client) == (3, 2, 0, 0)
    asked = {"handle": second, "extract": "line 17 of the log", "mode": "retrieve"}
    assert (await client.post("/extract", json=asked)).status_code == 200
    await client.get(f"/results/{first}/grep?pattern=line&limit=1&accounted=false")
    assert await counts(client) == (3, 3, 0, 0)


async def test_a_summary_counts_answers_that_found_nothing(client: httpx.AsyncClient) -> None:
    handle = (await send(client))["handle"]
    await client.get(f"/results/{handle}/grep?pattern=absent")
    call = {"name": "tool_output_grep", "arguments": {"handle": handle, "pattern": "absent"}}
    called = await client.post("/tools/call", json={"session_id": "default", **call})
    assert "No line matches" in called.text
    assert await counts(client) == (1, 2, 2, 0)
    asked = {"handle": handle, "extract": "zebra giraffe quagga", "mode": "retrieve"}
    assert "NO RELEVANT DATA" in (await client.post("/extract", json=asked)).text
    assert await counts(client) == (1, 3, 3, 0)


async def test_a_result_that_is_read_back_whole_costs_more_than_storing_it_saved(
    client: httpx.AsyncClient,
) -> None:
    read, _ = [(await send(client))["handle"] for _ in range(2)]
    await client.get(f"/results/{read}/lines?limit=1")
    assert await counts(client) == (2, 1, 0, 0)
    for times in (1, 2):
        await client.get(f"/results/{read}/content?accounted=true")
        assert await counts(client) == (2, 1 + times, 0, times)


@pytest.mark.parametrize(
    ("door", "shown"), [("claude-code", 30_000), ("codex", 40_000), ("opencode", 51_200)]
)
async def test_no_more_is_kept_out_than_the_client_would_have_shown(
    client: httpx.AsyncClient, door: str, shown: int
) -> None:
    text = LINES * 10
    await send(client, text, door=door)
    (entry,) = (await client.get("/accounting/entries")).json()["entries"]
    most = -(-entry["tokens_in"] * shown // len(text))
    assert entry["tokens_saved"] == most - entry["tokens_out"]
    assert (await row(client))["tokens_saved"] == entry["tokens_saved"]


async def test_no_more_is_kept_out_than_the_window_of_the_session(client: httpx.AsyncClient) -> None:
    await client.put("/sessions/small", json={"context_window": 9000})
    await send(client, LINES * 10, session_id="small")
    (entry,) = (await client.get("/accounting/entries")).json()["entries"]
    assert entry["tokens_in"] > 9000
    assert entry["tokens_saved"] == 9000 - entry["tokens_out"]


async def test_the_base64_of_a_picture_is_not_kept_out(client: httpx.AsyncClient) -> None:
    pixels = base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + random.Random(1).randbytes(30_000)).decode()
    await send(client, f'{{"type": "image", "mimeType": "image/png", "data": "{pixels}"}}')
    (entry,) = (await client.get("/accounting/entries")).json()["entries"]
    assert entry["tokens_in"] > 10_000
    assert entry["tokens_saved"] < 100


@pytest.mark.parametrize("before", [0, 17, 2048, 4000, 4095])
async def test_a_small_picture_is_left_out_wherever_it_begins(client: httpx.AsyncClient, before: int) -> None:
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + random.Random(1).randbytes(3200)).decode()
    text = f"{'ab ' * 2000}{'.' * before} {picture} {LINES}"[:60_000]
    await send(client, text)
    (entry,) = (await client.get("/accounting/entries")).json()["entries"]
    shown = entry["tokens_in"] - entry["tokens_in"] * len(picture) // len(text)
    assert entry["tokens_saved"] == shown - entry["tokens_out"]
