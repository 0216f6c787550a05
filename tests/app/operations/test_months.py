"""The costs of a month, asked for on the third of the next, when entries are kept for a week."""

import csv
import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.runtime import Runtime
from app.sweeper import sweep
from domain.accounting import AccountingEntry, EntryType
from tests.conftest import StillClock, served

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000
FROM, UNTIL = "2025-11-01", "2025-12-01"
COSTS = {"group_by": "day,model", "since": FROM, "until": UNTIL}
Calls = tuple[Runtime, httpx.AsyncClient]


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def call(day: int, now: int) -> AccountingEntry:
    """A call of a model that costs a cent for each day since the first."""
    return AccountingEntry(
        id=f"entry-{day}",
        type=EntryType.LLM,
        timestamp=now,
        tenant="default",
        session_id=f"run-{day % 7}",
        tool_name="execute_shell",
        model="small",
        cost_usd=day / 100,
    )


@pytest.fixture(params=["disk", "redis"])
async def third_of_the_month(
    request: pytest.FixtureRequest, tmp_path: Path, clock: StillClock, redis_time: None
) -> AsyncIterator[httpx.AsyncClient]:
    """A service with a call on each day since the 28th of October, each with a sweep. Now it is December."""
    url = f"disk://{tmp_path}" if request.param == "disk" else request.getfixturevalue("redis_url")
    async with served(clock, storage_url=url, ledger_retention_seconds=7 * 86_400) as (runtime, client):
        for day in range(37):
            clock.now = at("2025-10-28T09:30") + day * DAY_MS
            await runtime.ledger.append(call(day, clock.now))
            await client.post("/results", json={"tool_name": "grep", "content": "x", "session_id": "one"})
            await sweep(runtime, left_behind=False)
        assert clock.now == at("2025-12-03T09:30")
        yield client


async def summary(client: httpx.AsyncClient, **asked: str) -> Any:
    answer = await client.get("/accounting/summary", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_costs_of_the_month_before_are_complete(third_of_the_month: httpx.AsyncClient) -> None:
    client = third_of_the_month
    kept = (await client.get("/accounting/entries", params={"type": "llm"})).json()["entries"]
    assert len(kept) == 7
    found = await summary(client, type="llm", **COSTS)
    assert (found["complete"], found["warnings"]) == (True, [])
    assert {row["groups"]["day"]: row["cost_usd"] for row in found["rows"]} == {
        f"2025-11-{day:02}": pytest.approx((day + 3) / 100) for day in range(1, 31)
    }
    assert (await summary(client, group_by="tool_name", since=FROM, until=UNTIL))["total"]["entries"] == 60
    whole = await summary(client, group_by="month")
    assert {row["group"]: row["entries"] for row in whole["rows"]} == {
        "2025-10": 8,
        "2025-11": 60,
        "2025-12": 6,
    }
    assert whole["complete"]


async def test_what_the_sums_of_days_cannot_tell_is_said_to_be_missing(
    third_of_the_month: httpx.AsyncClient,
) -> None:
    client = third_of_the_month
    for asked in (
        {"group_by": "session_id", "since": FROM},
        {"group_by": "type", "since": FROM, "session_id": "one"},
        {"group_by": "type", "since": "2025-11-01T12:00", "until": UNTIL},
        {"group_by": "hour", "since": "2025-11-20", "until": "2025-11-27"},
    ):
        found = await summary(client, **asked)
        assert not found["complete"], asked
        (warning,) = found["warnings"]
        assert warning.startswith(
            "Entries up to 2025-11-26T09:30:00Z are past their retention "
            "(SPILLGATE_LEDGER_RETENTION_SECONDS)."
        )
        lines = await client.get("/accounting/summary", params={**asked, "format": "csv"})
        assert {(row["complete"], row["warnings"]) for row in csv.DictReader(io.StringIO(lines.text))} <= {
            ("false", warning)
        }
        later = await summary(
            client, **{**asked, "since": "2025-11-26T09:30:00.001", "until": "2025-12-03T12:00"}
        )
        assert (later["complete"], later["warnings"]) == (True, []), asked
