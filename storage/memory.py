"""The reference: a store and a ledger in this process's memory, gone when the process ends."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Unpack

import msgspec

from domain import accounting
from domain.accounting import (
    DAY_MS,
    AccountingEntry,
    EntryFilter,
    EntryPage,
    EntryType,
    Gap,
    GroupBy,
    Summary,
)
from domain.budget import Reported, Session, SessionChange
from domain.errors import ResultExpired, StoreFull, TenantFull, TooManySessions
from domain.handles import Handle, SessionKey
from domain.ports import Call, Charge, Clock, Draft, Entered, Load, Receipt, SessionPage
from domain.quotas import LedgerUsage, Purged, QuotaOf, unbounded
from domain.results import Durability, StoredResult, UsageReport
from storage.base import cursors, session_rules
from storage.base.newest_sessions import newest_page
from storage.base.quota import Quota
from storage.base.session_rules import LedgerBase, LedgerOptions
from storage.base.summaries import (
    Group,
    GroupedSums,
    Sums,
    first_kept_day,
    group_of,
    matches,
    may_tell_of_gap,
    merged,
    sums_answer,
    sums_of,
)

CHUNK = 1 << 20
_BATCH = 1000
_PURGED_AT_ONCE = 500


@dataclass(slots=True)
class _Body:
    stored: StoredResult
    body: bytes
    used_at: int


class MemoryStore:
    warnings = ("Results are kept in the memory of this process: they end with it.",)
    load = Load()

    def __init__(
        self, *, clock: Clock, retention_seconds: float, max_bytes: int, quota_of: QuotaOf = unbounded
    ) -> None:
        self._clock = clock
        self._retention_ms = int(retention_seconds * 1000)
        self._quota = Quota(max_bytes, quota_of)
        self._sessions: dict[SessionKey, dict[Handle, _Body]] = {}

    @asynccontextmanager
    async def draft(self, tenant: str) -> AsyncIterator[Draft]:
        draft = _MemoryDraft(self, self._quota, tenant)
        try:
            yield draft
        finally:
            draft.drop()

    def keep(self, stored: StoredResult, body: bytes) -> None:
        session = self._sessions.setdefault(stored.key, {})
        before = session.get(stored.handle)
        if before is not None:
            self._quota.give(stored.tenant, len(before.body))
        used_at = stored.stored_at if before is None else max(stored.stored_at, before.used_at)
        session[stored.handle] = _Body(stored, body, used_at)

    def _alive(self, tenant: str, handle: Handle) -> _Body | None:
        result = self._sessions.get(SessionKey(tenant, handle.session_id), {}).get(handle)
        return result if result is not None and not self._has_expired(result) else None

    def _has_expired(self, result: _Body) -> bool:
        return result.used_at + self._retention_ms <= self._clock()

    def _remove(self, tenant: str, handle: Handle) -> None:
        key = SessionKey(tenant, handle.session_id)
        session = self._sessions[key]
        self._quota.give(tenant, len(session.pop(handle).body))
        if not session:
            del self._sessions[key]

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        result = self._alive(tenant, handle)
        if result is None:
            return None
        return replace(result.stored, expires_at=result.used_at + self._retention_ms)

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        result = self._sessions.get(stored.key, {}).get(stored.handle)
        if result is None:
            raise ResultExpired
        body = result.body
        end = len(body) if end is None else min(end, len(body))
        for offset in range(max(0, start), end, CHUNK):
            yield body[offset : min(offset + CHUNK, end)]

    async def touch(self, stored: StoredResult) -> StoredResult:
        result = self._sessions.get(stored.key, {}).get(stored.handle)
        if result is None:
            return stored
        result.used_at = max(result.used_at, self._clock())
        return replace(stored, expires_at=result.used_at + self._retention_ms)

    async def delete(self, tenant: str, handle: Handle) -> bool:
        is_stored = self._alive(tenant, handle) is not None
        if handle in self._sessions.get(SessionKey(tenant, handle.session_id), {}):
            self._remove(tenant, handle)
        return is_stored

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        session = self._sessions.get(key, {})
        handles = [handle for handle, result in session.items() if result.stored.epoch < epoch]
        return sum([await self.delete(key.tenant, handle) for handle in handles])

    async def delete_tenant(self, tenant: str) -> int:
        results = (one for key, session in self._sessions.items() if key.tenant == tenant for one in session)
        batch = list(islice(results, _BATCH))
        for handle in batch:
            self._remove(tenant, handle)
        return len(batch)

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        sessions = [self._sessions.get(key, {}).values() for key in keys]
        return [sum(not self._has_expired(result) for result in session) for session in sessions]

    async def sweep(self) -> int:
        everything = [(key, result) for key, session in self._sessions.items() for result in session.values()]
        expired = [(key, result.stored.handle) for key, result in everything if self._has_expired(result)]
        for key, handle in expired:
            self._remove(key.tenant, handle)
        return len(expired)

    async def stored_bytes(self) -> int:
        return self._quota.used

    async def usage(self) -> dict[str, int]:
        return self._quota.usage()

    async def check(self) -> None:
        self._quota.check()

    async def close(self) -> None:
        self._sessions.clear()


class _MemoryDraft:
    def __init__(self, store: MemoryStore, quota: Quota, tenant: str) -> None:
        self._store = store
        self._quota = quota
        self._tenant = tenant
        self._chunks: list[bytes] = []

    async def write(self, chunk: bytes) -> None:
        self._quota.take(self._tenant, len(chunk))
        self._chunks.append(chunk)

    async def read(self) -> AsyncIterator[bytes]:
        for chunk in list(self._chunks):
            for offset in range(0, len(chunk), CHUNK):
                yield chunk[offset : offset + CHUNK]

    async def publish(self, stored: StoredResult) -> Durability:
        self._store.keep(stored, b"".join(self._chunks))
        self._chunks = []
        return Durability.MEMORY

    def drop(self) -> None:
        self._quota.give(self._tenant, sum(map(len, self._chunks)))
        self._chunks = []


@dataclass(slots=True)
class SessionRecord:
    """A session, the charges of its named calls by epoch and call id, and its findings by name. `stores`: a
    result was stored in it."""

    session: Session
    stores: bool = False
    calls: dict[tuple[int, str], Charge] = field(default_factory=dict)
    findings: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _History:
    """The sums of a tenant's days. Entries up to `deleted` and sums of days up to `forgotten` (Unix ms) are
    not all there."""

    days: dict[int, dict[Group, Sums]] = field(default_factory=dict)
    deleted: int = -1
    forgotten: int = 0

    def add(self, entry: AccountingEntry) -> None:
        groups = self.days.setdefault(entry.timestamp // DAY_MS, {})
        group = group_of(entry)
        if group not in groups and len(groups) >= accounting.MOST_GROUPS_OF_DAY:
            group = merged(group)
        if group in groups:
            groups[group].add(sums_of(entry))
        else:
            groups[group] = sums_of(entry)

    def forget(self, first: int) -> None:
        """Deletes the sums of the days before `first`."""
        for day in [day for day in self.days if day < first]:
            del self.days[day]
            self.forgotten = first * DAY_MS


class MemoryLedger(LedgerBase):
    """No method awaits, so each is atomic."""

    load = Load()
    warnings = ("Sessions and accounting are kept in the memory of this process: they end with it.",)

    def __init__(self, **options: Unpack[LedgerOptions]) -> None:
        super().__init__(**options)
        self._usage: dict[str, LedgerUsage] = {}
        self._sessions: dict[SessionKey, SessionRecord] = {}
        self._entries: dict[int, AccountingEntry] = {}
        self._histories: dict[str, _History] = {}
        self._stored_at: dict[tuple[str, str], int] = {}
        self._seq = 0

    def _save(self, session: Session) -> Session:
        """Raises StoreFull, TooManySessions if the session is a new one and there is no room for it."""
        tenant, record = session.key.tenant, self._sessions.get(session.key)
        before = session_rules.NOTHING if record is None else session_rules.session_usage(record.session)
        after = session_rules.session_usage(session)
        if after.sessions > before.sessions:
            self._check_room(tenant, opens=True)
        if record is None:
            self._sessions[session.key] = SessionRecord(session)
        else:
            record.session = session
        self._count(tenant, after.sessions - before.sessions, after.bytes - before.bytes)
        return session

    def _used(self, tenant: str) -> LedgerUsage:
        return self._usage.get(tenant, session_rules.NOTHING)

    def _count(self, tenant: str, sessions: int, size: int) -> None:
        before = self._used(tenant)
        after = self._usage[tenant] = LedgerUsage(before.sessions + sessions, before.bytes + size)
        if after == session_rules.NOTHING:
            del self._usage[tenant]

    def _check_room(self, tenant: str, *, opens: bool, admitted: bool = False) -> None:
        self._check_total(admitted=admitted)
        quota = self._quota_of(tenant)
        check = partial(session_rules.check_room, quota=quota, opens=opens)
        try:
            check(self._used(tenant))
        except (TenantFull, TooManySessions):
            idle = session_rules.idle_to_delete(self._used(tenant), quota)
            self._make_room(tenant, lambda: session_rules.surplus_bytes(self._used(tenant), quota), idle)
            try:
                check(self._used(tenant), admitted=admitted)
            except (TenantFull, TooManySessions) as error:
                open_ones = (one.session for key, one in self._sessions.items() if key.tenant == tenant)
                used_at = min((one.last_used_at for one in open_ones if one.ended_at is None), default=None)
                idle_at = None if used_at is None else used_at + self._idle_ms
                raise session_rules.with_retry_time(error, idle_at, self._clock()) from None

    def _check_total(self, *, admitted: bool) -> None:
        """Makes room at the bound of all tenants together. Raises StoreFull."""
        for tenant in session_rules.largest_first(self._usage):
            self._make_room(tenant, lambda: session_rules.surplus(self._total, self._max_bytes))
        session_rules.check_total(self._total, self._max_bytes, admitted=admitted)

    @property
    def _total(self) -> int:
        return sum(usage.bytes for usage in self._usage.values())

    def _make_room(self, tenant: str, surplus: Callable[[], int], idle: int = 0) -> None:
        """`surplus`: the bytes that have to go. `idle`: so many idle sessions may go in any case."""
        for seq in [seq for seq, one in self._entries.items() if one.tenant == tenant]:
            if surplus():
                self._drop(seq)
        ended = [key for key, one in self._sessions.items() if one.session.ended_at is not None]
        for key in (key for key in ended if key.tenant == tenant):
            if surplus():
                self._forget(key)
        for place, key in enumerate(self._idle(tenant)):
            if place < idle or surplus():
                self._forget(key)

    def _idle(self, tenant: str) -> list[SessionKey]:
        """The sessions that may leave, in their order."""
        since = self._clock() - self._idle_ms
        idle = [
            (one.stores, one.session.last_used_at, key)
            for key, one in self._sessions.items()
            if key.tenant == tenant and one.session.ended_at is None and one.session.last_used_at <= since
        ]
        return [key for *_, key in sorted(idle)]

    def _drop(self, seq: int) -> None:
        entry = self._entries.pop(seq)
        history = self._histories[entry.tenant]
        history.deleted = max(history.deleted, entry.timestamp)
        self._count(entry.tenant, 0, -_size(entry))

    async def enter(self, call: Call) -> Entered:
        known = self._sessions.get(call.key)
        record = known or SessionRecord(session_rules.fresh(call.key, self._clock()))
        session = session_rules.alive(record.session)
        first = None if call.call_id is None else record.calls.get((session.epoch, call.call_id))
        if first is not None:
            return session_rules.enter_retry(session, call, first.entry, first.fingerprint, first.text)
        self._check_room(call.key.tenant, opens=known is None)
        if call.report is None:
            return Entered(session)
        after = session_rules.reported(session, call.report, self._clock())
        return Entered(self._save(after.session), warning=after.warning)

    async def _charge(self, charge: Charge, *, forced: bool) -> Receipt | None:
        receipt = self._judge(charge, forced=forced)
        if receipt is not None and not receipt.is_retry:
            self._record(charge)
        return receipt

    def _judge(self, charge: Charge, *, forced: bool) -> Receipt | None:
        """What `reserve` or, if `forced`, `settle` returns. Changes nothing."""
        record, entry = self._sessions.get(charge.key), charge.entry
        call = None if charge.call_id is None else (charge.epoch, charge.call_id)
        if record is not None and call in record.calls:
            first = record.calls[call]
            return session_rules.retry_receipt(
                record.session, charge, first.entry, first.fingerprint, first.text
            )
        session = session_rules.admitted(None if record is None else record.session, charge)
        self._check_room(entry.tenant, opens=record is None, admitted=session_rules.is_admitted(entry))
        budget = session.budget(charge.default_window, charge.enforce)
        return session_rules.receipt(budget, charge) if forced or budget.fits(charge.tokens) else None

    def _record(self, charge: Charge) -> None:
        record = self._sessions.get(charge.key)
        session = session_rules.admitted(None if record is None else record.session, charge)
        self._save(session_rules.charged(session, charge, self._clock()))
        if charge.call_id is not None:
            self._sessions[charge.key].calls[charge.epoch, charge.call_id] = charge
            self._count(charge.key.tenant, 0, session_rules.text_bytes(charge.text))
        self._sessions[charge.key].stores |= charge.entry.details.tool_output_handle is not None
        self._append(charge.entry)
        if charge.text is not None and charge.kept_as is not None:
            self._keep(self._sessions[charge.key], charge.kept_as, charge.text)

    async def append(self, entry: AccountingEntry) -> None:
        self._check_room(entry.tenant, opens=False, admitted=session_rules.is_admitted(entry))
        if (record := self._sessions.get(SessionKey(entry.tenant, entry.session_id))) is not None:
            record.session = session_rules.used(record.session, self._clock())
        self._append(entry)

    def _append(self, entry: AccountingEntry) -> None:
        self._seq += 1
        self._entries[self._seq] = entry
        self._histories.setdefault(entry.tenant, _History()).add(entry)
        self._count(entry.tenant, 0, _size(entry))
        handle = entry.details.tool_output_handle
        if handle is not None and entry.type is EntryType.TOOL:
            before = self._stored_at.get((entry.tenant, handle), 0)
            self._stored_at[entry.tenant, handle] = max(entry.timestamp, before)

    async def session(self, key: SessionKey) -> Session | None:
        record = self._sessions.get(key)
        return None if record is None else record.session

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        return self._save(session_rules.opened(await self.session(key), key, change, self._clock()))

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        session = await self.session(key) or session_rules.fresh(key, self._clock())
        after = session_rules.reported(session, report, self._clock())
        self._save(after.session)
        return after

    async def end(self, key: SessionKey) -> Session | None:
        record = self._sessions.get(key)
        if record is None:
            return None
        self._forget_findings(record)
        return self._save(session_rules.ended(record.session, self._clock()))

    async def release(self, key: SessionKey) -> Session | None:
        record = self._sessions.get(key)
        if record is not None and record.session.ended_at is None:
            self._forget(key)
        return None if record is None else record.session

    async def sessions(
        self, tenant: str, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> SessionPage:
        sessions = [one.session for key, one in self._sessions.items() if key.tenant == tenant]
        live = [one for one in sessions if one.ended_at is None]
        if newest_first:
            return newest_page(live, limit, cursor)
        after = "" if cursor is None else cursors.decode("sessions", cursor)
        alive = [one for one in live if one.key.session_id > after]
        alive.sort(key=lambda session: session.key)
        more = len(alive) > limit
        page = alive[:limit]
        return SessionPage(page, cursors.encode("sessions", page[-1].key.session_id) if more else None)

    async def entries(
        self, wanted: EntryFilter, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> EntryPage:
        kind: cursors.Kind = "newest" if newest_first else "entries"
        seq = None if cursor is None else cursors.decode_number(kind, cursor)
        rows = reversed(self._entries.items()) if newest_first else iter(self._entries.items())
        rest = (row for row in rows if seq is None or (row[0] < seq if newest_first else row[0] > seq))
        matching = list(islice((row for row in rest if matches(row[1], wanted)), limit + 1))
        page = matching[:limit]
        more = cursors.encode(kind, str(page[-1][0])) if len(matching) > limit else None
        return EntryPage([entry for _, entry in page], more)

    async def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        sums = GroupedSums(wanted, group_by)
        is_by_day = sums_answer(wanted, group_by)
        summed = set[tuple[str, int]]()
        for tenant in self._histories if wanted.tenant is None else {wanted.tenant} & self._histories.keys():
            history = self._histories[tenant]
            if (wanted.since or 0) < history.forgotten:
                sums.note(Gap.HISTORY, history.forgotten)
            for day, groups in history.days.items():
                if is_by_day and sums.covers(day):
                    summed.add((tenant, day))
                    for group, one in groups.items():
                        sums.add_day(tenant, day, group, msgspec.structs.replace(one))
                elif self._lacks_entries(sums, history, day):
                    sums.note_deleted(groups, history.deleted, self._clock() - self._entry_ms)
        for entry in self._entries.values():
            if (entry.tenant, entry.timestamp // DAY_MS) in summed:
                continue
            if may_tell_of_gap(entry, wanted):
                sums.note_type(entry.type)
            if matches(entry, wanted):
                sums.add_entry(entry)
        return sums.summary()

    def _lacks_entries(self, sums: GroupedSums, history: "_History", day: int) -> bool:
        """Whether entries of the day that are asked for may have been deleted."""
        first = max(sums.wanted.since or 0, day * DAY_MS)
        return sums.reaches(day) and first <= history.deleted

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        return self._stored_at.get((tenant, str(handle)))

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        record = self._sessions.get(key)
        return record.findings.get(name) if record is not None and record.session.epoch == epoch else None

    async def keep_finding(
        self, key: SessionKey, epoch: int, name: str, text: str, *, once: bool = False
    ) -> None:
        record = self._sessions.get(key)
        if record is None or not session_rules.keeps(record.session, epoch):
            return
        if not (once and name in record.findings):
            self._keep(record, name, text)

    def _keep(self, record: SessionRecord, name: str, text: str) -> None:
        tenant = record.session.key.tenant
        with suppress(StoreFull):
            self._check_room(tenant, opens=False)
            before = record.findings.get(name)
            record.findings[name] = text
            self._count(tenant, 0, session_rules.text_bytes(text) - session_rules.text_bytes(before))

    def _forget_findings(self, record: SessionRecord) -> None:
        self._count(
            record.session.key.tenant, 0, -sum(map(session_rules.text_bytes, record.findings.values()))
        )
        record.findings.clear()

    async def sweep(self) -> list[SessionKey]:
        now = self._clock()
        idle_since, oldest = now - self._session_ms, now - self._entry_ms
        for key, session in [(key, record.session) for key, record in self._sessions.items()]:
            idle = session.ended_at is None and session.last_used_at <= idle_since
            if idle or (session.ended_at is not None and session.ended_at <= oldest):
                self._forget(key)
        for seq, entry in list(self._entries.items()):
            if entry.timestamp <= oldest:
                self._drop(seq)
        for history in self._histories.values():
            history.forget(first_kept_day(now, self._entry_ms))
        self._stored_at = {name: at for name, at in self._stored_at.items() if at > oldest}
        return [key for key, record in self._sessions.items() if record.session.ended_at is not None]

    def _forget(self, key: SessionKey) -> None:
        record = self._sessions.pop(key)
        self._forget_findings(record)
        usage = session_rules.session_usage(record.session)
        texts = sum(session_rules.text_bytes(charge.text) for charge in record.calls.values())
        self._count(key.tenant, -usage.sessions, -usage.bytes - texts)

    async def delete_tenant(self, tenant: str) -> Purged:
        sessions = list(islice((key for key in self._sessions if key.tenant == tenant), _PURGED_AT_ONCE))
        for key in sessions:
            self._forget(key)
        mine = ((seq, entry) for seq, entry in self._entries.items() if entry.tenant == tenant)
        entries = list(islice(mine, _PURGED_AT_ONCE))
        for seq, _ in entries:
            self._drop(seq)
        is_done = max(len(sessions), len(entries)) < _PURGED_AT_ONCE
        if is_done:
            self._histories.pop(tenant, None)
            self._stored_at = {name: at for name, at in self._stored_at.items() if name[0] != tenant}
        return Purged(len(sessions), len(entries), is_done)

    async def usage(self) -> dict[str, LedgerUsage]:
        return dict(self._usage)

    async def entry_count(self) -> int:
        return len(self._entries)

    async def check(self) -> None:
        return None

    async def close(self) -> None:
        for tables in (self._sessions, self._entries, self._stored_at, self._usage):
            tables.clear()


def _size(entry: AccountingEntry) -> int:
    return session_rules.entry_bytes(msgspec.json.encode(entry), None)
