"""From the outboxes of sessions to the list of their tenant, each entry once.

A charge and its entry are one step in the session's slot: the entry goes into an outbox there. The tenant's
list, a stream, is in another slot, so it is filled in a second step, by whoever comes to the end of the list
or sweeps: take from the outboxes, append to the list, drop from the outboxes. Each of these may be repeated,
and may be left to others half-way when its process dies: the list remembers how far it has read each outbox.
What is collected together is listed in the order in which it was written. So the list is in that order, but
for what lay in outboxes at the same time and was collected at different ones; within a session it is exact.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from domain.handles import SessionKey
from storage.redis_client import Arg, RedisClient, Step, command, script
from storage.redis_ledger_keys import session_keys, tenant_keys

T = TypeVar("T")
AT_ONCE = 100
"""Steps in one round trip; entries in one run of a script."""

_ROUND = 2000
"""About how many entries are in memory at a time."""

_TIME_DIGITS = 16


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An entry that was taken; its time orders it among those of other sessions."""

    time: bytes
    session_id: str
    birth: bytes
    number: int
    packed: bytes


@dataclass(frozen=True, slots=True)
class _Taken:
    """The oldest of one outbox. `is_cut`: there is more in it."""

    session_id: str
    entries: list[_Waiting]
    is_cut: bool

    def until(self, horizon: bytes | None) -> list[_Waiting]:
        """Those before the first that is later."""
        later = (
            place for place, one in enumerate(self.entries) if horizon is not None and one.time > horizon
        )
        return self.entries[: next(later, len(self.entries))]


@dataclass(frozen=True, slots=True)
class Found:
    """A session that was found with nothing waiting, and when it was last listed, as Redis says it."""

    session_id: str
    listed_at: bytes


class RedisOutboxes:
    """`entry_ms` is the retention of entries."""

    def __init__(self, redis: RedisClient, entry_ms: int) -> None:
        self._redis = redis
        self._entry_ms = entry_ms

    async def collect(self, tenant: str) -> list[Found]:
        """Lists all that was written before this began. Answers the sessions that had nothing waiting."""
        listed = await self._redis.run(command("ZRANGE", tenant_keys(tenant).listed, 0, -1, "WITHSCORES"))
        names = [name.decode() for name in listed[::2]]
        empty = await self._collect(tenant, names)
        return [Found(name, at) for name, at in zip(names, listed[1::2], strict=True) if name in empty]

    async def collect_session(self, key: SessionKey) -> None:
        """As `collect`, for one session alone."""
        await self._collect(key.tenant, [key.session_id])

    async def _collect(self, tenant: str, names: list[str]) -> set[str]:
        most = max(1, min(AT_ONCE, _ROUND // max(1, len(names))))
        empty: set[str] = set()
        while names:
            taken = await self._take(tenant, names, most)
            empty.update(one.session_id for one in taken if not one.entries)
            # What was cut off may be older than what others wrote last, which waits for the next round.
            horizon = min((one.entries[-1].time for one in taken if one.is_cut), default=None)
            ready = [one.until(horizon) for one in taken]
            for batch in _batches(heapq.merge(*ready, key=lambda one: one.time), AT_ONCE):
                await self._append(tenant, batch)
            await self._drop(tenant, [one[-1] for one in ready if one])
            names = [
                one.session_id
                for one, sent in zip(taken, ready, strict=True)
                if one.is_cut or len(sent) < len(one.entries)
            ]
        return empty

    async def _take(self, tenant: str, names: Sequence[str], most: int) -> list[_Taken]:
        steps = [
            script("entry_take", [session_keys(SessionKey(tenant, name)).outbox], [most]) for name in names
        ]
        replies = await in_batches(self._redis, steps)
        return [_taken(name, reply, most) for name, reply in zip(names, replies, strict=True)]

    async def _append(self, tenant: str, batch: Sequence[_Waiting]) -> None:
        births = {one.session_id: one.birth for one in batch}
        place = {name: number for number, name in enumerate(births, start=1)}
        where = tenant_keys(tenant)
        args: list[Arg] = [self._entry_ms, *births.values()]
        for one in batch:
            args += (place[one.session_id], one.number, one.packed)
        spans = [where.span(name) for name in births]
        await self._redis.run(
            script("entry_index", [where.entries, where.handles, where.waited, *spans], args)
        )

    async def _drop(self, tenant: str, last: Sequence[_Waiting]) -> None:
        await in_batches(
            self._redis,
            [
                script(
                    "entry_drop",
                    [session_keys(SessionKey(tenant, one.session_id)).outbox],
                    [one.birth, one.number],
                )
                for one in last
            ],
        )


async def in_batches(redis: RedisClient, steps: Sequence[Step]) -> list[Any]:
    """As one pipeline, in round trips of AT_ONCE."""
    return [reply for batch in _batches(iter(steps), AT_ONCE) for reply in await redis.pipeline(*batch)]


def _taken(session_id: str, reply: list[Any], most: int) -> _Taken:
    if not reply:
        return _Taken(session_id, [], False)
    birth, first, *items = reply
    entries = [
        _Waiting(item[:_TIME_DIGITS], session_id, birth, first + place, item[_TIME_DIGITS:])
        for place, item in enumerate(items)
    ]
    return _Taken(session_id, entries, len(entries) == most)


def _batches(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while batch := list(islice(items, size)):
        yield batch
