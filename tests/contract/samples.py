"""What the contract suites of both ports put into a store or a ledger."""

import asyncio
import hashlib
import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from domain.accounting import AccountingEntry, EntryDetails, EntryType
from domain.budget import Window
from domain.handles import Handle, SessionKey
from domain.ports import Charge, Ledger, Receipt, ResultStore
from domain.results import Measure, StoredResult
from storage.sealed.keys import StorageKey

START = 1_750_000_000_000
TENANT = "acme"
KEY = SessionKey(TENANT, "run-1")
WINDOW = Window(context_window=1300, buffer_tokens=100, max_output_tokens=200)
LIMIT = 1000
RETENTION = 60
ENTRY_RETENTION = 600
OpenStore = Callable[[], Awaitable[ResultStore]]
OpenLedger = Callable[[], Awaitable[Ledger]]
OpenBounded = Callable[..., Awaitable[Ledger]]
_numbers = itertools.count()


@dataclass
class FakeClock:
    now: int = START

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


class Ring:
    """A KeyRing over these keys; by default over one."""

    warnings = ()

    def __init__(self, *keys: StorageKey) -> None:
        self.in_force = {key.id: key for key in keys or (StorageKey("first", bytes(range(32))),)}


def handle(session_id: str = KEY.session_id) -> Handle:
    return Handle(session_id, str(uuid.uuid4()))


def stored_result(
    body: bytes, at: int, where: Handle | None = None, tenant: str = TENANT, epoch: int = 0
) -> StoredResult:
    return StoredResult(
        tenant=tenant,
        handle=where or handle(),
        tool_name="read_file",
        tool_arguments='{"path": "ü.txt"}',
        tool_kind=None,
        provider="openai",
        is_error=False,
        measure=Measure(len(body), body.count(b"\n") + 1, len(body), len(body) // 4, True),
        sha256=hashlib.sha256(body).hexdigest(),
        stored_at=at,
        expires_at=0,
        epoch=epoch,
    )


async def put(store: ResultStore, body: bytes, at: int, **which: Any) -> StoredResult:
    stored = stored_result(body, at, **which)
    async with store.draft(stored.tenant) as draft:
        for start in range(0, len(body), 65_536):
            await draft.write(body[start : start + 65_536])
        await draft.publish(stored)
    return stored


async def joined(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


def entry(key: SessionKey = KEY, at: int = START, **fields: Any) -> AccountingEntry:
    given = {"type": EntryType.TOOL, "tool_name": "read_file", **fields}
    return AccountingEntry(
        id=f"entry-{next(_numbers)}", timestamp=at, tenant=key.tenant, session_id=key.session_id, **given
    )


def stored_entry(where: Handle, at: int = START) -> AccountingEntry:
    return entry(at=at, details=EntryDetails(tool_output_handle=str(where), bytes=10))


def charge(tokens: int, call_id: str | None = None, key: SessionKey = KEY, **fields: Any) -> Charge:
    given = {"epoch": 0, "enforce": True, "default_window": WINDOW, "entry": entry(key), **fields}
    return Charge(key=key, tokens=tokens, call_id=call_id, **given)


async def race(ledger: Ledger, charges: list[Charge]) -> list[Receipt | None]:
    return await asyncio.gather(*[ledger.reserve(one) for one in charges])
