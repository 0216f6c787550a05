"""Redis first; while it is away, a local ledger that knows what it was told since, and each declared session.

What the spool booked stays there until its retention ends. Only what was declared is carried back: a
session's budget is counted apart in each of the two.
"""

from contextlib import suppress
from dataclasses import replace

from domain.accounting import AccountingEntry, EntryFilter, EntryPage, GroupBy, SummaryRow
from domain.budget import Reported, Session, SessionChange, Window
from domain.errors import InvalidField, SessionEnded, StorageError, StoreFull
from domain.handles import Handle, SessionKey
from domain.ports import Charge, Entered, Ledger, LedgerUsage, Receipt, SessionPage
from domain.results import UsageReport
from storage import cursors
from storage.fallback_entries import FallbackEntries, merged_sums
from storage.outage import Outage, away


class FallbackLedger:
    """Owns both. A time-out leaves it open whether Redis has booked a line: then both may have it."""

    def __init__(self, primary: Ledger, spool: Ledger, outage: Outage) -> None:
        self._primary = primary
        self._spool = spool
        self._outage = outage
        self._entries = FallbackEntries(primary, spool, outage)
        self._owed: dict[SessionKey, SessionChange] = {}
        outage.ends_after(primary.check)
        outage.ends_with(self._pay)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._primary.warnings

    async def enter(
        self,
        key: SessionKey,
        call_id: str | None,
        report: UsageReport | None,
        fallback: Window,
        required: bool,
    ) -> Entered:
        """While Redis is away, a call that was settled there is not known."""

        async def spooled() -> Entered:
            return _degraded(await self._spool.enter(key, call_id, report, fallback, required))

        async def first() -> Entered:
            await self._declare(key)
            entered = await self._primary.enter(key, call_id, report, fallback, required)
            if call_id is None or entered.receipt is not None:
                return entered
            with suppress(SessionEnded):
                before = await self._spool.enter(key, call_id, None, fallback, required)
                return replace(entered, receipt=_degraded(before).receipt)
            return entered

        return await self._outage.first(first, spooled)

    async def reserve(self, charge: Charge) -> Receipt | None:
        async def spooled() -> Receipt | None:
            receipt = await self._spool.reserve(await self._at_home(charge))
            return None if receipt is None else replace(receipt, degraded=True)

        return await self._outage.first(lambda: self._primary.reserve(charge), spooled)

    async def settle(self, charge: Charge) -> Receipt:
        async def spooled() -> Receipt:
            return replace(await self._spool.settle(await self._at_home(charge)), degraded=True)

        return await self._outage.first(lambda: self._primary.settle(charge), spooled)

    async def append(self, entry: AccountingEntry) -> None:
        await self._outage.first(lambda: self._primary.append(entry), lambda: self._spool.append(entry))

    async def session(self, key: SessionKey) -> Session | None:
        """Of the spool alone while Redis is away: None says nothing then."""
        found = await self._outage.first(lambda: self._primary.session(key), _nothing)
        return await self._spool.session(key) if found is None else found

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        """In both, so that what was declared holds while Redis is away; what is declared then holds later."""

        async def first() -> Session:
            await self._declare(key)
            session = await self._primary.put_session(key, change)
            with suppress(StorageError):
                await self._spool.put_session(key, change)
            return session

        async def spooled() -> Session:
            # At once: the outage may end while the spool writes.
            self._owed[key] = change.over(self._owed.get(key))
            return await self._spool.put_session(key, change)

        return await self._outage.first(first, spooled)

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        async def first() -> Reported:
            await self._declare(key)
            return await self._primary.report(key, report)

        return await self._outage.first(first, lambda: self._spool.report(key, report))

    async def end(self, key: SessionKey) -> Session | None:
        """In both. Raises StoreUnavailable while Redis is away, with nothing ended."""

        async def first() -> Session | None:
            ended = await self._primary.end(key)
            if ended is None:
                if await self._spool.session(key) is None:
                    return None
                ended = await _ended(self._primary, key)
            with suppress(StorageError):
                await _ended(self._spool, key)
            return ended

        async def refuse() -> Session | None:
            raise away()

        return await self._outage.first(first, refuse)

    async def sessions(self, tenant: str, limit: int, cursor: str | None) -> SessionPage:
        """Of the spool alone while Redis is away."""

        async def none() -> SessionPage:
            return SessionPage([], None)

        pages = (
            await self._outage.first(lambda: self._primary.sessions(tenant, limit, cursor), none),
            await self._spool.sessions(tenant, limit, cursor),
        )
        # Redis last: what both have is shown as it is there.
        by_id = {session.key: session for page in reversed(pages) for session in page.sessions}
        found = [by_id[key] for key in sorted(by_id)]
        page, more = found[:limit], len(found) > limit or any(page.next_cursor for page in pages)
        return SessionPage(page, cursors.encode("sessions", page[-1].key.session_id) if more else None)

    async def entries(self, wanted: EntryFilter, limit: int, cursor: str | None) -> EntryPage:
        return await self._entries.page(wanted, limit, cursor)

    async def summary(self, wanted: EntryFilter, group_by: GroupBy) -> list[SummaryRow]:
        """Of the spool alone while Redis is away."""

        async def none() -> list[SummaryRow]:
            return []

        rows = await self._outage.first(lambda: self._primary.summary(wanted, group_by), none)
        return merged_sums([*rows, *await self._spool.summary(wanted, group_by)])

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        found = await self._outage.first(lambda: self._primary.stored_at(tenant, handle), _nothing)
        return await self._spool.stored_at(tenant, handle) if found is None else found

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        return await self._outage.first(
            lambda: self._primary.finding(key, epoch, name), lambda: self._spool.finding(key, epoch, name)
        )

    async def keep_finding(self, key: SessionKey, epoch: int, name: str, text: str) -> None:
        await self._outage.first(
            lambda: self._primary.keep_finding(key, epoch, name, text),
            lambda: self._spool.keep_finding(key, epoch, name, text),
        )

    async def sweep(self) -> list[SessionKey]:
        """The spool alone while Redis is away."""

        async def none() -> list[SessionKey]:
            return []

        ended = await self._outage.first(self._primary.sweep, none)
        return list(dict.fromkeys([*ended, *await self._spool.sweep()]))

    async def usage(self) -> LedgerUsage:
        return await self._spool.usage()

    async def check(self) -> None:
        """Of whichever is in use."""
        await self._outage.first(self._primary.check, self._spool.check)

    async def close(self) -> None:
        await self._outage.close()
        await self._primary.close()
        await self._spool.close()

    async def _pay(self) -> bool:
        """Declares in Redis what was declared while it was away. What a full one does not take must not keep
        the rest from those who read and delete: it is declared before its session's next call."""
        if not self._owed:
            return False
        try:
            await self._declare(next(iter(self._owed)))
        except StoreFull:
            return False
        return True

    async def _declare(self, key: SessionKey) -> None:
        change = self._owed.get(key)
        if change is None:
            return
        with suppress(InvalidField):
            await self._primary.put_session(key, change)
        if self._owed.get(key) is change:
            del self._owed[key]

    async def _at_home(self, charge: Charge) -> Charge:
        """A call may have entered its session in Redis, whose epoch the spool does not know."""
        session = await self._spool.session(charge.key)
        return replace(charge, epoch=0 if session is None else session.epoch)


async def _nothing() -> None:
    return None


async def _ended(ledger: Ledger, key: SessionKey) -> Session | None:
    """Opened first where it is unknown: what does not know it would let it go on."""
    if await ledger.session(key) is None:
        await ledger.put_session(key, SessionChange(frozenset()))
    return await ledger.end(key)


def _degraded(entered: Entered) -> Entered:
    if entered.receipt is None:
        return entered
    return replace(entered, receipt=replace(entered.receipt, degraded=True))
