"""Talking to Redis: within deadlines, tried at most twice, behind a breaker; Lua files and plain commands.

Sentinel, cluster and one server look the same from here. Keys that must change together share a hash tag.
"""

import asyncio
import hashlib
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from redis.exceptions import AskError, MovedError, NoScriptError, ResponseError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError

from domain.errors import StorageError, StoreBusy, StoreUnavailable
from domain.results import Durability
from storage.redis_breaker import Breaker
from storage.redis_errors import DRIVER_ERRORS, translated
from storage.redis_facts import Facts, facts_of, worst_of
from storage.redis_patience import patience_of_caller
from storage.redis_topology import Topology, open_topology
from storage.redis_url import RedisUrl, parse_redis_url
from storage.redis_wire import Arg as Arg
from storage.redis_wire import Command, converse

T = TypeVar("T")

OPERATION_SECONDS = 2.0
"""The outer bound of everything here: connecting, the one retry and redirections included. A caller who has
waited for slow answers before waits less: redis_patience.py."""

COMMAND_SECONDS = 1.0
AOF_SECONDS = 0.9
"""How long a write waits for the append-only file, on top of COMMAND_SECONDS."""

BUSY_SECONDS = 0.5

FACTS_SECONDS = 1.0
"""How long `appendfsync always` is believed. It may be set otherwise since, or be another server."""

_REDIRECTS = 5
_MOVING_SECONDS = 0.05
_PROBE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Script:
    source: str
    sha1: str


@dataclass(frozen=True, slots=True)
class Step:
    """One command, or one run of a Lua file. Its keys share a hash tag; `key` is one of them."""

    key: str
    args: Command
    script: Script | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """`aof`: on the disk of the server that the last step went to, when this came back."""

    replies: list[Any]
    durability: Durability


def command(name: str, key: str, *args: Arg) -> Step:
    return Step(key, (name, key, *args))


def script(name: str, keys: Sequence[str], args: Sequence[Arg] = ()) -> Step:
    """Runs `storage/lua/<name>.lua`. May run twice, when the first reply is lost: twice must be once."""
    found = _script(name)
    return Step(keys[0], ("EVALSHA", found.sha1, len(keys), *keys, *args), found)


@cache
def _script(name: str) -> Script:
    source = files("storage").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def open_redis(url: str) -> "RedisClient":
    """Connects with the first use. Raises ConfigError for a URL that cannot be used."""
    return RedisClient(parse_redis_url(url))


