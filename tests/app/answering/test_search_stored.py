"""A pattern that only the text as it is stored has: one long line that a search breaks into lines."""

import json
import re

import httpx
import pytest

from app.answering import tool_search as search
from tests.app.answering.test_query import keep

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def client(shared_client: httpx.AsyncClient) -> httpx.AsyncClient:
    return shared_client


TUPLES = str([(f"item {n}", n, n * 1.5, f"2026-01-{n % 28 + 1:02}") for n in range(2000)])
ROWS = json.dumps([{"id": n, "tags": ["a", f"t{n}"], "at": {"x": n}} for n in range(2000)])


async def found(client: httpx.AsyncClient, handle: str, pattern: str) -> str:
    body = {"name": "tool_output", "arguments": {"handle": handle, "pattern": pattern}}
    answer = await client.post("/tools/call", json=body)
    assert answer.status_code == 200
    return str(answer.json()["text"])


@pytest.mark.parametrize(
    ("text", "pattern", "count"),
    [
        (TUPLES, r"\('item 77', 77, 115\.5", 1),
        (TUPLES, r"'item 1\d', \d+", 10),
        (ROWS, r'"tags": \["a", "t55"\], "at"', 1),
    ],
)
async def test_a_pattern_copied_from_one_long_line_finds_it(
    client: httpx.AsyncClient, text: str, pattern: str, count: int
) -> None:
    answer = await found(client, await keep(client, text), pattern)
    assert "No line matches" not in answer
    assert f"{count} match" in answer.splitlines()[-1]
    shown = re.findall("…(.*)…", answer)
    assert all(piece in text for piece in shown)
    assert sum(len(re.findall(pattern, piece)) for piece in shown) == count
    assert all(len(piece) < 240 + 1000 for piece in shown)


async def test_of_many_matches_the_first_are_shown(client: httpx.AsyncClient) -> None:
    answer = await found(client, await keep(client, TUPLES), r"\('item \d+', \d")
    assert re.search(r"\n\[1,000 or more matches in the text as it is stored.* first", answer)
    assert len(answer) < 6500
    assert len(answer.splitlines()) > 2


async def test_of_larger_data_the_matching_lines_are_counted(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_BYTES", 10_000)
    answer = await found(client, await keep(client, TUPLES), r"\('item 77', 77, 115\.5")
    assert "('item 77', 77, 115.5" in answer
    assert "as it is stored" in answer


async def test_what_neither_has_matches_no_line(client: httpx.AsyncClient) -> None:
    handle = await keep(client, TUPLES)
    assert (await found(client, handle, r"\('item 77', 78")).startswith("No line matches")
    assert "as it is stored" not in await found(client, handle, "'item 77'")
