"""The servers of a cluster: which server has a slot, and what to do when slots move or a server is away.

The client of redis-py for clusters is not used. While one server is away, it closes the connections to all
servers and asks for the slots again with each request, so that no session is served; and it may send ASKING
on another connection than the command."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from contextvars import Context
from typing import Any

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, TryAgainError

from domain.errors import StorageError, StoreBusy, StoreUnavailable
from storage.base import bounded
from storage.redis.facts import translated
from storage.redis.keys import probe_tag
from storage.redis.server import Arg, RedisNode
from storage.redis.url import HostPort, RedisUrl, client_of

LEARN_SECONDS = 0.25
"""The least time between two requests for the slots."""

_MOST_REDIRECTIONS = 16
_PAUSE_SECONDS = 0.05

SlotRange = tuple[int, int, list[HostPort]]
"""The first slot, the last one, and the servers that have them, the primary first."""


class Cluster:
    """The servers by their addresses: those in the URL, and those that these servers name."""

    def __init__(self, url: RedisUrl) -> None:
        self._url = url
        self._servers: dict[HostPort, RedisNode] = {}
        self._owners: list[RedisNode | None] = []
        self._is_stale = True
        self._learn_at = float("-inf")
        self._learning: asyncio.Task[None] | None = None
        self._asked = set[asyncio.Task[list[SlotRange] | StorageError]]()
        self._why_unknown = StorageError("No server of the Redis cluster can be reached. Try again.")
        for address in url.hosts:
            self._at(address)

    @property
    def servers(self) -> list[RedisNode]:
        return list(self._servers.values())

    async def primaries(self) -> list[RedisNode]:
        """Returns the servers with slots. Raises StoreUnavailable if none is known."""
        return [one for one in dict.fromkeys(await self._known()) if one is not None]

    async def probe_values(self) -> list[str]:
        """Returns values whose probes reach each server that has slots."""
        # In a thread: to reach a server with a single slot, 16,000 values may be tried.
        return await asyncio.to_thread(_probe_values, list(await self._known()))

    async def send(self, commands: Sequence[Sequence[Arg]], more: float = 0.0) -> list[Any]:
        """Sends commands about one slot to the server that has it. As Server.send."""
        slot, is_asking, replies = _slot_of(_key_of(commands[0])), False, list[Any]()
        target = (await self._known())[slot]
        if target is None:
            self._is_stale = True
            raise StoreUnavailable(
                "No server of the Redis cluster has the slot of a key. Try again.", cause=self._url.address
            )
        for _ in range(_MOST_REDIRECTIONS):
            try:
                replies = await target.send(commands, is_asking=is_asking, more=more)
            except StoreUnavailable as error:
                self._is_stale |= not isinstance(error, StoreBusy)
                raise
            first, is_asking = replies[0], isinstance(replies[0], AskError)
            if isinstance(first, AskError):
                target = self._at((first.host or target.host, first.port))
                if isinstance(first, MovedError):
                    is_asking, self._is_stale = False, True
                    self._owners[slot] = target
            elif isinstance(first, TryAgainError):
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                self._is_stale |= isinstance(first, ClusterDownError)
                break
        return replies

    async def close(self) -> None:
        tasks = [*self._asked, *([self._learning] if self._learning else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*[one.close() for one in self.servers])

    def _at(self, address: HostPort) -> RedisNode:
        if address not in self._servers:
            most = self._url.max_connections
            named, seconds = self._url.address_of([address]), self._url.timeout
            self._servers[address] = RedisNode(client_of(self._url, address), most, named, *address, seconds)
        return self._servers[address]

    async def _known(self) -> list[RedisNode | None]:
        """Returns the owner of each slot. If they may have changed, learns them again in the background."""
        if self._is_stale:
            self._start_learning()
        if not self._owners and self._learning is not None:
            await asyncio.wait([self._learning], timeout=self._url.timeout or bounded.REQUEST_SECONDS)
        if not self._owners:
            raise StoreUnavailable(self._why_unknown.detail, cause=self._why_unknown.cause)
        return self._owners

    def _start_learning(self) -> None:
        if self._learning is not None and self._learning.done():
            self._learning.result()
            self._learning = None
        if self._learning is None and time.monotonic() >= self._learn_at:
            self._learn_at = time.monotonic() + LEARN_SECONDS
            # An empty context: the time that the running request has already waited must not shorten this
            # question.
            self._learning = asyncio.create_task(self._learn(), context=Context())

    async def _learn(self) -> None:
        """Asks all servers at once, as one may be silent. Uses the first answer that has the owner of every
        slot, else the one that has the most."""
        self._is_stale = False
        questions = [asyncio.create_task(_slots_of(one)) for one in self.servers]
        self._asked.update(questions)
        best, most = list[SlotRange](), 0
        for answer in asyncio.as_completed(questions):
            ranges = await answer
            if isinstance(ranges, StorageError):
                self._why_unknown = ranges
                continue
            covered = sum(last - first + 1 for first, last, _ in ranges)
            if covered > most:
                best, most = ranges, covered
            if most == REDIS_CLUSTER_HASH_SLOTS:
                break
        self._asked = {one for one in self._asked if not one.done()}
        self._is_stale |= most < REDIS_CLUSTER_HASH_SLOTS
        if best:
            await self._set_owners(best)

    async def _set_owners(self, ranges: list[SlotRange]) -> None:
        owners: list[RedisNode | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        for first, last, addresses in ranges:
            primary, *_ = [self._at(address) for address in addresses]
            owners[first : last + 1] = [primary] * (last - first + 1)
        self._owners = owners
        named = {address for *_, addresses in ranges for address in addresses} | set(self._url.hosts)
        for address in set(self._servers) - named:
            if not self._servers[address].running:
                await self._servers.pop(address).close()


def _probe_values(owners: Sequence[RedisNode | None]) -> list[str]:
    values: dict[RedisNode, str] = {}
    wanted = {one for one in owners if one is not None}
    while wanted - values.keys():
        value = secrets.token_hex(8)
        owner = owners[_slot_of(probe_tag(value))]
        if owner is not None:
            values[owner] = value
    return list(values.values())


def _key_of(command: Sequence[Arg]) -> str:
    return str(command[3] if command[0] in ("EVALSHA", "EVAL") else command[1])


def _slot_of(key: str) -> int:
    return key_slot(key.encode())


async def _slots_of(asked: RedisNode) -> list[SlotRange] | StorageError:
    try:
        (reply,) = await asked.send([("CLUSTER", "SLOTS")])
        if isinstance(reply, Exception):
            return translated(reply, asked.named)
        return [
            (int(first), int(last), [_address(node, asked) for node in nodes])
            for first, last, *nodes in reply
            if 0 <= first <= last < REDIS_CLUSTER_HASH_SLOTS and nodes
        ]
    except StorageError as error:
        return error
    except (TypeError, ValueError, LookupError, AttributeError):
        return StoreUnavailable(
            "A server of the Redis cluster does not answer as Redis does. Check the hosts in the URL.",
            cause=asked.named,
        )


def _address(node: list[Any], asked: RedisNode) -> HostPort:
    """A server that does not know its own host leaves it out."""
    host = (node[0] or b"").decode()
    return (host if host not in ("", "?") else asked.host, int(node[1]))
