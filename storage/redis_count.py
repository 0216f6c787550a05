"""How many bytes the store holds, drafts included, and how many it may: counted in Redis for every replica.

Each body is counted under a name, in bytes, with the time it expires. What a crash between two steps leaves
wrong comes right when that body is used or expires: no count outlives its body by more than that.
"""

import time
from collections.abc import Sequence

from domain.errors import StoreFull
from storage.quota import Quota
from storage.redis_client import Arg, RedisClient, Step, command, script
from storage.redis_keys import DUE_KEY, SIZES_KEY

COUNT_KEYS = (DUE_KEY, SIZES_KEY)
_FRESH_SECONDS = 1.0
_SPARE_MS = 3_600_000


class RedisCount:
    """The quota holds as of the last second: replicas together pass it by at most what they write in that
    time. Bytes that wait in this process to be sent are counted here alone. `max_bytes` 0 means no bound."""

    def __init__(self, client: RedisClient, *, retention_ms: int, max_bytes: int) -> None:
        self._client = client
        # Every count is renewed at its expiry at the latest, and these with it.
        self._keep_ms = 2 * retention_ms + _SPARE_MS
        self._quota = Quota(max_bytes)
        self._waiting = 0
        self._learnt_at = float("-inf")

    async def take(self, size: int) -> None:
        """Bytes that are to be sent. Raises StoreFull, with nothing taken, when they do not fit."""
        if self._quota.max_bytes and time.monotonic() > self._learnt_at + _FRESH_SECONDS:
            await self.refresh()
        try:
            self._quota.take(size)
        except StoreFull:
            await self.refresh()
            self._quota.take(size)
        self._waiting += size

    def give(self, size: int) -> None:
        """Taken, but dropped before they were sent."""
        self._waiting -= size
        self._quota.give(size)

    def learn(self, total: int, sent: int = 0) -> None:
        """The total of a reply, in which `sent` bytes of what waited are counted."""
        self._waiting -= sent
        self._quota.used = total + self._waiting
        self._learnt_at = time.monotonic()

    def counting(self, name: str, size: int | None, due_at: int, former: str = "") -> Step:
        """Replies the total. `size` None: as before; `former` is the name that it had before."""
        return script("result_count", COUNT_KEYS, self.terms(name, size, due_at, former))

    def terms(self, name: str, size: int | None, due_at: int, former: str) -> tuple[Arg, ...]:
        """What `counting` says."""
        return (self._keep_ms, name, "" if size is None else size, due_at, former)

    def forgetting(self, names: Sequence[str], due_by: int | None = None) -> Step:
        """Replies how many were counted, and the total. `due_by`: only those that expire by then."""
        return script("result_forget", COUNT_KEYS, ("inf" if due_by is None else due_by, *names))

    async def forget(self, names: Sequence[str], due_by: int | None = None) -> int:
        forgotten, total = await self._client.run(self.forgetting(names, due_by))
        self.learn(total)
        return int(forgotten)

    async def due(self, now: int, most: int) -> list[str]:
        """Names of what has expired by `now`, oldest first."""
        found = await self._client.run(command("ZRANGEBYSCORE", DUE_KEY, "-inf", now, "LIMIT", 0, most))
        return [name.decode() for name in found]

    async def refresh(self) -> int:
        """Answers the bytes held by all replicas, and waiting in this one."""
        self.learn(int(await self._client.run(command("HGET", SIZES_KEY, "total")) or 0))
        return self._quota.used

    async def check(self) -> None:
        """Raises StoreFull."""
        await self.refresh()
        self._quota.check()
