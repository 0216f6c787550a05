"""Sums of days in Redis, and summaries.

Each shard sums up the entries of a day in a hash. Once all entries of the day are deleted, nothing is added
to the hash any more: then the sums of all shards of the tenant are packed into one record of a twentieth of
the size.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from domain import accounting
from domain.accounting import DAY_MS, HISTORY_DAYS, EntryFilter, Gap, GroupBy, Summary
from domain.ports import Clock
from storage.base.summaries import MERGED, Group, GroupedSums, Sums, merged, sums_answer
from storage.redis.entries import RedisEntries
from storage.redis.keys import Shard, shards_of
from storage.redis.records import (
    DamagedRecord,
    DayRecord,
    decode_group,
    decode_sums,
    pack_day,
    unpack_day,
)
from storage.redis.sessions import RedisSessions

_TENANTS_AT_ONCE = 10
"""Number of tenants whose sums are in memory at the same time."""

_HOUR_MS = 3_600_000

ShardDay = tuple[Shard, int]


class RedisHistory(RedisEntries):
    """The part of the ledger that keeps sums of days, and makes summaries."""

    _clock: Clock
    _entry_ms: int
    _sessions: RedisSessions
    _forgotten_hour = -1

    async def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        sums, is_by_day = GroupedSums(wanted, group_by), sums_answer(wanted, group_by)
        tenants = dict[str, list[Shard]]()
        for shard in await self._shards(wanted):
            tenants.setdefault(shard.tenant, []).append(shard)
        waiting = list(tenants.values())
        for start in range(0, len(waiting), _TENANTS_AT_ONCE):
            some = waiting[start : start + _TENANTS_AT_ONCE]
            await asyncio.gather(*[self._add_tenant(sums, shards, is_by_day=is_by_day) for shards in some])
        return sums.summary()

    async def _add_tenant(self, sums: GroupedSums, shards: Sequence[Shard], *, is_by_day: bool) -> None:
        await self._note_lost(sums, shards)
        deleted = await self._deleted(shards)
        days = await self._days(sums.wanted, shards)
        lacking = {one for one in days if _since(sums.wanted, one[1]) <= deleted[one[0]]}
        whole = {one for one in days if is_by_day and sums.covers(one[1])}
        records = await self._records([one for one in days if one in whole or one in lacking], deleted)
        # Read after the hashes, because a hash is deleted once it is packed.
        packed = await self._add_earlier(sums, shards[0].tenant, max(deleted.values()), is_by_day=is_by_day)
        answered = {one for one in days if one[1] in packed}
        for one, record in records.items():
            # As long as no entry is missing, the entries answer in place of damaged sums.
            if one in answered or (record.is_damaged and one not in lacking):
                continue
            shard, day = one
            self._add_record(sums, shard.tenant, day, record, is_whole=one in whole)
            if one in whole:
                answered.add(one)
        parts = [(shard, sums.wanted) for shard in shards]
        if is_by_day:
            parts = [(one[0], _part(sums.wanted, one[1])) for one in days if one not in answered]
        for shard, part in parts:
            await self._add_entries(sums, shard, part)

    async def _note_lost(self, sums: GroupedSums, shards: Sequence[Shard]) -> None:
        """Notes a gap if Redis has lost entries and no entry reports that yet."""
        await self._sessions.compare(shards)
        for write in self._sessions.acknowledged.lost():
            if write.key.tenant == shards[0].tenant and sums.reaches(write.at // DAY_MS):
                sums.note(Gap.LOST)

    async def _deleted(self, shards: Sequence[Shard]) -> dict[Shard, int]:
        """Returns up to which time (Unix ms) entries of each shard are missing."""
        states = [shard.key("state") for shard in shards]
        replies = await self._redis.commands([("HGET", state, "deleted") for state in states])
        return {
            shard: self._redis.counter(f"{state} deleted", reply)
            for shard, state, reply in zip(shards, states, replies, strict=True)
        }

    async def _days(self, wanted: EntryFilter, shards: Sequence[Shard]) -> list[ShardDay]:
        """Returns the days that have sums and that the filter selects from."""
        first, last = (wanted.since or 0) // DAY_MS, "+inf"
        if wanted.until is not None:
            last = str((wanted.until - 1) // DAY_MS)
        listed = await self._redis.commands(
            [("ZRANGEBYSCORE", shard.key("days"), first, last) for shard in shards]
        )
        return [(shard, int(day)) for shard, days in zip(shards, listed, strict=True) for day in days or ()]

    async def _records(
        self, days: Sequence[ShardDay], deleted: Mapping[Shard, int]
    ) -> dict[ShardDay, DayRecord]:
        """The sums of days of shards."""
        hashes = await self._redis.commands([("HGETALL", shard.key("day", day)) for shard, day in days])
        return {
            one: self._record(one[0].key("day", one[1]), deleted[one[0]], reply)
            for one, reply in zip(days, hashes, strict=True)
        }

    def _record(self, where: str, deleted: int, reply: Any) -> DayRecord:
        """`reply` is that to HGETALL: None if the key is no hash."""
        record = DayRecord(deleted, reply is None, [])
        for packed, row in _pairs(reply or {}):
            try:
                record.sums.append((decode_group(packed), decode_sums(row)))
            except DamagedRecord:
                record.is_damaged = True
        if record.is_damaged:
            self._redis.notices.warn(where, "is damaged: sums of its day are left out.")
        return record

    async def _add_earlier(
        self, sums: GroupedSums, tenant: str, deleted: int, *, is_by_day: bool
    ) -> set[int]:
        """Adds the packed sums. Returns the days that have some. `deleted`: up to which time (Unix ms)
        entries of the shards are missing."""
        key = shards_of(tenant)[0].key("earlier")
        known = await self._redis.command("HKEYS", key) or []
        days = sorted(int(day) for day in known if day.isdigit() and sums.reaches(int(day)))
        forgotten, *records = await self._redis.command("HMGET", key, "forgotten", *days) or [None]
        if (sums.wanted.since or 0) < (until := self._redis.counter(f"{key} forgotten", forgotten)):
            sums.note(Gap.HISTORY, until)
        for day, packed in zip(days, records, strict=False):
            try:
                record = unpack_day(packed or b"")
            except DamagedRecord:
                self._redis.notices.warn(f"{key} {day}", "is damaged: the sums of that day are left out.")
                record = DayRecord(0, True, [])
            record.deleted = max(record.deleted, deleted)
            self._add_record(sums, tenant, day, record, is_whole=is_by_day and sums.covers(day))
            # Adding a record takes up to 5 ms; other requests run between two records.
            await asyncio.sleep(0)
        return set(days)

    def _add_record(
        self, sums: GroupedSums, tenant: str, day: int, record: DayRecord, *, is_whole: bool
    ) -> None:
        """`is_whole`: the sums are used. Otherwise only entries could answer, and some are missing: notes a
        gap."""
        if record.is_damaged:
            sums.note(Gap.DAMAGED)
        if is_whole:
            for group, row in record.sums:
                sums.add_day(tenant, day, group, row)
        else:
            groups = (group for group, _ in record.sums)
            sums.note_deleted(groups, record.deleted, self._clock() - self._entry_ms)

    async def _pack_days(self, tenant: str, days: Sequence[int]) -> None:
        """Packs the sums of days to which nothing is added any more. Replicas may do that at the same time:
        the first record stays, and hashes are deleted after it is there."""
        shards = shards_of(tenant)
        key, deleted = shards[0].key("earlier"), await self._deleted(shards)
        for day in days:
            records = await self._records([(shard, day) for shard in shards], deleted)
            await self._redis.command("HSETNX", key, day, pack_day(_added_up(records.values())))
        names = ("state", "sizes", "entries", "days", "live", "ended")
        for shard in shards:
            await self._redis.script("packed", [shard.key(name) for name in names], (shard.key(""), *days))

    async def _forget_days(self, tenants: Iterable[str]) -> None:
        """Deletes sums of days that are too old, once an hour."""
        if (hour := self._clock() // _HOUR_MS) == self._forgotten_hour:
            return
        kept = max(HISTORY_DAYS * DAY_MS, self._entry_ms)
        for tenant in tenants:
            key = shards_of(tenant)[0].key("earlier")
            await self._redis.script("forget", [key], (kept, self._clock()))
        self._forgotten_hour = hour


def _added_up(records: Collection[DayRecord]) -> DayRecord:
    """The sums of all shards. If there are too many groups, those with the most entries are kept apart."""
    added, told = dict[Group, Sums](), dict[Group, Sums]()
    for group, row in (one for record in records for one in record.sums):
        _add(added, group, row)
    by_size = sorted(added.items(), key=lambda one: (MERGED in one[0], -one[1].entries))
    for place, (group, row) in enumerate(by_size):
        _add(told, group if place < accounting.MOST_GROUPS_OF_DAY else merged(group), row)
    deleted = max(record.deleted for record in records)
    return DayRecord(deleted, any(record.is_damaged for record in records), list(told.items()))


def _add(added: dict[Group, Sums], group: Group, row: Sums) -> None:
    if group in added:
        added[group].add(row)
    else:
        added[group] = row


def _since(wanted: EntryFilter, day: int) -> int:
    """The first time (Unix ms) of the day that is asked for."""
    return max(wanted.since or 0, day * DAY_MS)


def _part(wanted: EntryFilter, day: int) -> EntryFilter:
    ends = (day + 1) * DAY_MS
    return replace(wanted, since=_since(wanted, day), until=min(wanted.until or ends, ends))


def _pairs(reply: Any) -> Iterable[tuple[bytes, bytes]]:
    """The fields and values of a reply to HGETALL."""
    return reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
