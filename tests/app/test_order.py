"""The latest, last, first and oldest of what has an order."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.conftest import Serve

pytestmark = pytest.mark.anyio

COMMITS = "".join(
    f"commit {n:07x}abc\nAuthor: A <a@b.c>\nDate:   Nov {n:2} 10:00:00 2026 +0000\n\n"
    f"    Change number {n} of parts\n\n"
    for n in range(28, 0, -1)
)
LOG = "".join(
    f"2026-11-20 08:{n // 60:02}:{n % 60:02} {'ERROR' if n % 90 == 50 else 'INFO'} "
    f"request {n} of host-{n % 3}\n"
    for n in range(1500)
)
NUMBERED = "".join(f"{n}. Step {n}: tighten the bolt of the wheel\n" for n in range(1, 200))
TABLE = "date,city,total\n" + "".join(
    f"2026-{n // 28 + 1:02}-{n % 28 + 1:02},Rome,{n * 3}\n" for n in range(300)
)


@pytest.fixture
async def client(serve: Serve) -> AsyncIterator[httpx.AsyncClient]:
    async with serve() as client:
        (await client.put("/sessions/order", json={"policy": {"max_bytes": 1200}})).raise_for_status()
        yield client


async def keep(client: httpx.AsyncClient, text: str) -> str:
    sent = {"session_id": "order", "tool_name": "fetch", "content": text}
    return str((await client.post("/results", json=sent)).json()["handle"])


@pytest.mark.parametrize(
    ("text", "question", "answer"),
    [
        (COMMITS, "What is the latest commit?", "commit 000001cabc"),
        (COMMITS, "What does the oldest commit change?", "Change number 1 of parts"),
        (LOG, "Which was the last ERROR?", "ERROR request 1490 of host-2"),
        (LOG, "Which was the first ERROR?", "ERROR request 50 of host-2"),
        (LOG, "letzter ERROR", "ERROR request 1490 of host-2"),
        (NUMBERED, "What is the last step?", "199. Step 199"),
        (NUMBERED, "What is the first step?", "1. Step 1:"),
        (TABLE, "What was the latest total?", "date | total\n2026-11-20 | 897\n"),
        (TABLE, "What was the oldest total?", "date | total\n2026-01-01 | 0\n"),
    ],
)
async def test_the_best_passage_is_the_one_at_that_end(
    client: httpx.AsyncClient, text: str, question: str, answer: str
) -> None:
    asked = {"handle": await keep(client, text), "extract": question, "mode": "retrieve"}
    body = (await client.post("/extract", json=asked)).json()["body"]
    places = [at for at in range(len(body)) if body.startswith("\n[", at)]
    best = body[: places[1] if len(places) > 1 and not body.startswith("[line") else places[0]]
    assert answer in best
