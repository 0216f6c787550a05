"""One named call sent twice at once, as after a client's timeout: one result, whatever becomes of either."""

import asyncio
from pathlib import Path

import pytest

from domain.errors import StoreFull
from domain.ports import Charge, Receipt
from tests.conftest import served
from tests.faults.calls import Call, Kept, read_back, text_of

pytestmark = pytest.mark.anyio


async def test_a_twin_that_the_ledger_refuses_does_not_delete_what_the_other_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Call("twins", text_of("twin", 30_000), "call-1")
    async with served(storage_url=f"disk://{tmp_path}/state") as (runtime, client):
        reserve = runtime.ledger.reserve
        both, first = asyncio.Barrier(2), asyncio.Event()

        async def reserve_one(charge: Charge) -> Receipt | None:
            if await both.wait() == 0:
                receipt = await reserve(charge)
                first.set()
                return receipt
            await first.wait()
            raise StoreFull("What every change of a transaction is told when the disk is full.")

        monkeypatch.setattr(runtime.ledger, "reserve", reserve_one)
        answers = await asyncio.gather(call.send(client), call.send(client))
        assert sorted(answer.status_code for answer in answers) == [201, 507]
        kept = next(Kept.of(call, answer) for answer in answers if answer.status_code == 201)
        assert await read_back(client, kept) == []
