"""Sessions and accounting in Redis; while it is away, in memory and in a journal for Redis."""

import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from domain.accounting import AccountingEntry, EntryFilter, GroupBy, Missing, Summary
from domain.budget import Session, SessionChange
from domain.errors import SpillgateError, StorageError, StoreUnavailable
from domain.handles import SessionKey
from domain.ports import Call, Charge, Entered, Receipt
from domain.quotas import Purged, TenantQuota
from storage.base import session_rules
from storage.base.session_rules import LedgerTimes
from storage.memory import KeptSession, MemoryLedger
from storage.redis.ledger import RedisLedger
from storage.spool.outage import Line, Outage

QUOTA = TenantQuota(ledger_max_bytes=1 << 28)
"""What a tenant may have in memory and in the journal."""

_OF_REDIS = {"sessions", "entries", "stored_at", "entry_count"}
"""What only Redis can answer."""

log = logging.getLogger("spillgate.spool")


class LocalLedger(MemoryLedger):
    """Judges by the sessions that this instance knows. A charge, an entry and a declared session are in the
    journal before they count. Is called by one caller after another."""

    def __init__(self, shared: RedisLedger, outage: Outage, **times: Unpack[LedgerTimes]) -> None:
        super().__init__(quota_of=lambda tenant: QUOTA, **times)
        self._shared = shared
        self._only = outage.only
        self._journal = outage.journal

    def _kept(self, key: SessionKey) -> KeptSession | None:
        known = self._shared.known(key)
        if known is not None and key not in self._sessions:
            self._save(known)
        return super()._kept(key)

    async def end(self, key: SessionKey) -> Session | None:
        """Raises StoreUnavailable if the session is one of this outage: Redis is told of it first."""
        if key in self._sessions:
            raise StoreUnavailable("Redis does not have all of this session yet. Try again in a moment.")
        return await self._only(self._shared.end, key)

    async def enter(self, call: Call) -> Entered:
        entered = await super().enter(call)
        return replace(entered, receipt=_degraded(entered.receipt))

    async def _charge(self, charge: Charge, *, forced: bool) -> Receipt | None:
        receipt = self._judge(charge, forced=forced)
        if receipt is not None and not receipt.replayed:
            await self._note(Line(charge=charge))
        return _degraded(receipt)

    async def append(self, entry: AccountingEntry) -> None:
        self._check_room(entry.tenant, opens=False, admitted=session_rules.is_admitted(entry))
        await self._note(Line(entry=entry))

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        self._check_room(key.tenant, opens=False)
        after = session_rules.opened(await self.session(key), key, change, self._clock())
        await self._note(Line(declared=(key, change, after.epoch)))
        return after

    async def check(self) -> None:
        await self._journal.check()

    async def _note(self, line: Line) -> None:
        await self._journal.write(line)
        await self.take(line)

    async def take(self, line: Line) -> None:
        """Judges by a line of the journal from now on."""
        with suppress(SpillgateError):
            if line.charge is not None:
                self._begin(line.charge.key, line.charge.epoch)
                await super()._charge(line.charge, forced=True)
            elif line.entry is not None:
                await super().append(line.entry)
            elif line.declared is not None:
                key, change, epoch = line.declared
                self._begin(key, epoch)
                await super().put_session(key, change)

    def _begin(self, key: SessionKey, epoch: int) -> None:
        """Opens the session of a line for a process that started after it."""
        if self._kept(key) is None:
            self._save(replace(session_rules.fresh(key, self._clock()), epoch=epoch))


class SpoolLedger:
    """Owns all of them. What is not below is asked of Redis, or in an outage of `local`."""

    def __init__(self, shared: RedisLedger, local: LocalLedger, outage: Outage) -> None:
        self._shared = shared
        self._local = local
        self._outage = outage
        outage.checks.append(shared.check)
        outage.replays.append(self._enter)
        outage.ends.append(local.close)

    def __getattr__(self, name: str) -> Any:
        shared = getattr(self._shared, name)
        if not callable(shared):
            return shared
        if name in _OF_REDIS:
            return lambda *args, **more: self._outage.only(partial(shared, *args, **more))
        # Python calls this method for a name that the object does not have: once for each.
        setattr(self, name, partial(self._outage.first, shared, getattr(self._local, name)))
        return getattr(self, name)

    async def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        """While Redis is away, the sums of what came since. Complete when Redis has all of the journal."""
        found = await self._outage.unless_away(self._shared.summary, self._local.summary, wanted, *group_by)
        if self._outage.why is None:
            return found
        return replace(found, missing=found.missing | {Missing.OUTAGE})

    async def delete_tenant(self, tenant: str) -> Purged:
        """Raises StoreUnavailable while Redis is away, with nothing deleted. Is not done before the replay of
        the journal, which may bring the tenant back."""
        was_replayed = self._outage.why is None
        purged = await self._outage.only(self._shared.delete_tenant, tenant)
        return purged._replace(is_done=purged.is_done and was_replayed)

    async def close(self) -> None:
        await self._shared.close()
        await self._outage.journal.close()

    async def _enter(self, line: Line) -> None:
        """Enters a line of the journal in Redis, once."""
        try:
            if line.declared is not None:
                await self._shared.put_session(*line.declared)
            elif (made := line.charge or line.entry) is not None:
                await self._shared.replay(made)
        except StorageError:
            raise
        except SpillgateError as error:
            # Redis would refuse it every time.
            log.error("a line of the spool's journal is refused", extra={"reason": error.detail})


def _degraded(receipt: Receipt | None) -> Receipt | None:
    return None if receipt is None else replace(receipt, degraded=True)
