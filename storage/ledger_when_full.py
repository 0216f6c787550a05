"""Wraps a ledger, and stands in for it while the ledger's disk or server is full.

Passing results and readings are then charged and counted in memory, and changes of sessions are held in
memory. Before the next charge of a session that the ledger accepts, its changes are written, and its tokens
are added to that charge. A sweep appends one entry for each session and day, in place of the missing ones. A
restart before that loses all of it.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from domain.accounting import (
    DAY_MS,
    AccountingEntry,
    EntryDetails,
    EntryFilter,
    EntryType,
    Gap,
    GroupBy,
    Summary,
    Unrecorded,
)
from domain.budget import Reported, Session, SessionChange
from domain.errors import StorageError, StoreFull, TenantFull, TooManySessions
from domain.handles import DEFAULT_SESSION, SessionKey
from domain.ports import Call, Charge, Clock, Entered, Ledger, Receipt
from domain.quotas import Purged
from domain.results import UsageReport
from domain.structs import replace
from domain.wrappers import LedgerAround
from storage.base import session_rules

ChargeCall = Callable[[Charge], Awaitable[Receipt | None]]
MOST_SESSIONS = 10_000
MOST_FINDINGS = 1_000
MOST_FINDING_CHARS = 4_096
"""Longer texts are not held in memory. The two that must not be lost are shorter: the list of readable
sessions and the words of a question."""

log = logging.getLogger("spillgate.storage")

SessionTurn = tuple[int, int | None, int | None]
"""The epoch of a session, its turn and its used tokens. A report that changes them resets `reserved`."""


@dataclass(slots=True)
class _Held:
    """The changes of a session that the ledger has not accepted. `since` is the time of a PUT that may have
    opened the session."""

    since: int
    change: SessionChange | None = None
    report: UsageReport | None = None
    turn: SessionTurn | None = None
    tokens: int = 0

    def shown(self, session: Session | None, key: SessionKey) -> Session | None:
        """Returns the session as it would be if the ledger had accepted all changes."""
        if self.change is not None:
            session = session_rules.opened(session, key, self.change, self.since)
        if session is None or session.ended_at is not None:
            return session
        if self.report is not None:
            session = session.reported(self.report).session
        if self.tokens and self.turn == _turn(session):
            session = replace(session, reserved_tokens=session.reserved_tokens + self.tokens)
        return session


class Pending(NamedTuple):
    """How many results and readings have no entry in the ledger yet, and the times (Unix ms) of the first and
    the last of them."""

    since: int
    until: int
    results: int
    readings: int


class UnrecordedLedger(LedgerAround):
    """`note` is called with each entry that the ledger did not accept. A tenant's quota still refuses
    results; readings go on past it."""

    def __init__(
        self,
        inner: Ledger,
        clock: Clock,
        new_entry_id: Callable[[], str],
        note: Callable[[AccountingEntry], None],
    ) -> None:
        super().__init__(inner)
        self._clock = clock
        self._new_entry_id = new_entry_id
        self._note_entry = note
        self._held: dict[SessionKey, _Held] = {}
        self._findings: dict[tuple[SessionKey, int, str], str] = {}
        self._entries: dict[tuple[SessionKey, int], AccountingEntry] = {}
        """The entries to append, by session and day."""
        self._late: dict[str, AccountingEntry] = {}
        """The entries that the ledger did not accept, by id."""

    def holds(self, key: SessionKey) -> bool:
        """Whether a change of the session is held in memory."""
        held = self._held.get(key)
        return held is not None and held.change is not None

    def pending(self, tenant: str | None = None) -> Pending | None:
        """Returns what waits for one tenant, or for all; None if nothing waits."""
        counts = [
            (count, one.timestamp)
            for one in self._unrecorded()
            if tenant in (None, one.tenant) and (count := one.details.unrecorded) is not None
        ]
        if not counts:
            return None
        return Pending(
            min(count.since for count, _ in counts),
            max(until for _, until in counts),
            sum(count.results for count, _ in counts),
            sum(count.readings for count, _ in counts),
        )

    async def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        found = await self._inner.summary(wanted, *group_by)
        pending = self.pending(wanted.tenant)
        if pending is not None and wanted.touches(pending.since, pending.until):
            found.gaps[Gap.UNRECORDED] = None
        return found

    def cost_usd(self, tenant: str, since: int = 0, session_id: str | None = None) -> float:
        """US dollars of model calls since `since` (Unix ms) whose entries the ledger does not have."""
        return sum(
            one.cost_usd
            for one in self._unrecorded()
            if one.tenant == tenant and one.timestamp >= since and session_id in (None, one.session_id)
        )

    def _unrecorded(self) -> Iterator[AccountingEntry]:
        yield from self._entries.values()
        yield from self._late.values()

    async def session(self, key: SessionKey) -> Session | None:
        session = await self._inner.session(key)
        held = self._held.get(key)
        return session if held is None else held.shown(session, key)

    async def enter(self, call: Call) -> Entered:
        if call.key in self._held:
            await self._restore(call.key)
        try:
            entered = await self._inner.enter(call)
        except TenantFull:
            raise
        except StoreFull:
            if call.report is None:
                raise
            entered = await self._inner.enter(replace(call, report=None))
            entered = replace(entered, warning=entered.session.reported(call.report).warning)
            self._hold(call.key).report = call.report
        held = self._held.get(call.key)
        return entered if held is None else replace(entered, session=held.shown(entered.session, call.key))

    def reserve(self, charge: Charge) -> Coroutine[Any, Any, Receipt | None]:
        return self._charge(charge, forced=False)

    def settle(self, charge: Charge) -> Coroutine[Any, Any, Receipt]:
        return cast(Coroutine[Any, Any, Receipt], self._charge(charge, forced=True))

    async def _charge(self, charge: Charge, *, forced: bool) -> Receipt | None:
        act = self._inner.settle if forced else self._inner.reserve
        try:
            if charge.key not in self._held:
                return await act(charge)
            return await self._charge_with_owed(act, charge)
        except (StoreFull, TooManySessions) as error:
            if not _goes_on(charge, error):
                raise
            return await self._charged(charge, forced=forced)

    async def _charge_with_owed(self, act: ChargeCall, charge: Charge) -> Receipt | None:
        """Raises StoreFull, and then still holds everything."""
        held = self._held[charge.key]
        await self._write(charge.key, held)
        session = await self._inner.session(charge.key)
        turn = None if session is None else _turn(session)
        # Removed before the ledger is called, so that no other charge adds the same tokens.
        owed, held.tokens = held.tokens if held.turn == turn else 0, 0
        receipt = None
        try:
            receipt = await act(replace(charge, tokens=charge.tokens + owed))
        finally:
            if receipt is None or receipt.is_retry:
                held.turn, held.tokens = turn, held.tokens + owed
        if not held.tokens:
            self._held.pop(charge.key, None)
        return receipt

    async def _restore(self, key: SessionKey) -> None:
        """Writes the held changes of a session, without its tokens, if the ledger accepts them."""
        if (held := self._held.get(key)) is not None:
            with suppress(StoreFull, TooManySessions):
                await self._write(key, held)

    async def _write(self, key: SessionKey, held: _Held) -> None:
        """Raises StoreFull, TooManySessions."""
        if held.change is not None:
            await self._inner.put_session(key, held.change)
            held.change = None
        if held.report is not None:
            await self._inner.report(key, held.report)
            held.report = None

    async def _charged(self, charge: Charge, *, forced: bool) -> Receipt | None:
        """Charges in memory."""
        session = session_rules.session_to_charge(await self.session(charge.key), charge)
        budget = session.budget(charge.default_window, charge.enforce)
        if not forced and not budget.fits(charge.tokens):
            return None
        held, turn = self._hold(charge.key), _turn(session)
        held.tokens = (held.tokens if held.turn == turn else 0) + charge.tokens
        held.turn = turn
        self._note(charge.entry)
        return replace(session_rules.receipt(budget, charge), is_recorded=False)

    async def append(self, entry: AccountingEntry) -> None:
        try:
            await self._inner.append(entry)
        except StoreFull:
            self._note(entry)

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        await self._restore(key)
        held = self._held.get(key)
        whole = change if held is None or held.change is None else held.change.then(change)
        try:
            session: Session | None = await self._inner.put_session(key, whole)
        except TenantFull:
            raise
        except StoreFull:
            self._hold(key).change = whole
            session = await self._inner.session(key)
        held = self._held.get(key)
        shown = session if held is None else held.shown(session, key)
        assert shown is not None
        return shown

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        await self._restore(key)
        try:
            return await self._inner.report(key, report)
        except TenantFull:
            raise
        except StoreFull:
            before = session_rules.alive(await self.session(key) or session_rules.fresh(key, self._clock()))
            self._hold(key).report = report
            return before.reported(report)

    async def end(self, key: SessionKey) -> Session | None:
        ended = await self._inner.end(key)
        opened = self._forget(key).shown(None, key)
        return ended if ended is not None or opened is None else session_rules.ended(opened, self._clock())

    async def release(self, key: SessionKey) -> Session | None:
        session = await self._inner.release(key)
        opened = self._forget(key).shown(None, key)
        return opened if session is None else session

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        text = self._findings.get((key, epoch, name))
        return await self._inner.finding(key, epoch, name) if text is None else text

    async def keep_finding(
        self, key: SessionKey, epoch: int, name: str, text: str, *, once: bool = False
    ) -> None:
        place = key, epoch, name
        if not self.holds(key):
            try:
                await self._inner.keep_finding(key, epoch, name, text, once=once)
            except StoreFull:
                pass
            else:
                self._findings.pop(place, None)
                return
        if len(text) > MOST_FINDING_CHARS or (once and await self.finding(*place) is not None):
            return
        self._findings[place] = text
        if len(self._findings) > MOST_FINDINGS:
            del self._findings[next(iter(self._findings))]

    async def delete_tenant(self, tenant: str) -> Purged:
        for key in [one for one in self._held if one.tenant == tenant]:
            self._forget(key)
        for place in [one for one in self._entries if one[0].tenant == tenant]:
            del self._entries[place]
        self._late = {name: one for name, one in self._late.items() if one.tenant != tenant}
        return await self._inner.delete_tenant(tenant)

    async def record(self) -> None:
        """Writes what is held, as far as the ledger accepts it."""
        try:
            for key, held in list(self._held.items()):
                await self._write(key, held)
                if not held.tokens:
                    self._held.pop(key, None)
            for (key, epoch, name), text in list(self._findings.items()):
                await self._inner.keep_finding(key, epoch, name, text)
                self._findings.pop((key, epoch, name), None)
            self._late |= {one.id: one for one in self._entries.values()}
            self._entries.clear()
            for entry_id in list(self._late):
                await self._append_late(self._late.pop(entry_id))
        except (StorageError, TooManySessions) as error:
            log.info("What is held in memory cannot be written yet: %s", error.code)

    async def _append_late(self, entry: AccountingEntry) -> None:
        try:
            await self._inner.append(entry)
        except StorageError:
            self._late[entry.id] = entry
            raise

    def _hold(self, key: SessionKey) -> _Held:
        held = self._held.setdefault(key, _Held(self._clock()))
        if len(self._held) > MOST_SESSIONS:
            del self._held[next(iter(self._held))]
        return held

    def _forget(self, key: SessionKey) -> _Held:
        for place in [one for one in self._findings if one[0] == key]:
            del self._findings[place]
        return self._held.pop(key, None) or _Held(self._clock())

    def _note(self, entry: AccountingEntry) -> None:
        """Adds the entry to the sum of its session and day. Sessions past MOST_SESSIONS count as the default
        session of their tenant."""
        self._note_entry(entry)
        key, day = SessionKey(entry.tenant, entry.session_id), entry.timestamp // DAY_MS
        if (key, day) not in self._entries and len(self._entries) >= MOST_SESSIONS:
            key = SessionKey(entry.tenant, DEFAULT_SESSION)
        sum_of_day = self._entries.get((key, day)) or AccountingEntry(
            id=self._new_entry_id(),
            type=EntryType.UNRECORDED,
            timestamp=entry.timestamp,
            tenant=key.tenant,
            session_id=key.session_id,
            tool_name=EntryType.UNRECORDED,
            details=EntryDetails(unrecorded=Unrecorded(entry.timestamp, 0, 0)),
        )
        self._entries[key, day] = _sum(sum_of_day, entry)


_SUMMED = ("charactersIn", "charactersOut", "tokens_in", "tokens_out", "tokens_saved", "cost_usd")
_SUMMED_DETAILS = ("bytes", "lines", "tokens", "observed_tokens_saved")


def _sum(before: AccountingEntry, entry: AccountingEntry) -> AccountingEntry:
    counted = before.details.unrecorded
    assert counted is not None
    is_result = entry.type is EntryType.TOOL
    unrecorded = Unrecorded(
        min(counted.since, entry.timestamp), counted.results + is_result, counted.readings + (not is_result)
    )
    details = {name: getattr(before.details, name) + getattr(entry.details, name) for name in _SUMMED_DETAILS}
    return replace(
        before,
        timestamp=max(before.timestamp, entry.timestamp),
        details=replace(before.details, unrecorded=unrecorded, **details),
        **{name: getattr(before, name) + getattr(entry, name) for name in _SUMMED},
    )


def _goes_on(charge: Charge, error: StoreFull | TooManySessions) -> bool:
    """Returns whether the charge is made in memory: always for a reading; for a passing result, unless its
    tenant has reached a quota."""
    if charge.entry.type is not EntryType.TOOL:
        return True
    return charge.text is None and not isinstance(error, TenantFull | TooManySessions)


def _turn(session: Session) -> SessionTurn:
    return session.epoch, session.turn, session.used_tokens
