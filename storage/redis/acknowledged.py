"""Entries that Redis acknowledged and then lost, in a failover or a restart."""

import time
from typing import NamedTuple

from domain.handles import SessionKey
from domain.ports import LostWrite
from storage.redis.keys import Shard

WRITER_MS = 3_600_000
"""How long Redis keeps the number of entries that a process wrote to a shard, counted from the last entry."""

_KNOWN_SECONDS = WRITER_MS / 2000
_LOST_SECONDS = 300
_MOST_SHARDS = 20_000


class Write(NamedTuple):
    """An acknowledged entry: its number among the entries of this process in its shard, its session, its time
    (Unix ms), and when it was acknowledged (monotonic seconds)."""

    number: int
    key: SessionKey
    at: int
    acknowledged_at: float


class LastAcknowledged:
    """The last entry of this process in each shard that Redis acknowledged. A server counts the entries of
    each process; if it has counted fewer than were acknowledged, it has lost the newest ones."""

    def __init__(self) -> None:
        self._newest: dict[Shard, Write] = {}
        self._lost: list[LostWrite] = []

    def newest(self, shard: Shard, seconds: float = _KNOWN_SECONDS) -> Write | None:
        """Returns None if the last entry is older than this many seconds, because Redis may have forgotten
        its number."""
        write = self._newest.get(shard)
        is_known = write is not None and time.monotonic() - write.acknowledged_at < seconds
        return write if is_known else None

    def shards(self) -> list[Shard]:
        """Returns the shards in which a server may have lost entries: it loses only those written shortly
        before."""
        return [shard for shard in self._newest if self.newest(shard, _LOST_SECONDS)]

    def note(self, shard: Shard, before: Write | None, number: int, key: SessionKey, at: int) -> None:
        """Records that another entry is acknowledged. `before` was the newest acknowledged entry when it was
        sent."""
        self.compare(shard, before, number - 1)
        newest = self._newest.pop(shard, None)
        if newest is None or newest.number < number:
            newest = Write(number, key, at, time.monotonic())
        self._newest[shard] = newest
        if len(self._newest) > _MOST_SHARDS:
            del self._newest[next(iter(self._newest))]

    def compare(self, shard: Shard, before: Write | None, number: int) -> None:
        """Records that the server has counted up to `number` after `before` was acknowledged."""
        if before is not None and number < before.number and self._newest.get(shard) is before:
            self._lost.append(LostWrite(before.key, before.at))
            del self._newest[shard]

    def lost(self) -> list[LostWrite]:
        """Returns the losses for which `told` was not called."""
        return list(self._lost)

    def told(self, write: LostWrite) -> None:
        """Records that an entry of the type `lost` reports it."""
        self._lost = [one for one in self._lost if one != write]
