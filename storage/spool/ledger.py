"""Sessions and accounting in Redis; while it is away, in memory and in a journal for Redis."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from domain.accounting import AccountingEntry, EntryFilter, GroupBy, Missing, Summary
from domain.budget import Session, SessionChange
from domain.errors import SpillgateError, StorageError
from domain.handles import SessionKey
from domain.ports import Call, Charge, Entered, Receipt
from domain.quotas import Purged, TenantQuota
from storage.base import session_rules
from storage.base.session_rules import LedgerTimes
from storage.memory import KeptSession, MemoryLedger
from storage.redis.ledger import RedisLedger
from storage.spool.journal import Journal, Line
from storage.spool.outage import Outage, refuse

QUOTA = TenantQuota(ledger_max_bytes=1 << 28)
"""What a tenant may have in memory and in the journal."""

_REMEMBERED = 10_000
_REFUSED = {"end", "sessions", "entries", "stored_at", "entry_count"}
"""What only Redis can answer."""

log = logging.getLogger("spillgate.spool")


class LocalLedger(MemoryLedger):
    """Judges by the sessions that this instance knows. A charge, an entry and a declared session are in the
    journal before they count."""

    def __init__(self, journal: Journal, **times: Unpack[LedgerTimes]) -> None:
        super().__init__(quota_of=lambda tenant: QUOTA, **times)
        self._journal = journal
        self._known: dict[SessionKey, Session] = {}
        self._turn = asyncio.Lock()

    def learn(self, answer: object) -> None:
        """Remembers the session of an answer, from this ledger or another."""
        session = getattr(answer, "session", answer)
        if isinstance(answer, Receipt):
            known = self._known.get(SessionKey(answer.entry.tenant, answer.entry.session_id))
            session = known and replace(known, reserved_tokens=answer.budget.reserved_tokens)
        if isinstance(session, Session):
            self._known.pop(session.key, None)
            self._known[session.key] = session
            if len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]

    def forget(self, tenant: str) -> None:
        self._known = {key: session for key, session in self._known.items() if key.tenant != tenant}

    def _kept(self, key: SessionKey) -> KeptSession | None:
        kept, known = super()._kept(key), self._known.get(key)
        # Redis may have ended or emptied the session while the journal was not replayed yet.
        if known is not None and (kept is None or kept.session.first_live_epoch < known.first_live_epoch):
            self._save(known)
        return super()._kept(key)

    async def enter(self, call: Call) -> Entered:
        entered = await super().enter(call)
        return replace(entered, receipt=_degraded(entered.receipt))

    async def _charge(self, charge: Charge, *, forced: bool) -> Receipt | None:
        async with self._turn:
            receipt = self._judge(charge, forced=forced)
            if receipt is not None and not receipt.replayed:
                await self._note(Line(charge=charge))
            return _degraded(receipt)

    async def append(self, entry: AccountingEntry) -> None:
        self._check_room(entry.tenant, opens=False, admitted=session_rules.is_admitted(entry))
        await self._note(Line(entry=entry))

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        self._check_room(key.tenant, opens=False)
        await self._journal.write(Line(declared=(key, change, self._clock())))
        return await super().put_session(key, change)

    async def _note(self, line: Line) -> None:
        await self._journal.write(line)
        await self.take(line)

    async def take(self, line: Line) -> None:
        """Judges by a line of the journal from now on."""
        with suppress(SpillgateError):
            if line.charge is not None:
                fresh = session_rules.fresh(line.charge.key, line.charge.entry.timestamp)
                self._known.setdefault(fresh.key, replace(fresh, epoch=line.charge.epoch))
                await super()._charge(line.charge, forced=True)
            elif line.entry is not None:
                await super().append(line.entry)
            elif line.declared is not None:
                await super().put_session(*line.declared[:2])


class SpoolLedger:
    """Owns all of them. What is not below is asked of Redis; while it is away, of `local`, or refused."""

    def __init__(self, shared: RedisLedger, local: LocalLedger, journal: Journal, outage: Outage) -> None:
        self._shared = shared
        self._local = local
        self._journal = journal
        self._outage = outage
        outage.steps += [shared.check, self._replay]

    def __getattr__(self, name: str) -> Any:
        shared = getattr(self._shared, name)
        if not callable(shared):
            return shared
        local = refuse if name in _REFUSED else getattr(self._local, name)

        async def ask(*args: Any, **more: Any) -> Any:
            answer = await self._outage.first(partial(shared, **more) if more else shared, local, *args)
            self._local.learn(answer)
            return answer

        # Python calls this method for a name that the object does not have: once for each.
        setattr(self, name, ask)
        return ask

    async def restore(self) -> None:
        """Reads what an earlier process left in the journal."""
        if await self._journal.each(self._local.take):
            self._outage.due.set()

    async def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        """While Redis is away, the sums of what came since. Complete when the journal is replayed."""
        found = await self._outage.first(self._shared.summary, self._local.summary, wanted, *group_by)
        if self._outage.why is None and self._journal.size == 0:
            return found
        return replace(found, missing=found.missing | {Missing.OUTAGE})

    async def delete_tenant(self, tenant: str) -> Purged:
        """Raises StoreUnavailable while Redis is away, with nothing deleted. Is not done before the replay of
        the journal, which may bring the tenant back."""
        was_replayed = self._journal.size == 0
        purged = await self._outage.first(self._shared.delete_tenant, refuse, tenant)
        self._local.forget(tenant)
        return purged._replace(is_done=purged.is_done and was_replayed)

    async def check(self) -> None:
        await self._outage.first(self._shared.check, self._journal.check)

    async def close(self) -> None:
        await self._shared.close()
        await self._journal.close()

    async def _replay(self) -> None:
        """After a crash or an error, lines are entered again."""
        size = 0
        while not await self._journal.empty(size := await self._journal.each(self._enter, size)):
            pass
        # Redis judges by it from now on.
        await self._local.close()

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
