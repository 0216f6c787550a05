"""Scripts and commands on Redis. Driver errors become StorageError."""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

from domain.errors import StorageError, StoreFull, StoreUnavailable
from domain.ports import Load
from domain.results import Durability
from storage.base.damage import Notices
from storage.base.schema import Schema
from storage.redis.cluster import Cluster
from storage.redis.facts import (
    OURS,
    RedisFacts,
    check_schema,
    facts_of,
    is_wrong_type,
    learn_schema,
    translated,
    worst_of,
)
from storage.redis.keys import SHARD_KEYS, Shard, probe, shard_in
from storage.redis.replies import is_expected
from storage.redis.sentinel import Sentinels
from storage.redis.server import Arg, RedisNode
from storage.redis.url import RedisUrl, client_of, parse_redis_url

AOF_SECONDS = 0.9
"""How much longer a stored result waits for the append-only file that is synced every second."""

REPLICA_SECONDS = 0.5
"""The additional seconds for which a write waits for replicas."""

ALONE_SECONDS = 0.01
"""The same, if the primary has no connected replica."""

FACTS_SECONDS = 1.0
"""The seconds for which `appendfsync always` is assumed before the server is asked again."""

SHARDS_SECONDS = 1.0
"""How long the list of all shards is reused. With many keys it is reused for _REUSED times as long as it took
to make. A sweep makes a new list."""

KEPT_LONGER_MS = 7 * 86_400_000
"""How much longer than the retention Redis keeps data that no sweep deletes, so that a clock which jumps by
less deletes nothing."""

_REUSED = 20
_MANY_REPLIES = 10
_SCANNED = 1000
_PROBE_MS = 10_000
_ODD = "Redis answered as no Redis does. Check the host and the kind of server in its URL, then try again."
_READING = {"find"}
"""Scripts that write nothing."""

_COUNTER_DIGITS = 16


def open_redis(url: str) -> "RedisConnection":
    """Connects with the first use. Raises ConfigError for a URL that cannot be used."""
    return RedisConnection(parse_redis_url(url))