class RedisClient:
    """Replies are raw: bytes, int, list or None. Everything raises StoreUnavailable or StoreFull, or, for an
    answer that makes no sense, StorageError; never an error of the driver's."""

    def __init__(
        self, url: RedisUrl, topology: Topology | None = None, breaker: Breaker | None = None
    ) -> None:
        self._topology = topology or open_topology(url)
        self._breaker = breaker or Breaker()
        self._free = asyncio.Semaphore(url.max_connections)
        self._allows_eviction = url.allow_eviction
        self._waits = url.wait_aof
        self._facts: Facts | None = None
        self._learnt_at = float("-inf")
        self.warnings: tuple[str, ...] = ()
        """What an operator should know, as of the last `check`."""

    @property
    def is_cluster(self) -> bool:
        """Where it is not, keys of different tags may meet in one script."""
        return self._topology.is_cluster

    async def run(self, step: Step) -> Any:
        return (await self.pipeline(step))[0]

    async def pipeline(self, *steps: Step) -> list[Any]:
        """In their order; in one round trip, where they are of one slot or it is no cluster. Not atomic:
        when one fails the later ones may have run. Raises the first failure."""
        return (await self._in_time(lambda: self._sent(steps, waits=False))).replies

    async def write(self, *steps: Step) -> Written:
        """As `pipeline`, and waits for the append-only file of the server that the last step went to, where
        there is one to wait for: up to AOF_SECONDS if it is synced every second."""
        facts = self._facts or await self._learn()
        written = await self._in_time(lambda: self._sent(steps, waits=facts.can_wait))
        return written if facts.can_wait else Written(written.replies, await self._unwaited(facts))

    async def check(self) -> None:
        """Raises StorageError when a write would not be kept now, or might be evicted later."""
        key, value = f"spillgate:probe:{secrets.token_hex(8)}", secrets.token_hex(8)
        if await self.run(script("probe", (key,), (value, _PROBE_MS))) != value.encode():
            raise StoreUnavailable("Redis does not answer with what it was given. Try again.")
        facts = await self._learn()
        if facts.may_evict and not self._allows_eviction:
            raise StoreUnavailable(f"{facts.eviction} Set maxmemory-policy noeviction.")
        self.warnings = facts.warnings

    async def close(self) -> None:
        await self._topology.close()

    async def _learn(self) -> Facts:
        self._facts = await self._in_time(self._asked)
        self._learnt_at = time.monotonic()
        return self._facts

    async def _unwaited(self, facts: Facts) -> Durability:
        """Of a write that nobody waited for on the disk."""
        if facts.syncs_always and time.monotonic() > self._learnt_at + FACTS_SECONDS:
            try:
                facts = await self._learn()
            except StorageError:
                return Durability.MEMORY
        return Durability.AOF if facts.syncs_always else Durability.MEMORY

    async def _asked(self) -> Facts:
        """Of every server that takes writes. What an ACL forbids to ask stays unknown."""
        found = []
        for slot in await self._topology.slots():
            info, config = await self._exchanged(slot, [("INFO",), ("CONFIG", "GET", "appendfsync")])
            found.append(facts_of(info, config, self._waits))
        return worst_of(found)

    async def _in_time(self, act: Callable[[], Awaitable[T]]) -> T:
        begun, patience = time.monotonic(), patience_of_caller()
        seconds = min(OPERATION_SECONDS, patience.left(begun))
        attempt = self._breaker.enter()
        try:
            async with asyncio.timeout(seconds):
                done = await act()
        except DRIVER_ERRORS as error:
            failure = translated(error)
            if isinstance(failure, StoreUnavailable):
                self._breaker.failed(attempt)
            else:
                self._breaker.succeeded(attempt)
            raise failure from error
        except BaseException:
            self._breaker.left(attempt)
            raise
        finally:
            patience.waited(begun, time.monotonic())
        self._breaker.succeeded(attempt)
        return done

    async def _sent(self, steps: Sequence[Step], *, waits: bool) -> Written:
        replies: list[Any] = []
        batches = [
            (slot, list(batch))
            for slot, batch in itertools.groupby(steps, key=lambda step: self._topology.slot(step.key))
        ]
        for slot, batch in batches[:-1]:
            replies += await self._tried_twice(slot, batch, waits=False)
        for slot, batch in batches[-1:]:
            replies += await self._tried_twice(slot, batch, waits)
        is_on_disk = waits and _is_on_disk(replies.pop())
        return Written(replies, Durability.AOF if is_on_disk else Durability.MEMORY)

    async def _tried_twice(self, slot: int, steps: list[Step], waits: bool) -> list[Any]:
        try:
            return await self._answered(slot, steps, waits)
        except RedisConnectionError as error:
            # Its subclasses (refused password, still loading, …) would say the same again.
            if type(error) is not RedisConnectionError:
                raise
            return await self._answered(slot, steps, waits)

    async def _answered(self, slot: int, steps: list[Step], waits: bool) -> list[Any]:
        commands: list[Command] = [step.args for step in steps]
        seconds = COMMAND_SECONDS + (AOF_SECONDS if waits else 0)
        if waits:
            commands.append(("WAITAOF", 1, 0, int(AOF_SECONDS * 1000)))
        replies = await self._exchanged(slot, commands, seconds)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            sources = {step.script.source for step in steps if step.script is not None}
            loads: list[Command] = [("SCRIPT", "LOAD", source) for source in sources]
            replies = (await self._exchanged(slot, loads + commands, seconds))[len(loads) :]
        for reply in replies[: len(steps)]:
            if isinstance(reply, ResponseError):
                raise reply
        return replies

    async def _exchanged(
        self, slot: int, commands: Sequence[Command], seconds: float = COMMAND_SECONDS
    ) -> list[Any]:
        """Goes where a cluster redirects to. All of it again: what ran already is harmless to run twice."""
        redirect: AskError | None = None
        for _ in range(_REDIRECTS):
            async with self._place(), self._topology.connection(slot, redirect) as connection:
                async with asyncio.timeout(seconds):
                    if redirect is None or isinstance(redirect, MovedError):
                        replies = await converse(connection, commands)
                    else:
                        asking = [part for one in commands for part in (("ASKING",), one)]
                        replies = (await converse(connection, asking))[1::2]
            again = [reply for reply in replies if isinstance(reply, AskError | TryAgainError)]
            if not again:
                return replies
            if isinstance(again[0], AskError):
                redirect = again[0]
            else:
                await asyncio.sleep(_MOVING_SECONDS)
        raise again[0]

    def _place(self) -> "_Place":
        return _Place(self._free)


class _Place:
    """One of the connections that may be open at a time. Raises StoreBusy when none gets free soon."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free

    async def __aenter__(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise StoreBusy("Every connection to Redis is busy. Try again.") from None

    async def __aexit__(self, *_: object) -> None:
        self._free.release()


def _is_on_disk(reply: Any) -> bool:
    """Of WAITAOF: how many servers have it on their disk, this one first."""
    return isinstance(reply, list) and reply[0] >= 1
