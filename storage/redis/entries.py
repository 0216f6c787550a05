"""Reading the accounting in Redis: pages merged from the shards of a tenant, sums by day and from entries."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from domain.accounting import AccountingEntry, EntryFilter, EntryPage, GroupBy, SummaryRow
from domain.handles import SessionKey, is_name
from storage.base import cursors
from storage.redis.connection import RedisConnection
from storage.redis.keys import Shard, shard_of, shards_of
from storage.redis.rows import (
    DAY_MS,
    Sums,
    decode_entry,
    decode_group,
    decode_sums,
    group_of,
    matches,
    matches_group,
    name_of,
    rows_of,
    sums_of,
)

_PIECE = 200
"""Entries that are read from a shard at a time."""

_START = "0-0"
_PLACES = re.compile(r"(?:\d{1,2}\.\d{1,15}-\d{1,15})(?:,\d{1,2}\.\d{1,15}-\d{1,15})*")


class RedisEntries:
    """A page takes from each shard what is next by id, which is the time of an entry or a little later."""

    def __init__(self, connection: RedisConnection) -> None:
        self._redis = connection

    async def page(self, wanted: EntryFilter, limit: int, cursor: str | None) -> EntryPage:
        places = {} if cursor is None else _places(cursor)
        readers = [
            _Reader(shard, wanted, end, places.get(shard.number)) for shard, end in await self._ends(wanted)
        ]
        page: list[AccountingEntry] = []
        while True:
            await self._fill(readers)
            ready = [reader for reader in readers if reader.found]
            if not ready or len(page) == limit:
                break
            while len(page) < limit and not any(reader.is_empty for reader in readers):
                first = min((reader for reader in ready if reader.found), key=_Reader.order, default=None)
                if first is None:
                    break
                page.append(first.take())
        text = ",".join(f"{reader.shard.number}.{reader.place}" for reader in readers)
        return EntryPage(page, cursors.encode("entries", text) if ready else None)

    async def summary(self, wanted: EntryFilter, group_by: GroupBy) -> list[SummaryRow]:
        found: list[tuple[str | None, Sums]] = []
        if wanted.session_id is not None or group_by is GroupBy.SESSION_ID:
            for shard, end in await self._ends(wanted):
                found += await self._summed(shard, wanted, group_by, end)
            return rows_of(found)
        shards = shards_of(wanted.tenant)
        since, until = wanted.since or 0, wanted.until
        last_day = "+inf" if until is None else str((until - 1) // DAY_MS)
        days = [("ZRANGEBYSCORE", shard.key("days"), since // DAY_MS, last_day) for shard in shards]
        states = [("HMGET", shard.key("state"), "wait", "trimmed") for shard in shards]
        replies = await self._redis.commands([*days, *states])
        whole: list[tuple[Shard, int]] = []
        for shard, listed, (wait, trimmed) in zip(
            shards, replies[: len(shards)], replies[len(shards) :], strict=True
        ):
            for day in map(int, listed):
                begins, ends = day * DAY_MS, (day + 1) * DAY_MS
                if begins < since or (until is not None and until < ends) or int(trimmed or 0) >= begins:
                    part = _within(wanted, begins, ends)
                    upto = str((part.until or ends) + int(wait or 0))
                    found += await self._summed(shard, part, group_by, upto)
                else:
                    whole.append((shard, day))
        kept = await self._redis.commands([("HGETALL", shard.key("day", day)) for shard, day in whole])
        for (_, day), sums in zip(whole, kept, strict=True):
            for packed, row in _pairs(sums):
                group = decode_group(packed)
                if matches_group(group, wanted):
                    found.append((name_of(group, "", day, group_by), decode_sums(row)))
        return rows_of(found)

    async def _summed(
        self, shard: Shard, wanted: EntryFilter, group_by: GroupBy, end: str
    ) -> list[tuple[str | None, Sums]]:
        """From the entries of a shard; a row for each group in each piece that is read."""
        found: dict[str | None, Sums] = {}
        reader = _Reader(shard, wanted, end)
        while not reader.is_done:
            await self._fill([reader])
            for _, entry in reader.found:
                day = entry.timestamp // DAY_MS
                name = name_of(group_of(entry), entry.session_id, day, group_by)
                sums = sums_of(entry)
                found[name] = found[name].plus(sums) if name in found else sums
            reader.found.clear()
        return list(found.items())

    async def _fill(self, readers: Sequence["_Reader"]) -> None:
        """Until each has found something, or is at its end."""
        while empty := [reader for reader in readers if reader.is_empty]:
            pieces = await self._redis.commands([reader.next_piece for reader in empty])
            for reader, items in zip(empty, pieces, strict=True):
                reader.look_through(items)

    async def _ends(self, wanted: EntryFilter) -> list[tuple[Shard, str]]:
        """The shards that may have it, and up to which entry."""
        shards = shards_of(wanted.tenant)
        if wanted.session_id is not None:
            safe = bool(shards) and is_name(wanted.session_id)
            shards = [shard_of(SessionKey(wanted.tenant, wanted.session_id))] if safe else []
        if wanted.until is None:
            return [(shard, "+") for shard in shards]
        waits = await self._redis.commands([("HGET", shard.key("state"), "wait") for shard in shards])
        return [
            (shard, str(wanted.until + int(wait or 0))) for shard, wait in zip(shards, waits, strict=True)
        ]


@dataclass(slots=True)
class _Reader:
    """The entries of one shard, in pieces. All up to `place` are taken or not wanted."""

    shard: Shard
    wanted: EntryFilter
    end: str
    place: str | None = None
    found: list[tuple[str, AccountingEntry]] = field(default_factory=list)
    is_done: bool = False
    read_to: str = ""

    def __post_init__(self) -> None:
        self.read_to = self.place = self.place or _START

    @property
    def is_empty(self) -> bool:
        return not self.found and not self.is_done

    def order(self) -> tuple[int, int, int]:
        ms, _, number = self.found[0][0].partition("-")
        return int(ms), int(number), self.shard.number

    def take(self) -> AccountingEntry:
        self.place, entry = self.found.pop(0)
        return entry

    @property
    def next_piece(self) -> tuple[str | int, ...]:
        since = f"{self.wanted.since or 0}-0"
        start = since if _order(since) > _order(self.read_to) else f"({self.read_to}"
        return ("XRANGE", self.shard.key("entries"), start, self.end, "COUNT", _PIECE)

    def look_through(self, items: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
        self.is_done = len(items) < _PIECE
        for place, fields in items:
            entry = decode_entry(fields[b"e"])
            if matches(entry, self.wanted):
                self.found.append((place.decode(), entry))
        if items:
            self.read_to = items[-1][0].decode()
            self.place = self.place if self.found else self.read_to


def _order(place: str) -> tuple[int, int]:
    ms, _, number = place.partition("-")
    return int(ms), int(number)


def _places(cursor: str) -> dict[int, str]:
    """Raises InvalidField for a cursor that is not ours."""
    text = cursors.decode("entries", cursor)
    if not _PLACES.fullmatch(text):
        raise cursors.foreign()
    pairs = (one.partition(".") for one in text.split(","))
    return {int(number): place for number, _, place in pairs}


def _within(wanted: EntryFilter, begins: int, ends: int) -> EntryFilter:
    since, until = max(wanted.since or 0, begins), min(wanted.until or ends, ends)
    return replace(wanted, since=since, until=until)


def _pairs(reply: Any) -> Iterable[tuple[bytes, bytes]]:
    """Of HGETALL."""
    return reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
