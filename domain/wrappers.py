"""A store and a ledger around another one: an operation is the inner one's, unless a subclass defines it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

from domain.accounting import AccountingEntry, EntryFilter, EntryPage, GroupBy, Summary
from domain.budget import Reported, Session, SessionChange
from domain.handles import Handle, SessionKey
from domain.ports import (
    Call,
    Charge,
    Draft,
    Entered,
    Ledger,
    Load,
    LostWrite,
    Receipt,
    ResultStore,
    SessionPage,
)
from domain.quotas import LedgerUsage, Purged
from domain.results import StoredResult, UsageReport


class StoreAround(ResultStore):
    def __init__(self, inner: ResultStore) -> None:
        self._inner = inner

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._inner.warnings

    @property
    def load(self) -> Load:
        return self._inner.load

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()

    def draft(self, tenant: str) -> AbstractAsyncContextManager[Draft]:
        return self._inner.draft(tenant)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        return await self._inner.find(tenant, handle)

    def read(self, stored: StoredResult, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._inner.read(stored, start, end)

    async def touch(self, stored: StoredResult) -> StoredResult:
        return await self._inner.touch(stored)

    async def delete(self, tenant: str, handle: Handle) -> bool:
        return await self._inner.delete(tenant, handle)

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        return await self._inner.delete_session(key, epoch)

    async def delete_tenant(self, tenant: str) -> int:
        return await self._inner.delete_tenant(tenant)

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        return await self._inner.count_results(keys)

    async def sweep(self) -> int:
        return await self._inner.sweep()

    async def stored_bytes(self) -> int:
        return await self._inner.stored_bytes()

    async def usage(self) -> dict[str, int]:
        return await self._inner.usage()


class LedgerAround(Ledger):
    def __init__(self, inner: Ledger) -> None:
        self._inner = inner

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._inner.warnings

    @property
    def load(self) -> Load:
        return self._inner.load

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()

    async def enter(self, call: Call) -> Entered:
        return await self._inner.enter(call)

    async def reserve(self, charge: Charge) -> Receipt | None:
        return await self._inner.reserve(charge)

    async def settle(self, charge: Charge) -> Receipt:
        return await self._inner.settle(charge)

    async def append(self, entry: AccountingEntry) -> None:
        await self._inner.append(entry)

    async def session(self, key: SessionKey) -> Session | None:
        return await self._inner.session(key)

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        return await self._inner.put_session(key, change)

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        return await self._inner.report(key, report)

    async def end(self, key: SessionKey) -> Session | None:
        return await self._inner.end(key)

    async def release(self, key: SessionKey) -> Session | None:
        return await self._inner.release(key)

    async def sessions(
        self, tenant: str, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> SessionPage:
        return await self._inner.sessions(tenant, limit, cursor, newest_first=newest_first)

    async def entries(
        self, wanted: EntryFilter, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> EntryPage:
        return await self._inner.entries(wanted, limit, cursor, newest_first=newest_first)

    async def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        return await self._inner.summary(wanted, *group_by)

    async def lost_writes(self) -> list[LostWrite]:
        return await self._inner.lost_writes()

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        return await self._inner.stored_at(tenant, handle)

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        return await self._inner.finding(key, epoch, name)

    async def keep_finding(
        self, key: SessionKey, epoch: int, name: str, text: str, *, once: bool = False
    ) -> None:
        await self._inner.keep_finding(key, epoch, name, text, once=once)

    async def sweep(self) -> list[SessionKey]:
        return await self._inner.sweep()

    async def delete_tenant(self, tenant: str) -> Purged:
        return await self._inner.delete_tenant(tenant)

    async def usage(self) -> dict[str, LedgerUsage]:
        return await self._inner.usage()

    async def entry_count(self) -> int:
        return await self._inner.entry_count()
