"""What the ledger in Redis forgets, in bounded pieces; every replica may do it at once.

Redis itself lets sessions and their calls expire. This goes by our clock, takes their names off the lists,
and trims the lists of entries. One sweep looks at most at SESSIONS sessions of each tenant; the next goes on
from there.
"""

from domain.handles import SessionKey
from domain.ports import Clock
from storage.redis_client import RedisClient, command, script
from storage.redis_leases import STALE_MS, names_after
from storage.redis_ledger_keys import TENANTS, tenant_keys
from storage.redis_outboxes import RedisOutboxes, in_batches
from storage.redis_sessions import SessionSteps

SESSIONS = 1000
_TRIMMED = 1000
_TRIMS = 1000


class RedisSweep:
    def __init__(
        self, redis: RedisClient, steps: SessionSteps, outboxes: RedisOutboxes, clock: Clock
    ) -> None:
        self._redis = redis
        self._steps = steps
        self._outboxes = outboxes
        self._clock = clock
        self._reached: dict[str, str] = {}

    async def run(self) -> list[SessionKey]:
        """Answers the ended sessions among those that it looked at."""
        ended: list[SessionKey] = []
        for name in await self._redis.run(command("SMEMBERS", TENANTS)):
            tenant = name.decode()
            await self._rest_outboxes(tenant)
            ended += await self._forget_sessions(tenant)
            await self._forget_entries(tenant)
        return ended

    async def _rest_outboxes(self, tenant: str) -> None:
        """Collects every outbox; takes off the list of outboxes what has been empty for long."""
        found = await self._outboxes.collect(tenant)
        await self._unlist(tenant, [(one.session_id, one.listed_at) for one in found])

    async def _forget_sessions(self, tenant: str) -> list[SessionKey]:
        after = self._reached.get(tenant, "")
        names = await self._redis.run(names_after(tenant, after, SESSIONS))
        self._reached[tenant] = names[-1].decode() if len(names) == SESSIONS else ""
        keys = [SessionKey(tenant, name.decode()) for name in names]
        now = self._clock()
        states = await in_batches(self._redis, [self._steps.forget(key, now) for key in keys])
        found = list(zip(keys, states, strict=True))
        await self._unlist(tenant, [(key.session_id, b"gone") for key, state in found if state == b"gone"])
        return [key for key, state in found if state == b"ended"]

    async def _unlist(self, tenant: str, found: list[tuple[str, bytes]]) -> None:
        where = tenant_keys(tenant)
        args = [part for one in found for part in one]
        if found:
            await self._redis.run(script("session_unlist", [where.sessions, where.listed], [STALE_MS, *args]))

    async def _forget_entries(self, tenant: str) -> None:
        where = tenant_keys(tenant)
        oldest = self._clock() - self._steps.entry_ms
        trim = script("entry_trim", [where.entries, where.handles], [oldest, _TRIMMED])
        for _ in range(_TRIMS):
            if not await self._redis.run(trim):
                return
