"""Pages of entries from a tenant's shards."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from domain.accounting import AccountingEntry, EntryFilter, EntryPage, EntryType, Gap
from domain.handles import SessionKey, is_name
from storage.base import cursors
from storage.base.summaries import GroupedSums, matches, may_tell_of_gap
from storage.redis.connection import RedisConnection
from storage.redis.keys import Shard, shard_of, shards_of
from storage.redis.records import DamagedRecord, decode_entry

_PIECE = 200
"""Number of entries in one read of a shard."""

_START = "0-0"
_CURSOR = re.compile(r"(?:\d{1,2}\.\d{1,15}-\d{1,15})(?:,\d{1,2}\.\d{1,15}-\d{1,15})*")


class RedisEntries:
    """The part of the ledger that reads entries. Pages are in the order of the ids in the streams, which are
    the times of the entries, or a little later."""

    _redis: RedisConnection

    async def entries(
        self, wanted: EntryFilter, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> EntryPage:
        kind: cursors.ListName = "newest" if newest_first else "entries"
        ids = {} if cursor is None else _ids_by_shard(kind, cursor)
        first = min(limit + 1, _PIECE)
        readers = [
            _EntryReader(shard, wanted, end, ids.get(shard.number), newest_first, first)
            for shard, end in await self._ends(wanted, await self._shards(wanted))
        ]
        page: list[AccountingEntry] = []
        while ready := await self._ready(readers):
            if len(page) == limit:
                break
            page.append((max if newest_first else min)(ready, key=_EntryReader.order).take())
        # A reader from the newest entry on has no position until it has taken an entry.
        text = ",".join(f"{reader.shard.number}.{reader.read_id}" for reader in readers if reader.read_id)
        return EntryPage(page, cursors.encode(kind, text) if ready else None)

    async def _add_entries(self, sums: GroupedSums, shard: Shard, wanted: EntryFilter) -> None:
        """Adds the entries of a shard, one piece after the other."""
        for _, end in await self._ends(wanted, [shard]):
            reader = _EntryReader(shard, wanted, end)
            while await self._ready([reader]):
                for _, entry in reader.matching:
                    sums.add_entry(entry)
                reader.matching.clear()
            for type in reader.types:
                sums.note_type(type)
            if reader.is_damaged:
                sums.note(Gap.DAMAGED)

    async def _ready(self, readers: Sequence["_EntryReader"]) -> list["_EntryReader"]:
        """Reads until each has found an entry or reached its end. Returns those that have found one."""
        while empty := [reader for reader in readers if reader.is_empty]:
            pieces = await self._redis.commands([reader.next_piece for reader in empty])
            for reader, items in zip(empty, pieces, strict=True):
                # None: the key of the entries has another type.
                reader.is_damaged |= items is None
                for damaged in reader.look_through(items or []):
                    reader.is_damaged = True
                    where = reader.shard.key("entries")
                    self._redis.notices.warn(f"{where} {damaged}", "is damaged: the entry is left out.")
                # Decoding a piece takes up to 2 ms; other requests run between two pieces.
                await asyncio.sleep(0)
        return [reader for reader in readers if reader.matching]

    async def _shards(self, wanted: EntryFilter) -> list[Shard]:
        """The shards that may have such entries."""
        shards = await self._redis.shards() if wanted.tenant is None else shards_of(wanted.tenant)
        if wanted.session_id is None:
            return shards
        if not is_name(wanted.session_id):
            return []
        return [shard for shard in shards if shard == shard_of(SessionKey(shard.tenant, wanted.session_id))]

    async def _ends(self, wanted: EntryFilter, shards: Sequence[Shard]) -> list[tuple[Shard, str]]:
        """Returns each shard with the last id to read."""
        if wanted.until is None:
            return [(shard, "+") for shard in shards]
        states = [shard.key("state") for shard in shards]
        waits = await self._redis.commands([("HGET", state, "wait") for state in states])
        return [
            (shard, str(wanted.until + self._redis.counter(f"{state} wait", wait)))
            for shard, state, wait in zip(shards, states, waits, strict=True)
        ]


@dataclass(slots=True)
class _EntryReader:
    """Reads the entries of a shard in pieces of `count`, which doubles up to _PIECE. `read_id` is the cursor:
    in the order of reading, every entry up to that id was taken or does not match. "" is the start if the
    newest entries come first. `types`: the types of entries that may report a gap."""

    shard: Shard
    wanted: EntryFilter
    end: str
    read_id: str | None = None
    newest_first: bool = False
    count: int = _PIECE
    matching: list[tuple[str, AccountingEntry]] = field(default_factory=list)
    is_done: bool = False
    is_damaged: bool = False
    types: set[EntryType] = field(default_factory=set)
    read_to: str = ""

    def __post_init__(self) -> None:
        self.read_to = self.read_id = self.read_id or ("" if self.newest_first else _START)

    @property
    def is_empty(self) -> bool:
        return not self.matching and not self.is_done

    def order(self) -> tuple[int, int, int]:
        ms, _, number = self.matching[0][0].partition("-")
        return int(ms), int(number), self.shard.number

    def take(self) -> AccountingEntry:
        self.read_id, entry = self.matching.pop(0)
        return entry

    @property
    def next_piece(self) -> tuple[str | int, ...]:
        since = f"{self.wanted.since or 0}-0"
        if self.newest_first:
            end = f"({self.read_to}" if self.read_to else self.end
            return ("XREVRANGE", self.shard.key("entries"), end, since, "COUNT", self.count)
        start = since if _order(since) > _order(self.read_to) else f"({self.read_to}"
        return ("XRANGE", self.shard.key("entries"), start, self.end, "COUNT", self.count)

    def look_through(self, items: list[tuple[bytes, dict[bytes, bytes]]]) -> list[str]:
        """Returns the ids of the damaged entries."""
        damaged = []
        self.is_done = len(items) < self.count
        self.count = min(2 * self.count, _PIECE)
        for entry_id, item in items:
            try:
                entry = decode_entry(item.get(b"e", b""))
            except DamagedRecord:
                damaged.append(entry_id.decode())
                continue
            if may_tell_of_gap(entry, self.wanted):
                self.types.add(entry.type)
            if matches(entry, self.wanted):
                self.matching.append((entry_id.decode(), entry))
        if items:
            self.read_to = items[-1][0].decode()
            self.read_id = self.read_id if self.matching else self.read_to
        return damaged


def _order(entry_id: str) -> tuple[int, int]:
    ms, _, number = entry_id.partition("-")
    return int(ms), int(number)


def _ids_by_shard(kind: cursors.ListName, cursor: str) -> dict[int, str]:
    """Returns ids by shard. Raises InvalidField for a cursor that `entries` did not return."""
    text = cursors.decode(kind, cursor)
    if not _CURSOR.fullmatch(text):
        raise cursors.foreign()
    pairs = (one.partition(".") for one in text.split(","))
    return {int(number): entry_id for number, _, entry_id in pairs}
