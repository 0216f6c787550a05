"""Scripts and commands over redis-py, bounded in time. Driver errors become StorageError."""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from importlib.resources import files
from typing import Any, TypeVar

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import NoScriptError, ResponseError

from domain.errors import StorageError, StoreBusy, StoreUnavailable
from domain.ports import Load
from domain.results import Durability
from storage.base.damage import Notices
from storage.base.paths import Schema
from storage.redis.facts import (
    DRIVER_ERRORS,
    OURS,
    ServerFacts,
    check_schema,
    facts_of,
    is_unreachable,
    is_wrong_type,
    learn_schema,
    translated,
    worst_of,
)
from storage.redis.keys import SHARD_KEYS, Shard, probe, shard_in
from storage.redis.url import RedisUrl, client_of, parse_redis_url

T = TypeVar("T")
Arg = str | bytes | int

REQUEST_SECONDS = 0.8
"""The bound of an operation, and of all slow answers that one request waits for: a caller gets a 503 within a
second."""

AOF_SECONDS = 0.9
"""How much longer a stored result waits for the append-only file that is synced every second."""

BUSY_SECONDS = 0.3
"""How much of that an operation waits for a free connection."""

AWAY_SECONDS = 1.0
"""How long nothing is sent to a server that did not answer; then one caller tries it."""

FACTS_SECONDS = 1.0
"""How long `appendfsync always` is assumed before the server is asked again."""

SHARDS_SECONDS = 1.0
"""How long a list of all shards is reused; that of a Redis with many keys _REUSED times as long as it took.
A sweep makes a new one."""

_REUSED = 20
_MANY_REPLIES = 10
_SCANNED = 1000
_QUICK_SECONDS = 0.2
_LEAST_SECONDS = 0.4
_FRESH_SECONDS = 5.0
_PROBE_MS = 10_000
_COUNTER_DIGITS = 16

_slow: ContextVar[tuple[float, float]] = ContextVar("redis_slow", default=(0.0, float("-inf")))
"""The seconds that the running request has waited for answers that took longer than _QUICK_SECONDS, and when
it got the last of them."""


def open_redis(url: str) -> "RedisConnection":
    """Connects with the first use. Raises ConfigError for a URL that cannot be used."""
    return RedisConnection(parse_redis_url(url))


