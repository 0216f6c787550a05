"""The shape of a platform: bodies on S3, the ledger on PostgreSQL, several replicas."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.service_process import PATIENT, Services

pytestmark = pytest.mark.anyio


async def test_replicas_share_results_sessions_and_the_accounting_and_one_that_is_killed_takes_nothing_along(
    services: Services, url: Callable[[int], str], s3_port: int, postgres_url: str, tmp_path: Path
) -> None:
    settings = {"storage_url": url(s3_port), "ledger_url": postgres_url}
    first = await services.start(tmp_path / "first", PATIENT, **settings)
    second = await services.start(tmp_path / "second", PATIENT, **settings)
    calls = [Call("run-1", text_of(f"{number}", 20_000), f"call-{number}") for number in range(8)]
    async with first.client() as client, second.client() as other:
        kept = []
        for number, call in enumerate(calls):
            kept.append(Kept.of(call, await call.send((client, other)[number % 2])))
        first.kill()
        again = [await call.send(other) for call in calls]
        assert [answer.json()["handle"] for answer in again] == [one.handle for one in kept]
        assert [fault for one in kept for fault in await read_back(other, one)] == []
        assert audit.misbooked(kept, await audit.tool_entries(other)) == []
        summary = (await other.get("/accounting/summary")).json()
        assert (summary["complete"], summary["total"]["stored"]) == (True, len(kept))
        assert (await other.delete("/sessions/run-1")).status_code == 204
        assert (await other.get(f"/results/{kept[0].handle}")).status_code == 410
    assert second.failures() == []
