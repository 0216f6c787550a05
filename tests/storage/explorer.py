"""Runs calls over a real Redis command by command, in an order that is chosen: every order can be walked."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError

from tests.counts import FULL, count

T = TypeVar("T")
Words = tuple[Any, ...]
MOST_ORDERS, RANDOM_ORDERS = 500, count(2, 10)
"""Of one set of calls."""
_LONGEST_SECONDS = 30.0


class Orders:
    """Chooses what runs next: all orders, depth first, or with a seed random ones."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._prefix: list[int] = []
        self._taken: list[tuple[int, int]] = []

    def choose(self, most: int) -> int:
        place = len(self._taken)
        chosen = 0 if self._random is None else self._random.randrange(most)
        chosen = self._prefix[place] if place < len(self._prefix) else chosen
        self._taken.append((chosen, most))
        return chosen

    def has_next(self) -> bool:
        taken, self._taken = self._taken, []
        while taken and self._random is None:
            chosen, most = taken.pop()
            if chosen + 1 < most:
                self._prefix = [*(one for one, _ in taken), chosen + 1]
                return True
        return self._random is not None


@dataclass(eq=False)
class Made:
    """A call that was made. It began with its first command. If it `is_lost`, its caller was disconnected."""

    act: Any
    began: float = float("inf")
    ended: float = float("inf")
    outcome: object = None
    is_lost: bool = False


@dataclass(eq=False)
class Waiting:
    """A command, or, after it has run, its reply. Without `future` its caller was disconnected."""

    words: Words
    made: Made
    is_slow: bool
    future: asyncio.Future[Any] | None
    reply: Any = None
    has_run: bool = False


_made: ContextVar[Made | None] = ContextVar("made", default=None)


@dataclass
class Explorer:
    """Runs calls command by command. At most `faults` times a reply is lost, so that the command runs again,
    or the caller is disconnected, before or after its command runs. A reply `is_slow` where calls share a
    replica: then another reply may overtake it."""

    server: "Redis"
    orders: Orders = field(default_factory=Orders)
    faults: int = 0
    is_slow: bool = False
    log: list[str] = field(default_factory=list)
    _waiting: list[Waiting] = field(default_factory=list)

    async def send(self, *words: Any) -> Any:
        made = _made.get()
        if made is None:
            return self.server.execute_command(*words)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiting(words, made, self.is_slow, future))
        return await future

    async def explore(self, programs: Sequence[Sequence[Any]], ports: Sequence[Any]) -> list[Made]:
        """Runs the programs at once, the calls of each one after another."""
        calls = [[Made(act) for act in program] for program in programs]

        async def run(program: list[Made]) -> None:
            for made in program:
                _made.set(made)
                if self.is_slow:
                    await self.send("BEGIN")
                made.outcome = await made.act.on(ports[made.act.replica])
                made.ended = len(self.log)

        tasks = [asyncio.create_task(run(program)) for program in calls]
        loop: Any = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)
            while loop._ready:
                await asyncio.sleep(0)
            if self._waiting:
                self._step()
            elif all(task.done() for task in tasks):
                break
            else:
                await self._work_in_a_thread(tasks)
        await asyncio.gather(*tasks)
        return [made for program in calls for made in program]

    async def _work_in_a_thread(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """No call waits for a command: one has work in a thread, which ends when its processor is free."""
        deadline = time.monotonic() + _LONGEST_SECONDS
        while not self._waiting and not all(task.done() for task in tasks):
            assert time.monotonic() < deadline, "\n".join(
                ["a call waits for what never comes", *map(str, tasks), *self.log]
            )
            await asyncio.sleep(0.001)

    def _step(self) -> None:
        choices = [("deliver" if one.has_run else "run", one) for one in self._waiting]
        if self.faults:
            # To delete a tenant twice deletes more than once.
            sent = [one for one in self._waiting if one.future and not one.has_run and len(one.words) > 1]
            sent = [one for one in sent if one.made.act.name != "delete_tenant"]
            choices += [(how, one) for one in sent for how in ("lose", "disconnect", "delay")]
        how, one = choices[self.orders.choose(len(choices))]
        self.log.append(f"{how} {' '.join(map(str, one.words))[:90]} of {one.made.act!s:.120}")
        if how != "deliver":
            one.made.began = min(one.made.began, len(self.log))
        if how in ("run", "lose", "disconnect") and one.words[0] != "BEGIN":
            try:
                one.reply = self.server.execute_command(*one.words)
            except RedisError as error:
                one.reply = error
        if how in ("lose", "disconnect", "delay"):
            self.faults -= 1
        if how in ("disconnect", "delay"):
            one.made.is_lost = True
            assert one.future is not None
            one.future.set_exception(Disconnected())
            one.future = None
        one.has_run = how == "run"
        if how in ("deliver", "disconnect") or (how == "run" and not one.is_slow):
            self._waiting.remove(one)
            if one.future is not None and isinstance(one.reply, Exception):
                one.future.set_exception(one.reply)
            elif one.future is not None:
                one.future.set_result(one.reply)


@dataclass
class Client:
    """Takes the place of redis-py's."""

    explorer: Explorer

    async def execute_command(self, *words: Any) -> Any:
        return await self.explorer.send(*words)

    def pipeline(self, transaction: bool) -> "Pipeline":
        return Pipeline(self.explorer)

    async def aclose(self) -> None:
        return None


@dataclass
class Pipeline:
    """Others may run between its commands."""

    explorer: Explorer
    commands: list[Words] = field(default_factory=list)

    def execute_command(self, *words: Any) -> None:
        self.commands.append(words)

    async def execute(self, raise_on_error: bool) -> list[Any]:
        return [await self.explorer.send(*words) for words in self.commands]


def done(work: Coroutine[Any, Any, T]) -> T:
    """Runs what the reference does, which never waits."""
    with pytest.raises(StopIteration) as stop:
        work.send(None)
    answer: T = stop.value.value
    return answer


def is_linear(
    made: list[Made], end: Callable[[Sequence[Any]], tuple[list[object], object]], found: object
) -> bool:
    """Whether some order of the calls, which `end` runs on the reference, has their outcomes and ends as
    found. Lost calls have happened or not."""

    def search(order: list[Made], rest: list[Made]) -> bool:
        answers, state = end([one.act for one in order])
        if order and not order[-1].is_lost and order[-1].outcome != answers[-1]:
            return False
        if all(one.is_lost for one in rest) and state == found:
            return True
        return any(
            search([*order, one], [other for other in rest if other is not one])
            for one in rest
            if not any(other.ended < one.began and not other.is_lost for other in rest if other is not one)
        )

    return search([], made)


def walked(seed: int | None) -> Iterator[Orders]:
    """A few random orders; without a seed, in `make faults`, all orders, or MOST_ORDERS."""
    is_random = seed is not None or not FULL
    orders = Orders(seed or 0) if is_random else Orders()
    for _ in range(RANDOM_ORDERS if is_random else MOST_ORDERS):
        yield orders
        if not orders.has_next():
            return
