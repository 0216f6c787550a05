"""Sessions and accounting: in Redis; while it is away, what this instance knows, with a journal for Redis."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from domain.accounting import AccountingEntry, EntryFilter, EntryPage, GroupBy, SummaryRow
from domain.budget import Reported, Session, SessionChange, Window
from domain.errors import SpillgateError, StorageError
from domain.handles import Handle, SessionKey
from domain.ports import Charge, Entered, Ledger, LedgerUsage, Receipt, SessionPage
from domain.results import UsageReport
from storage.spool.journal import Appended, Charged, Declared, Journal, Line
from storage.spool.outage import Outage, refuse

_REMEMBERED = 10_000
log = logging.getLogger("spillgate.spool")


class Shared(Ledger, Protocol):
    """The ledger in Redis."""

    async def replay(self, line: Charge | AccountingEntry) -> None:
        """Enters what was taken while it was away, once, and past every bound."""
        ...


class Judge(Ledger, Protocol):
    """A ledger in memory, for as long as an outage lasts."""

    def adopt(self, session: Session) -> None: ...


class SpoolLedger:
    """Owns the ledger and the journal. `judge` makes an empty ledger in memory."""

    def __init__(self, primary: Shared, judge: Callable[[], Judge], journal: Journal, outage: Outage) -> None:
        self._primary = primary
        self._new_judge = judge
        self._judge = judge()
        self._journal = journal
        self._outage = outage
        self._known: OrderedDict[SessionKey, Session] = OrderedDict()
        outage.ends_after(primary.check)
        outage.ends_with(self._replay)

    async def restore(self) -> None:
        """What a process before this one took, and Redis is still to get."""

        async def judge(line: Line) -> None:
            with suppress(SpillgateError):
                if isinstance(line, Charged):
                    await (await self._judging(line.charge.key, line.charge.epoch)).settle(line.charge)
                elif isinstance(line, Declared):
                    await self._judge.put_session(line.key, line.change)

        if await self._journal.each(judge):
            self._outage.watch()

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._primary.warnings

    async def enter(
        self,
        key: SessionKey,
        call_id: str | None,
        report: UsageReport | None,
        default_window: Window,
        enforce: bool,
    ) -> Entered:
        async def shared() -> Entered:
            entered = await self._primary.enter(key, call_id, report, default_window, enforce)
            self._remember(entered.session)
            return entered

        async def spooled() -> Entered:
            entered = await (await self._judging(key)).enter(key, call_id, report, default_window, enforce)
            receipt = entered.receipt and replace(entered.receipt, degraded=True)
            return replace(entered, receipt=receipt)

        return await self._outage.first(shared, spooled)

    async def reserve(self, charge: Charge) -> Receipt | None:
        async def spooled() -> Receipt | None:
            judge = await self._judging(charge.key, charge.epoch)
            return await self._journaled(charge, await judge.reserve(charge))

        return self._charged(charge, await self._outage.first(lambda: self._primary.reserve(charge), spooled))

    async def settle(self, charge: Charge) -> Receipt:
        async def spooled() -> Receipt | None:
            judge = await self._judging(charge.key, charge.epoch)
            return await self._journaled(charge, await judge.settle(charge))

        async def shared() -> Receipt | None:
            return await self._primary.settle(charge)

        receipt = self._charged(charge, await self._outage.first(shared, spooled))
        assert receipt is not None
        return receipt

    async def append(self, entry: AccountingEntry) -> None:
        await self._outage.first(lambda: self._primary.append(entry), lambda: self._write(Appended(entry)))

    async def session(self, key: SessionKey) -> Session | None:
        async def shared() -> Session | None:
            return self._remember(await self._primary.session(key))

        async def spooled() -> Session | None:
            return await (await self._judging(key)).session(key) or await refuse()

        return await self._outage.first(shared, spooled)

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        async def shared() -> Session | None:
            return self._remember(await self._primary.put_session(key, change))

        async def spooled() -> Session | None:
            session = await (await self._judging(key)).put_session(key, change)
            await self._write(Declared(key, change))
            return session

        session = await self._outage.first(shared, spooled)
        assert session is not None
        return session

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        """While Redis is away, for this instance alone: the next report sets it right."""

        async def shared() -> Reported:
            reported = await self._primary.report(key, report)
            self._remember(reported.session)
            return reported

        async def spooled() -> Reported:
            return await (await self._judging(key)).report(key, report)

        return await self._outage.first(shared, spooled)

    async def end(self, key: SessionKey) -> Session | None:
        """This and what follows, to `stored_at`, raise StoreUnavailable while Redis is away."""
        return self._remember(await self._outage.first(lambda: self._primary.end(key), refuse))

    async def sessions(self, tenant: str, limit: int, cursor: str | None) -> SessionPage:
        return await self._outage.first(lambda: self._primary.sessions(tenant, limit, cursor), refuse)

    async def entries(self, wanted: EntryFilter, limit: int, cursor: str | None) -> EntryPage:
        return await self._outage.first(lambda: self._primary.entries(wanted, limit, cursor), refuse)

    async def summary(self, wanted: EntryFilter, group_by: GroupBy) -> list[SummaryRow]:
        return await self._outage.first(lambda: self._primary.summary(wanted, group_by), refuse)

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        return await self._outage.first(lambda: self._primary.stored_at(tenant, handle), refuse)

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        return await self._outage.first(
            lambda: self._primary.finding(key, epoch, name), lambda: self._judge.finding(key, epoch, name)
        )

    async def keep_finding(self, key: SessionKey, epoch: int, name: str, text: str) -> None:
        await self._outage.first(
            lambda: self._primary.keep_finding(key, epoch, name, text),
            lambda: self._judge.keep_finding(key, epoch, name, text),
        )

    async def sweep(self) -> list[SessionKey]:
        return await self._outage.first(self._primary.sweep, self._judge.sweep)

    async def usage(self) -> LedgerUsage:
        return await self._outage.first(self._primary.usage, self._judge.usage)

    async def check(self) -> None:
        await self._outage.first(self._primary.check, self._judge.check)

    async def close(self) -> None:
        await self._outage.close()
        await self._primary.close()
        self._journal.close()

    async def _judging(self, key: SessionKey, epoch: int = 0) -> Judge:
        """With the session as this instance knows it."""
        if await self._judge.session(key) is None:
            known = self._known.get(key)
            if known is not None and known.epoch >= epoch:
                self._judge.adopt(known)
        return self._judge

    async def _journaled(self, charge: Charge, receipt: Receipt | None) -> Receipt | None:
        if receipt is None:
            return None
        if not receipt.replayed:
            await self._write(Charged(charge))
        return replace(receipt, degraded=True)

    async def _write(self, line: Line) -> None:
        await self._journal.write(line)
        # The outage may have ended while it was written.
        self._outage.watch()

    async def _replay(self) -> None:
        await self._journal.replay(self._enter)
        self._judge = self._new_judge()

    async def _enter(self, line: Line) -> None:
        try:
            match line:
                case Declared():
                    await self._primary.put_session(line.key, line.change)
                case Charged():
                    await self._primary.replay(line.charge)
                case Appended():
                    await self._primary.replay(line.entry)
        except StorageError:
            raise
        except SpillgateError as error:
            # Redis would refuse it each time.
            log.error("a line of the spool's journal is refused", extra={"reason": error.detail})

    def _remember(self, session: Session | None) -> Session | None:
        if session is not None:
            self._known[session.key] = session
            self._known.move_to_end(session.key)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return session

    def _charged(self, charge: Charge, receipt: Receipt | None) -> Receipt | None:
        known = self._known.get(charge.key)
        if known is not None and receipt is not None:
            self._remember(replace(known, reserved_tokens=receipt.budget.reserved_tokens))
        return receipt
