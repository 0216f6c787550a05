"""A process that charges a ledger from many tasks until it is killed, and says what was answered."""

import asyncio
import os
import sys

from samples import FakeClock, charge

from domain.ports import Ledger
from storage import open_ledger


async def write(ledger: Ledger, name: str) -> None:
    number = 0
    while True:
        call_id = f"{name}-{number}"
        await ledger.settle(charge(1, call_id, enforce=False, text="x" * 300))
        os.write(1, f"{call_id}\n".encode())
        number += 1


async def main(path: str, life: str) -> None:
    ledger = await open_ledger(
        f"sqlite://{path}", clock=FakeClock(), session_retention_seconds=60, entry_retention_seconds=60
    )
    async with asyncio.TaskGroup() as tasks:
        for task in range(16):
            tasks.create_task(write(ledger, f"{life}-{task}"))


asyncio.run(main(*sys.argv[1:]))
