"""The primary that sentinels name.

After a planned failover the old primary accepts writes for ten seconds, and these are lost. Therefore the
sentinels are asked before a command if the last question is a second old, and at once when a sentinel
publishes that a failover begins or has ended. The reply of a server that is no longer the primary is
discarded.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, NamedTuple

from domain.errors import StorageError, StoreUnavailable
from storage.redis.facts import DRIVER_ERRORS, translated
from storage.redis.server import Arg, RedisNode
from storage.redis.url import HostPort, RedisUrl, client_of, sentinel_client_of

ASK_SECONDS = 1.0
"""How long an answer of the sentinels is used. Without `wait_replicas`, a planned failover may lose the
writes of this time, and of the second that sentinels need to notice a promotion."""

ANSWER_SECONDS = 0.3
"""How long a command waits for slow sentinels. After that it goes to the primary that the other sentinels
named."""

EVENTS = ("+try-failover", "+switch-master", "-failover-*")
"""What sentinels publish as a failover begins, and as it ends."""

_BEGINS = b"+try-failover"
_CONNECTIONS = 4
_FAILING_OVER = StoreUnavailable("Redis is failing over to another server. Try again.")


class _NamedPrimary(NamedTuple):
    """What a sentinel says about the primary. `epoch` counts the failovers."""

    epoch: int
    primary: HostPort
    fails_over: bool


class Sentinels:
    """One server at a time: the primary. All methods raise StoreUnavailable or StorageError."""

    def __init__(self, url: RedisUrl) -> None:
        self._url = url
        self._sentinels = [
            RedisNode(
                sentinel_client_of(url, host), _CONNECTIONS, url.address_of([host]), seconds=url.timeout
            )
            for host in url.hosts
        ]
        self._primary: RedisNode | None = None
        self._fails_over = False
        self._answered = 0
        self._has_slow = False
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._listening: list[asyncio.Task[None]] = []
        self._late = set[asyncio.Task[_NamedPrimary | StorageError]]()
        self._closing = set[asyncio.Task[None]]()
        self._why = StoreUnavailable("No sentinel can be reached. Try again.", cause=url.address)

    @property
    def servers(self) -> list[RedisNode]:
        return [] if self._primary is None else [self._primary]

    async def primaries(self) -> list[RedisNode]:
        return [await self._named()]

    async def probe_values(self) -> list[str]:
        return await (await self._named()).probe_values()

    async def send(self, commands: Sequence[Sequence[Arg]], more: float = 0.0) -> list[Any]:
        """Calls Server.send of the primary. Discards replies and raises StoreUnavailable if the server is no
        longer the primary."""
        server = await self._named()
        replies = await server.send(commands, more=more)
        if self._fails_over or server is not self._primary:
            raise _FAILING_OVER
        return replies

    async def is_alone(self, replicas: int) -> bool:
        """Whether the primary has fewer than `replicas` connected replicas and no failover is in progress:
        then no replica that lacks the last writes is about to become the primary. A sentinel that is slow to
        answer may be the one that leads a failover."""
        server = await self._named()
        (info,) = await server.send([("INFO", "replication")])
        connected = _online(info) if isinstance(info, dict) else replicas
        await self._asked_since(time.monotonic())
        is_same = server is self._primary and not self._fails_over
        is_certain = not self._has_slow and 2 * self._answered > len(self._sentinels)
        return connected < replicas and is_same and is_certain

    async def close(self) -> None:
        tasks = [*self._listening, *self._late, *self._closing, *([self._asking] if self._asking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*[one.close() for one in (*self._sentinels, *self.servers)])

    async def _named(self) -> RedisNode:
        """The primary that the answering sentinels named within ASK_SECONDS. While no sentinel answers, the
        one that was named last."""
        if not self._listening:
            self._listening = [asyncio.create_task(self._listen(one)) for one in self._sentinels]
        now = time.monotonic()
        if now - self._asked_at >= ASK_SECONDS:
            await self._asked_since(now)
        if self._fails_over:
            raise _FAILING_OVER
        if self._primary is None:
            raise StoreUnavailable(self._why.detail, cause=self._why.cause)
        return self._primary

    async def _asked_since(self, moment: float) -> None:
        """Waits until the sentinels were asked after this moment. Concurrent callers share a question."""
        while self._asked_at < moment:
            if self._asking is None or self._asking.done():
                # An empty context: the time that the running request has already waited must not shorten the
                # question.
                self._asking = asyncio.create_task(self._ask(), context=Context())
            await asyncio.shield(self._asking)

    async def _listen(self, sentinel: RedisNode) -> None:
        """Listens to the sentinel's events. If the sentinel refuses, only the question of each second
        remains."""
        while True:
            with suppress(*DRIVER_ERRORS):
                async with sentinel.client.pubsub() as events:
                    await events.psubscribe(*EVENTS)
                    async for event in events.listen():
                        self._hear(event)
            await asyncio.sleep(ASK_SECONDS)

    def _hear(self, event: dict[str, Any]) -> None:
        if event["type"] == "pmessage" and self._url.service.encode() in event["data"].split():
            self._fails_over |= event["channel"] == _BEGINS
            self._asked_at = float("-inf")

    async def _ask(self) -> None:
        """Asks all sentinels. Waits for those that are not known to be away."""
        began = time.monotonic()
        tasks = {one: asyncio.create_task(self._answer_of(one)) for one in self._sentinels}
        self._late.update(tasks.values())
        for task in tasks.values():
            task.add_done_callback(self._late.discard)
        expected = [task for one, task in tasks.items() if not one.is_away] or list(tasks.values())
        done, _ = await asyncio.wait(expected, timeout=ANSWER_SECONDS)
        outcomes = [task.result() for task in done]
        answers = [one for one in outcomes if isinstance(one, _NamedPrimary)]
        self._why = next((one for one in outcomes if isinstance(one, StoreUnavailable)), self._why)
        self._answered = len(answers)
        self._has_slow = len(done) < len(expected)
        self._fails_over = any(one.fails_over for one in answers)
        if answers:
            self._use(max(answers).primary)
        self._asked_at = began

    def _use(self, address: HostPort) -> None:
        if self._primary is not None and (self._primary.host, self._primary.port) == address:
            return
        old, url = self._primary, self._url
        self._primary = RedisNode(
            client_of(url, address), url.max_connections, url.address, *address, seconds=url.timeout
        )
        if old is not None:
            # Commands in flight fail: the old primary might still answer them.
            closing = asyncio.create_task(old.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _answer_of(self, sentinel: RedisNode) -> _NamedPrimary | StorageError:
        try:
            (reply,) = await sentinel.send([("SENTINEL", "MASTER", self._url.service)])
            if isinstance(reply, Exception):
                if "No such master" in str(reply):
                    return StoreUnavailable(
                        "The sentinels do not know the service. Check its name in the URL.",
                        cause=sentinel.named,
                    )
                return translated(reply, sentinel.named)
            found = reply if isinstance(reply, dict) else _pairs(reply)
            return _NamedPrimary(
                int(found["config-epoch"]),
                (str(found["ip"]), int(found["port"])),
                "failover_in_progress" in str(found["flags"]),
            )
        except StorageError as error:
            return error
        except (KeyError, ValueError, TypeError, AttributeError):
            return StoreUnavailable(
                "A sentinel does not answer as one. Check the hosts in the URL.", cause=sentinel.named
            )


def _online(info: dict[str, Any]) -> int:
    """The number of replicas that receive current writes."""
    replicas = [info.get(f"slave{number}") for number in range(info.get("connected_slaves", 0))]
    return sum(isinstance(one, dict) and one.get("state") == "online" for one in replicas)


def _pairs(reply: Sequence[bytes]) -> dict[str, str]:
    texts = [one.decode() for one in reply]
    return dict(zip(texts[::2], texts[1::2], strict=True))
