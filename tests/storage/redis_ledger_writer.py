"""A process that charges the ledger in Redis and reads it from many tasks until it is killed, and says what
was answered."""

import asyncio
import os
import sys
from dataclasses import replace

from samples import TENANT, FakeClock, charge, entry

from domain.accounting import EntryFilter
from domain.handles import SessionKey
from domain.ports import Ledger
from storage import open_ledger


async def write(ledger: Ledger, name: str) -> None:
    number = 0
    while True:
        call_id = f"{name}-{number}"
        key = SessionKey(TENANT, f"run-{number % 3}")
        # An entry's id is its charge's: no two processes may give the same.
        made = replace(entry(key), id=call_id)
        await ledger.settle(charge(1, call_id, key, entry=made, enforce=False, text="x" * 300))
        os.write(1, f"{key.session_id} {call_id}\n".encode())
        number += 1


async def read(ledger: Ledger) -> None:
    while True:
        await ledger.entries(EntryFilter(TENANT, tool_name="none"), 1, None)


async def main(url: str, life: str) -> None:
    ledger = await open_ledger(
        url, clock=FakeClock(), session_retention_seconds=60, entry_retention_seconds=60
    )
    async with asyncio.TaskGroup() as tasks:
        for task in range(8):
            tasks.create_task(write(ledger, f"{life}-{task}"))
        for _ in range(2):
            tasks.create_task(read(ledger))


asyncio.run(main(*sys.argv[1:]))