class RedisConnection:
    """One server, a primary behind sentinels, or a cluster. If the reply to a script is lost, the script runs
    again: every script may run twice. All methods raise StoreUnavailable, StoreFull or StorageError."""

    def __init__(self, url: RedisUrl) -> None:
        self._client: Redis | RedisCluster = client_of(url)
        self._address = url.address
        self._gate = asyncio.Semaphore(url.max_connections)
        self._max_connections = url.max_connections
        self._running = self._waiting = 0
        self._allows_eviction = url.allow_eviction
        self._waits_aof = url.wait_aof
        self._facts: ServerFacts | None = None
        self._learned_at = float("-inf")
        self._is_away = False
        self._why_away = StorageError()
        self._try_at = 0.0
        self._schema: Schema | None = OURS
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
    def is_cluster(self) -> bool:
        return isinstance(self._client, RedisCluster)

    @property
    def load(self) -> Load:
        share = 0.0 if self._facts is None else self._facts.memory_share
        return Load(self._running, self._max_connections, self._waiting, share)

    async def command(self, *command: Arg) -> Any:
        """Runs a command that reads, or that may run twice. None if its key has another type than the
        command needs; a warning names the key."""
        return await self._bounded(lambda: self._one(command))

    async def commands(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Runs commands concurrently and in any order. Returns the replies in the order of `commands`."""
        if not commands:
            return []
        if not self.is_cluster:
            return await self._bounded(lambda: self._piped(commands))
        return list(await asyncio.gather(*[self.command(*one) for one in commands]))

    async def script(self, name: str, keys: Sequence[str], args: Sequence[Arg] = ()) -> Any:
        """Runs `lua/<name>.lua`. All keys must have the same hash tag."""
        return await self._bounded(lambda: self._run(name, keys, args))

    async def batch(self, *commands: Sequence[Arg]) -> Any:
        """Runs commands in one step. Their keys must have the same hash tag. Returns the last reply."""
        words: list[Arg] = [word for command in commands for word in (len(command), *command)]
        return await self.script("batch", [str(command[1]) for command in commands], words)

    async def durable(self, name: str, keys: Sequence[str], args: Sequence[Arg]) -> tuple[Any, Durability]:
        """Runs a script. If the server has WAITAOF, waits until the change is in its append-only file."""
        facts = self._facts or await self._learn()
        if facts.can_wait:
            return await self._bounded(lambda: self._waited(name, keys, args), AOF_SECONDS)
        reply = await self.script(name, keys, args)
        return reply, await self._unwaited(facts)

    def counter(self, where: str, digits: bytes | None) -> int:
        """`kept` is a counter as Redis keeps it; None is 0, and so is a damaged one, which a warning names by
        `where`."""
        if digits is None:
            return 0
        if digits.isdigit() and len(digits) <= _COUNTER_DIGITS:
            return int(digits)
        self.notices.warn(where, "is damaged: it counts as 0 until it is written again.")
        return 0

    def note_written(self, shard: Shard) -> None:
        """Something was written to the shard: `shards` has it at once."""
        self._written.add(shard)

    async def shards(self, *, is_new: bool = False) -> list[Shard]:
        """Returns every shard that holds anything. Those that only other replicas have written to may be
        missing for SHARDS_SECONDS, unless the list `is_new`."""
        async with self._listing:
            if is_new or time.monotonic() >= self._listed_until:
                began, written = time.monotonic(), set(self._written)
                keys, replies = await self._scanned(SHARD_KEYS)
                self._listed = {shard for key in keys if (shard := shard_in(key))}
                # What is written from now on is added again.
                self._written -= written
                ended = time.monotonic()
                pause = _REUSED * (ended - began) if replies > _MANY_REPLIES else 0.0
                self._listed_until = ended + max(SHARDS_SECONDS, pause)
        return sorted(self._listed | self._written, key=lambda shard: (shard.tenant, shard.number))

    async def _scanned(self, pattern: str) -> tuple[set[bytes], int]:
        """Returns the keys of all servers that match a glob, and the number of replies that it took."""
        keys, replies = set[bytes](), 0
        for options in await self._within(self._primaries):
            cursor: Any = 0
            while True:
                scan = ("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)
                ask = partial(self._client.execute_command, *scan, **options)
                cursor, matching = await self._bounded(ask)
                keys.update(matching)
                replies += 1
                if isinstance(cursor, dict):
                    # The reply of a cluster has the cursor of each server that was asked.
                    (cursor,) = cursor.values()
                if not cursor:
                    break
        return keys, replies

    async def _primaries(self) -> list[dict[str, Any]]:
        """Returns the options of redis-py for a command to each server that takes writes."""
        if not isinstance(self._client, RedisCluster):
            return [{}]
        await self._client.initialize()
        return [{"target_nodes": node} for node in self._client.get_primaries()]

    async def check(self) -> None:
        """Raises StorageError if a write fails, or if the server may evict what it stores."""
        value = secrets.token_hex(8)
        await self._learn_schema()
        if await self.batch(*probe(value, _PROBE_MS)) != value.encode():
            raise StoreUnavailable("Redis does not answer with what it was given. Try again.")
        facts = await self._learn()
        if facts.may_evict and not self._allows_eviction:
            raise StoreUnavailable(f"{facts.eviction} Set maxmemory-policy noeviction.")
        self.warnings = facts.warnings

    async def check_schema(self) -> None:
        """Raises StorageError if Redis holds data with another schema, or does not answer. From now on no
        operation runs while that is so."""
        self._schema = None
        check_schema(await self._learn_schema())

    async def close(self) -> None:
        await self._client.aclose()
        pool = getattr(self._client, "connection_pool", None)
        if isinstance(pool, SentinelConnectionPool):
            await pool.sentinel_manager.aclose()

    async def _learn_schema(self) -> Schema:
        self._schema = await learn_schema(lambda *asked: self._within(lambda: self._one(asked)))
        return self._schema

    async def _learn(self) -> ServerFacts:
        self._facts = await self._bounded(self._asked)
        self._learned_at = time.monotonic()
        return self._facts

    async def _unwaited(self, facts: ServerFacts) -> Durability:
        if facts.syncs_always and time.monotonic() > self._learned_at + FACTS_SECONDS:
            # One caller asks; the others use the known facts.
            self._learned_at = time.monotonic()
            try:
                facts = await self._learn()
            except StorageError:
                return Durability.MEMORY
        return Durability.AOF if facts.syncs_always else Durability.MEMORY

    async def _asked(self) -> ServerFacts:
        """Asks every server that takes writes. Facts that an ACL hides stay unknown."""
        servers = []
        for option in await self._primaries():
            info, fsync = {}, None
            with suppress(ResponseError):
                info = await self._client.execute_command("INFO", **option)
            with suppress(ResponseError):
                reply = await self._client.execute_command("CONFIG", "GET", "appendfsync", **option)
                fsync = reply[1].decode()
            servers.append(facts_of(info, fsync, self._waits_aof))
        return worst_of(servers)

    async def _bounded(self, act: Callable[[], Awaitable[T]], more: float = 0.0) -> T:
        """Runs `act` in time. Raises StoreUnavailable if a version with another schema wrote the data."""
        check_schema(self._schema or await self._learn_schema())
        return await self._within(act, more)

    async def _within(self, act: Callable[[], Awaitable[T]], more: float = 0.0) -> T:
        """Runs `act` within the time that is left to the request, plus `more` seconds."""
        begun = time.monotonic()
        left = _seconds_left(begun)
        if self._is_away:
            if begun < self._try_at or left < _LEAST_SECONDS:
                raise StoreUnavailable(self._why_away.detail, cause=self._why_away.cause)
            # Other callers are refused until this try has succeeded or failed.
            self._try_at = begun + AWAY_SECONDS
        if left < _LEAST_SECONDS:
            raise StoreUnavailable("Redis answers too slowly. Try again in a moment.", cause=self._address)
        ends = begun + left + more
        await self._wait_for_connection()
        self._running += 1
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                # redis-py closes connections that are in use when it learns the slots of a cluster.
                if isinstance(self._client, RedisCluster):
                    await self._client.initialize()
                try:
                    done = await act()
                except RuntimeError:
                    # uvloop raises it for a connection that Redis has closed. redis-py does not retry it.
                    done = await act()
        except DRIVER_ERRORS as error:
            failure = translated(error, self._address)
            if is_unreachable(error):
                self._is_away, self._try_at = True, time.monotonic() + AWAY_SECONDS
                self._why_away = failure
            raise failure from error
        finally:
            self._running -= 1
            self._gate.release()
            _note_wait(begun, time.monotonic())
        self._is_away = False
        return done

    async def _wait_for_connection(self) -> None:
        """Takes one of the connections. redis-py has a pool that waits for one, but not for a cluster."""
        if not self._gate.locked():
            await self._gate.acquire()
            return
        self._waiting += 1
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await self._gate.acquire()
        except TimeoutError:
            busy = f"{self._max_connections} connections are in use, {self._address}"
            raise StoreBusy("Every connection to Redis is busy. Try again.", cause=busy) from None
        finally:
            self._waiting -= 1

    async def _piped(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Runs commands in one round trip."""
        pipe: Any = self._client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        replies = await pipe.execute(raise_on_error=False)
        return [self._checked(reply, command) for reply, command in zip(replies, commands, strict=True)]

    async def _one(self, command: Sequence[Arg]) -> Any:
        try:
            return await self._client.execute_command(*command)
        except ResponseError as error:
            return self._checked(error, command)

    def _checked(self, reply: Any, command: Sequence[Arg]) -> Any:
        if not isinstance(reply, Exception):
            return reply
        if not is_wrong_type(reply):
            raise reply
        self.notices.warn(str(command[1]), "has another type than Spillgate gave it. Delete it.")
        return None

    async def _run(self, name: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        source, sha = script_source(name)
        try:
            return await self._client.execute_command("EVALSHA", sha, len(keys), *keys, *args)
        except NoScriptError:
            return await self._client.execute_command("EVAL", source, len(keys), *keys, *args)

    async def _waited(self, name: str, keys: Sequence[str], args: Sequence[Arg]) -> tuple[Any, Durability]:
        """Runs the script and WAITAOF on one connection: WAITAOF covers the writes of its own connection."""
        source, sha = script_source(name)
        reply, waited = await self._then_wait("EVALSHA", sha, len(keys), *keys, *args)
        if isinstance(reply, NoScriptError):
            reply, waited = await self._then_wait("EVAL", source, len(keys), *keys, *args)
        if isinstance(reply, Exception):
            raise reply
        is_on_disk = isinstance(waited, list) and waited[0] >= 1
        return reply, Durability.AOF if is_on_disk else Durability.MEMORY

    async def _then_wait(self, *command: Arg) -> list[Any]:
        """Returns the replies to the command and to WAITAOF; an error is returned as a reply."""
        options: dict[str, Any] = {}
        if isinstance(self._client, RedisCluster):
            await self._client.initialize()
            options = {"target_nodes": self._client.get_node_from_key(str(command[3]))}
        client: Any = self._client
        pipe = client.pipeline(transaction=None if options else False)
        pipe.execute_command(*command, **options)
        pipe.execute_command("WAITAOF", 1, 0, int(AOF_SECONDS * 1000), **options)
        return list(await pipe.execute(raise_on_error=False))


def _seconds_left(now: float) -> float:
    """Returns what the running request may still wait; below _LEAST_SECONDS is too little."""
    waited, at = _slow.get()
    return REQUEST_SECONDS - (waited if now <= at + _FRESH_SECONDS else 0.0)


def _note_wait(begun: float, now: float) -> None:
    if now - begun > _QUICK_SECONDS:
        waited, at = _slow.get()
        _slow.set((now - begun + (waited if begun <= at + _FRESH_SECONDS else 0.0), now))


@cache
def script_source(name: str) -> tuple[str, str]:
    """Returns the source, which begins with that of shared.lua, and its SHA-1."""
    folder = files("storage.redis").joinpath("lua")
    source = "".join(folder.joinpath(f"{one}.lua").read_text(encoding="utf-8") for one in ("shared", name))
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