class RedisConnection:
    """One server, a primary behind sentinels, or a cluster. If the reply to a script is lost, the script runs
    again: every script may run twice. All methods raise StoreUnavailable, StoreFull or StorageError."""

    def __init__(self, url: RedisUrl) -> None:
        self._address = url.address
        self._place = _place_of(url)
        self._max_connections = url.max_connections
        self._allows_eviction = url.allow_eviction
        self._waits_aof = url.wait_aof
        self._wait_replicas = url.wait_replicas
        self._is_alone = False
        self._facts: RedisFacts | None = None
        self._learned_at = float("-inf")
        self._schema: Schema | None = OURS
        self._counts: dict[tuple[Arg, ...], Any] = {}
        self._listing = asyncio.Lock()
        self._listed: set[Shard] = set()
        self._listed_until = float("-inf")
        self._written: set[Shard] = set()
        self.notices = Notices()
        self.warnings: tuple[str, ...] = ()
        """Warnings for the operator, as of the last `check`."""

    @property
    def has_schema(self) -> bool:
        """Whether the schema in Redis is known."""
        return self._schema is not None

    @property
    def load(self) -> Load:
        """The connections of the server that uses most connections."""
        share = 0.0 if self._facts is None else self._facts.memory_share
        servers = self._place.servers
        running = max((one.running for one in servers), default=0)
        return Load(running, self._max_connections, sum(one.waiting for one in servers), share)

    async def command(self, *command: Arg) -> Any:
        """Runs a command that reads, or that may run twice. None if its key has another type than the
        command needs; a warning names the key."""
        return self._checked((await self._send([command]))[0], command)

    async def commands(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Runs commands concurrently and in any order. Returns the replies in the order of `commands`."""
        if not commands:
            return []
        if isinstance(self._place, Cluster):
            return list(await asyncio.gather(*[self.command(*one) for one in commands]))
        replies = await self._send(commands)
        return [self._checked(reply, command) for reply, command in zip(replies, commands, strict=True)]

    async def counts(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Runs commands that count, as `commands` does. For a server of a cluster that is away, returns the
        last known counts, so that sessions on the other servers are served."""
        if not isinstance(self._place, Cluster):
            return await self.commands(commands)
        replies = await asyncio.gather(*[self.command(*one) for one in commands], return_exceptions=True)
        _away(replies)
        for command, reply in zip(commands, replies, strict=True):
            if not isinstance(reply, BaseException):
                self._counts[command] = reply
        return [self._counts.get(command) for command in commands]

    async def script(self, name: str, keys: Sequence[str], args: Sequence[Arg] = ()) -> Any:
        """Runs `lua/<name>.lua`. All keys must have the same hash tag."""
        return (await self._run(name, keys, args))[0]

    async def batch(self, *commands: Sequence[Arg]) -> Any:
        """Runs commands in one step. Their keys must have the same hash tag. Returns the last reply."""
        words: list[Arg] = [word for command in commands for word in (len(command), *command)]
        return await self.script("batch", [str(command[1]) for command in commands], words)

    async def durable(self, name: str, keys: Sequence[str], args: Sequence[Arg]) -> tuple[Any, Durability]:
        """Runs a script. If the server has WAITAOF, waits until the change is in its append-only file."""
        facts = self._facts or await self._learn()
        if not facts.can_wait:
            reply = await self.script(name, keys, args)
            return reply, self._replicated or await self._unwaited(facts)
        # WAITAOF covers the writes of its own connection.
        waiting = ("WAITAOF", 1, 0, int(AOF_SECONDS * 1000))
        reply, waited = await self._run(name, keys, args, waiting, more=AOF_SECONDS)
        is_on_disk = isinstance(waited, list) and waited[0] >= 1
        return reply, self._replicated or (Durability.AOF if is_on_disk else Durability.MEMORY)

    @property
    def _replicated(self) -> Durability | None:
        """The durability of a write that replicas have confirmed; None if none need to confirm it."""
        return Durability.REPLICATED if self._wait_replicas and not self._is_alone else None

    async def times(self) -> dict[str, int]:
        """The clock (Unix ms) of each server that answers, by the server's name in the log. Raises
        StorageError if no server answers."""
        servers = await self._place.primaries()
        answers = await asyncio.gather(*[self._time_of(one) for one in servers], return_exceptions=True)
        _away(answers)
        return {
            server.named: answer
            for server, answer in zip(servers, answers, strict=True)
            if not isinstance(answer, BaseException)
        }

    async def _time_of(self, server: RedisNode) -> int:
        (reply,) = await server.send([("TIME",)])
        seconds, microseconds = self._checked(reply, ("TIME", ""))
        return int(seconds) * 1000 + int(microseconds) // 1000

    def counter(self, where: str, digits: bytes | None) -> int:
        """The counter with these digits. None is 0; so is a damaged one, which a warning names by `where`."""
        if digits is None:
            return 0
        if digits.isdigit() and len(digits) <= _COUNTER_DIGITS:
            return int(digits)
        self.notices.warn(where, "is damaged: it counts as 0 until it is written again.")
        return 0

    def note_written(self, shard: Shard) -> None:
        """Records that something was written to the shard, so that `shards` includes it at once."""
        self._written.add(shard)

    async def shards(self, *, is_new: bool = False) -> list[Shard]:
        """Returns every shard that holds anything. Those that only other replicas have written to may be
        missing for SHARDS_SECONDS, unless the list `is_new`."""
        async with self._listing:
            if is_new or time.monotonic() >= self._listed_until:
                began, written = time.monotonic(), set(self._written)
                keys, replies, is_whole = await self._scanned()
                before = set[Shard]() if is_whole else self._listed
                self._listed = before | {shard for key in keys if (shard := shard_in(key))}
                # Writes from here on add their shards again.
                self._written -= written
                ended = time.monotonic()
                pause = _REUSED * (ended - began) if replies > _MANY_REPLIES else 0.0
                self._listed_until = ended + max(SHARDS_SECONDS, pause)
        return sorted(self._listed | self._written, key=lambda shard: (shard.tenant, shard.number))

    async def _scanned(self) -> tuple[set[bytes], int, bool]:
        """Returns the keys of all servers that match SHARD_KEYS, the number of replies that it took, and
        whether no server of a cluster is away."""
        servers = await self._place.primaries()
        answers = await asyncio.gather(*[self._scan(one) for one in servers], return_exceptions=True)
        is_whole = not _away(answers)
        scans = [one for one in answers if not isinstance(one, BaseException)]
        return set().union(*[keys for keys, _ in scans]), sum(replies for _, replies in scans), is_whole

    async def _scan(self, server: RedisNode) -> tuple[set[bytes], int]:
        keys, replies, cursor = set[bytes](), 0, 0
        while cursor or not replies:
            scan = ("SCAN", cursor, "MATCH", SHARD_KEYS, "COUNT", _SCANNED)
            (reply,) = await server.send([scan])
            cursor, matching = self._checked(reply, scan)
            keys.update(matching)
            replies += 1
        return keys, replies

    async def check(self) -> None:
        """Raises StorageError if a write fails, or if the server may evict what it stores. While some servers
        of a cluster take writes, a warning says that others do not."""
        values = await self._place.probe_values()
        probes = await asyncio.gather(*map(self._probe, values), return_exceptions=True)
        try:
            away = _away(probes)
        except StoreFull:
            # `load` reports how full the server is.
            await self._learn()
            raise
        with suppress(*([StoreUnavailable] if away else [])):
            await self._learn_schema()
        facts = await self._learn()
        if facts.may_evict and not self._allows_eviction:
            raise StoreUnavailable(f"{facts.eviction} Set maxmemory-policy noeviction.")
        part = f"{len(away)} of the {len(probes)} servers of the Redis cluster"
        warnings = [f"{part} cannot be used: their sessions get 503. {away[0].detail}"] if away else []
        if self._is_alone:
            warnings.append(
                "Redis has no replica that is connected: if its server is lost, so are its last writes."
            )
        self.warnings = (*warnings, *facts.warnings)

    async def _probe(self, value: str) -> None:
        if await self.batch(*probe(value, _PROBE_MS)) != value.encode():
            raise StoreUnavailable("Redis does not answer with what it was given. Try again.")

    async def check_schema(self) -> None:
        """Raises StorageError if Redis holds data with another schema, or does not answer. From now on, no
        operation runs while this is so."""
        self._schema = None
        check_schema(await self._learn_schema())

    async def close(self) -> None:
        await self._place.close()

    async def _learn_schema(self) -> Schema:
        async def ask(*command: Arg) -> Any:
            return self._checked((await self._place.send([command]))[0], command)

        self._schema = await learn_schema(ask)
        return self._schema

    async def _learn(self) -> RedisFacts:
        check_schema(self._schema or await self._learn_schema())
        servers = await self._place.primaries()
        answers = await asyncio.gather(*[self._facts_of(one) for one in servers], return_exceptions=True)
        _away(answers)
        self._facts = worst_of([one for one in answers if not isinstance(one, BaseException)])
        self._learned_at = time.monotonic()
        return self._facts

    async def _unwaited(self, facts: RedisFacts) -> Durability:
        if facts.syncs_always and time.monotonic() > self._learned_at + FACTS_SECONDS:
            # One caller asks; the others use the known facts.
            self._learned_at = time.monotonic()
            try:
                facts = await self._learn()
            except StorageError:
                return Durability.MEMORY
        return Durability.AOF if facts.syncs_always else Durability.MEMORY

    async def _facts_of(self, server: RedisNode) -> RedisFacts:
        """Facts that an ACL hides stay unknown."""
        (info,) = await server.send([("INFO",)])
        (fsync,) = await server.send([("CONFIG", "GET", "appendfsync")])
        known = info if isinstance(info, dict) else {}
        return facts_of(known, fsync[1].decode() if isinstance(fsync, list) else None, self._waits_aof)

    async def _send(self, commands: Sequence[Sequence[Arg]], more: float = 0.0) -> list[Any]:
        """Calls Server.send. Raises StoreUnavailable if a version with another schema wrote the data."""
        check_schema(self._schema or await self._learn_schema())
        return await self._place.send(commands, more=more)

    def _checked(self, reply: Any, command: Sequence[Arg]) -> Any:
        """Raises StorageError for an error, and for a reply that the command does not have."""
        if not isinstance(reply, Exception):
            if not is_expected(command, reply):
                raise StoreUnavailable(_ODD, cause=self._address)
            return reply
        if not is_wrong_type(reply):
            raise translated(reply, self._address) from reply
        self.notices.warn(str(command[1]), "has another type than Spillgate gave it. Delete it.")
        return None

    async def _run(
        self, name: str, keys: Sequence[str], args: Sequence[Arg], *then: Sequence[Arg], more: float = 0.0
    ) -> list[Any]:
        """Runs a script, and commands on the same connection. Returns the replies; raises the error of the
        script. Raises StoreUnavailable if too few replicas have confirmed what it wrote."""
        source, sha = script_source(name)
        words = (len(keys), *keys, *args)
        if waits := 0 if name in _READING else self._wait_replicas:
            seconds = ALONE_SECONDS if self._is_alone else REPLICA_SECONDS
            then, more = (*then, ("WAIT", waits, int(seconds * 1000))), more + seconds
        replies = await self._send([("EVALSHA", sha, *words), *then], more)
        if isinstance(replies[0], NoScriptError):
            replies = await self._send([("EVAL", source, *words), *then], more)
        if isinstance(replies[0], Exception) and name not in _READING:
            raise translated(replies[0], self._address) from replies[0]
        replies[0] = self._checked(replies[0], (name, *keys))
        if waits:
            await self._check_replicas(waits, replies.pop())
        return replies

    async def _check_replicas(self, wanted: int, confirmed: Any) -> None:
        """Raises StoreUnavailable if too few replicas confirmed. Not if sentinels name the primary and it has
        too few replicas to wait for."""
        is_short = not (isinstance(confirmed, int) and confirmed >= wanted)
        place = self._place
        self._is_alone = is_short and isinstance(place, Sentinels) and await place.is_alone(wanted)
        if is_short and not self._is_alone:
            raise StoreUnavailable(
                "Too few replicas of Redis confirmed the write; it may be lost. Try again."
            )


def _place_of(url: RedisUrl) -> RedisNode | Sentinels | Cluster:
    if url.kind == "cluster":
        return Cluster(url)
    if url.kind == "sentinel":
        return Sentinels(url)
    return RedisNode(client_of(url), url.max_connections, url.address, seconds=url.timeout)


def _away(answers: Sequence[object]) -> list[StoreUnavailable]:
    """Returns the failures of the servers that are away. Raises one of them if no server answered, and any
    failure of another kind."""
    failures = [one for one in answers if isinstance(one, BaseException)]
    away = [one for one in failures if isinstance(one, StoreUnavailable)]
    for other in failures:
        if len(away) == len(answers) or not isinstance(other, StoreUnavailable):
            raise other
    return away


@cache
def script_source(name: str) -> tuple[str, str]:
    """Returns the source, which begins with that of shared.lua, and its SHA-1."""
    folder = files("storage.redis").joinpath("lua")
    return named(
        "".join(folder.joinpath(f"{one}.lua").read_text(encoding="utf-8") for one in ("shared", name))
    )


def named(source: str) -> tuple[str, str]:
    """A script and its SHA-1, by which Redis knows it."""
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
