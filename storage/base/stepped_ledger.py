"""Ledgers that several processes share. Sessions are changed in steps; the usage of a tenant is up to a
second old."""

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Unpack

from domain.accounting import AccountingEntry
from domain.budget import Reported, ReportWarning, Session, SessionChange
from domain.errors import TenantFull, TooManySessions
from domain.handles import SessionKey
from domain.ports import Call, Charge, Entered, Receipt
from domain.quotas import LedgerUsage, TenantQuota
from domain.results import UsageReport
from storage.base import session_rules
from storage.base.session_rules import LedgerBase, LedgerOptions
from storage.base.steps import SessionState, Step, SteppedSessions

AT_ONCE = 200
"""The most sessions or entries that are deleted at once to make room."""
_PAUSE_MS = 1000
"""The time until the next attempt to make room, after an attempt that deleted nothing."""
_FRESH_SECONDS = 1.0
_STEP_BYTES = 4096
"""An upper bound of the bytes that a step writes, without its texts."""


class SteppedLedger(LedgerBase):
    """All processes together may exceed a tenant's quota by what they write in a second."""

    _sessions: SteppedSessions[Any]

    def __init__(self, **options: Unpack[LedgerOptions]) -> None:
        super().__init__(**options)
        self._usages: dict[str, _TenantUsage] = {}
        self._total = _TotalUsage()

    @abstractmethod
    def _packed_call(self, charge: Charge) -> bytes:
        """The receipt of a named call. Raises InvalidField for a text that is not Unicode."""

    @abstractmethod
    def _packed_text(self, text: str) -> bytes:
        """Raises InvalidField as `_packed_call`."""

    @abstractmethod
    def _check_count(self, number: int) -> None:
        """Raises InvalidField for a number that the server cannot count."""

    @abstractmethod
    async def usage(self) -> dict[str, LedgerUsage]: ...

    @abstractmethod
    async def _usage_of(self, tenant: str) -> LedgerUsage: ...

    @abstractmethod
    async def _roll_up(self, tenant: str, surplus: int) -> int:
        """Deletes the oldest entries of the tenant until `surplus` bytes are free. Returns the bytes that
        were freed."""

    @abstractmethod
    async def _forget_sessions(
        self,
        tenant: str,
        names: Literal["live", "ended"],
        idle_ms: int,
        count: int,
        *,
        only_empty: bool = False,
    ) -> tuple[int, int]:
        """Forgets up to `count` sessions that were not used for `idle_ms`; with `only_empty`, only those that
        stored nothing. Returns how many it forgot, and the earliest last use of the others (0 if there are
        none)."""

    async def enter(self, call: Call) -> Entered:
        state, warning = await self._report(call.key, call.report, call.call_id, is_call=True)
        session = state.session or session_rules.fresh(call.key, self._clock())
        if state.receipt is not None:
            first = state.receipt
            return session_rules.enter_retry(session, call, first.entry, first.fingerprint, first.text)
        return Entered(session, warning=warning)

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        state, warning = await self._report(key, report, None, is_call=False)
        assert state.session is not None
        return Reported(state.session, warning)

    async def _report(
        self, key: SessionKey, report: UsageReport | None, call_id: str | None, *, is_call: bool
    ) -> tuple[SessionState, ReportWarning | None]:
        """Applies a report, unless the call has a receipt."""
        warning: ReportWarning | None = None
        check_room = await self._room(key.tenant)

        def decide(state: SessionState) -> Step | None:
            nonlocal warning
            session = session_rules.alive(state.session or session_rules.fresh(key, self._clock()))
            if state.receipt is not None:
                return None
            if is_call or state.session is None:
                check_room(opens=state.session is None)
            if report is None:
                return None
            after = session_rules.reported(session, report, self._clock())
            warning = after.warning
            return None if after.session is session else Step(after.session)

        state, _ = await self._sessions.change(key, decide, call_id)
        return state, warning

    async def _charge(self, charge: Charge, *, forced: bool) -> Receipt | None:
        self._check_count(charge.tokens)
        entry, text, finding = charge.entry, b"", None
        if charge.call_id is not None:
            text = self._packed_call(charge)
        elif charge.text is not None and charge.kept_as is not None:
            text, finding = self._packed_text(charge.text), f"{charge.epoch}:{charge.kept_as}"
        admitted = session_rules.is_admitted(entry)
        check_room = await self._room(charge.key.tenant, len(text))

        def decide(state: SessionState) -> Step | None:
            if state.receipt is not None:
                return None
            session = session_rules.session_to_charge(state.session, charge)
            check_room(opens=state.session is None, admitted=admitted)
            budget = session.budget(charge.default_window, charge.enforce)
            if not forced and not budget.fits(charge.tokens):
                return None
            used = Step(session_rules.charged(session, charge, self._clock()), entry)
            if finding is not None:
                try:
                    check_room(opens=False)
                except TenantFull:
                    return used
            return used._replace(text=text, finding=finding)

        state, step = await self._sessions.change(charge.key, decide, charge.call_id, charge.epoch)
        if state.session is not None and state.receipt is not None:
            first = state.receipt
            return session_rules.retry_receipt(
                state.session, charge, first.entry, first.fingerprint, first.text
            )
        if step is None:
            return None
        assert state.session is not None
        budget = state.session.budget(charge.default_window, charge.enforce)
        return Receipt(entry, budget, charge.fingerprint, charge.text)

    async def append(self, entry: AccountingEntry) -> None:
        admitted = session_rules.is_admitted(entry)
        check_room = await self._room(entry.tenant)

        def decide(state: SessionState) -> Step:
            check_room(opens=False, admitted=admitted)
            after = state.session and session_rules.used(state.session, self._clock())
            return Step(after, entry)

        key = SessionKey(entry.tenant, entry.session_id)
        await self._sessions.change(key, decide)

    async def session(self, key: SessionKey) -> Session | None:
        return (await self._sessions.read(key)).session

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        check_room = await self._room(key.tenant)

        def decide(state: SessionState) -> Step:
            before = state.session
            if before is None or before.ended_at is not None:
                check_room(opens=True)
            return Step(session_rules.opened(before, key, change, self._clock()))

        state, _ = await self._sessions.change(key, decide)
        assert state.session is not None
        return state.session

    async def end(self, key: SessionKey) -> Session | None:
        def decide(state: SessionState) -> Step | None:
            now = self._clock()
            before = session_rules.fresh(key, now) if state.is_damaged else state.session
            if before is None:
                return None
            after = session_rules.ended(before, now)
            # The default session is emptied; that counts as a use.
            return None if after is before else Step(after, uses=after.ended_at is None, ends=True)

        state, _ = await self._sessions.change(key, decide)
        return state.session

    async def keep_finding(
        self, key: SessionKey, epoch: int, name: str, text: str, *, once: bool = False
    ) -> None:
        packed = self._packed_text(text)
        check_room = await self._room(key.tenant, len(packed))

        def decide(state: SessionState) -> Step | None:
            if state.session is None or not session_rules.keeps(state.session, epoch):
                return None
            check_room(opens=False)
            return Step(state.session, uses=False, text=packed, finding=f"{epoch}:{name}", once=once)

        with suppress(TenantFull):
            await self._sessions.change(key, decide)

    async def _room(self, tenant: str, size: int = 0) -> Callable[..., None]:
        """Returns `check_room` for a tenant who is about to write `size` bytes. If the tenant has quotas,
        reads its usage once a second, and when the writes of this replica since then may have reached a
        quota."""
        await self._total_room(size)
        most = self._quota_of(tenant)
        if not (most.max_sessions or most.ledger_max_bytes):
            return partial(self._check_room, _TenantUsage(), most)
        tally, now = self._usages.setdefault(tenant, _TenantUsage()), time.monotonic()
        used = tally.usage
        if (
            now > tally.counted_at + _FRESH_SECONDS
            or (most.max_sessions and used.sessions + tally.steps >= most.max_sessions)
            or (most.ledger_max_bytes and used.bytes + tally.size >= most.ledger_max_bytes)
        ):
            used = await self._counted(tenant, tally)
        if session_rules.surplus_bytes(used, most) or session_rules.idle_to_delete(used, most):
            used = await self._make_room(tenant, tally, most)
        tally.steps, tally.size = tally.steps + 1, tally.size + 2 * size + _STEP_BYTES
        return partial(self._check_room, tally, most)

    def _check_room(
        self, tally: "_TenantUsage", most: TenantQuota, *, opens: bool, admitted: bool = False
    ) -> None:
        session_rules.check_total(self._total.used, self._max_bytes, admitted=admitted)
        try:
            session_rules.check_room(tally.usage, most, opens=opens, admitted=admitted)
        except (TenantFull, TooManySessions) as error:
            idle_at = tally.first_use and tally.first_use + self._idle_ms
            raise session_rules.with_retry_time(error, idle_at or None, self._clock()) from None

    async def _total_room(self, size: int) -> None:
        """Makes room when all tenants together reach the bound. Counts their bytes if the writes of this
        replica since the last count may have reached it, or are a hundredth of it."""
        total, most = self._total, self._max_bytes
        total.written += size + _STEP_BYTES // 4
        is_near = total.used + total.written >= most or total.written >= most // 100
        if not most or not is_near or self._clock() < total.try_at:
            return
        async with total.making:
            usages = await self.usage()
            total.used, total.written = sum(used.bytes for used in usages.values()), 0
            surplus = session_rules.surplus(total.used, most)
            for tenant in session_rules.largest_first(usages) if surplus else ():
                if freed := await self._free(tenant, surplus):
                    total.used -= freed
                    break
            else:
                # Nothing could be freed: the next attempt is after a pause.
                total.try_at = self._clock() + (_PAUSE_MS if surplus else 0)

    async def _free(self, tenant: str, surplus: int) -> int:
        """Deletes the oldest entries; if there are none, ended and idle sessions. Returns the bytes that were
        freed."""
        if freed := await self._roll_up(tenant, surplus):
            return freed
        before = await self._counted(tenant, _TenantUsage())
        await self._forget_sessions(tenant, "ended", 0, AT_ONCE)
        await self._forget_sessions(tenant, "live", self._idle_ms, AT_ONCE)
        return before.bytes - (await self._counted(tenant, _TenantUsage())).bytes

    async def _make_room(self, tenant: str, tally: "_TenantUsage", most: TenantQuota) -> LedgerUsage:
        """Deletes the oldest entries, then ended sessions, then idle ones, and returns the usage afterwards.
        Concurrent callers wait for the first one. If nothing can be deleted, it tries once a second."""
        async with tally.making:
            used = await self._counted(tenant, tally)
            if self._clock() < tally.try_at:
                return used
            if surplus := session_rules.surplus_bytes(used, most):
                await self._roll_up(tenant, surplus)
                used = await self._counted(tenant, tally)
            if session_rules.surplus_bytes(used, most):
                await self._forget_sessions(tenant, "ended", 0, AT_ONCE)
                used = await self._counted(tenant, tally)
            is_full = session_rules.surplus_bytes(used, most) > 0
            if count := AT_ONCE if is_full else session_rules.idle_to_delete(used, most):
                gone, _ = await self._forget_sessions(tenant, "live", self._idle_ms, count, only_empty=True)
                left, tally.first_use = await self._forget_sessions(
                    tenant, "live", self._idle_ms, count - gone
                )
                used = await self._counted(tenant, tally)
                if not gone + left:
                    tally.try_at = self._clock() + _PAUSE_MS
            return used

    async def _counted(self, tenant: str, tally: "_TenantUsage") -> LedgerUsage:
        used = await self._usage_of(tenant)
        tally.usage, tally.counted_at, tally.steps, tally.size = used, time.monotonic(), 0, 0
        return used


@dataclass(slots=True)
class _TenantUsage:
    """The usage of a tenant at `counted_at`, and upper bounds of what this replica wrote since. `first_use`:
    the earliest last use of its sessions, as of the last time that room was made, 0 if it has none."""

    usage: LedgerUsage = session_rules.NOTHING
    counted_at: float = float("-inf")
    steps: int = 0
    size: int = 0
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    try_at: int = 0
    first_use: int = 0


@dataclass(slots=True)
class _TotalUsage:
    """The bytes of all tenants at the last count, and approximately the bytes that this replica wrote
    since."""

    used: int = 0
    written: int = 1 << 62
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    try_at: int = 0
