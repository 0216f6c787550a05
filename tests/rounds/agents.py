"""Agents that send results through a balancer and repeat what was not answered, and what came of each try."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.faults.calls import Call, Kept, text_of

SIZES = (2_000, 13_000, 40_000, 200_000, 1_100_000)
WEIGHTS = (70, 15, 10, 4, 1)
THINK_SECONDS = 4.0
"""So that 200 agents are about what two cores bear, with replicas, stores and balancer beside them."""
RETRY_SECONDS = 0.5
EXPECTED = frozenset({200, 201, 503})


@dataclass
class Tally:
    """`failures`: when a try failed, Unix seconds. `unexpected`: answers that no fault may cause."""

    allowed: frozenset[int] = EXPECTED
    answers: Counter[int | str] = field(default_factory=Counter)
    unexpected: Counter[int | str] = field(default_factory=Counter)
    failures: list[float] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    passed: int = 0

    @property
    def answered(self) -> int:
        return self.answers[200] + self.answers[201]

    def note(self, answer: int | str) -> None:
        self.answers[answer] += 1
        if answer not in (200, 201):
            self.failures.append(time.time())
        if isinstance(answer, int) and answer not in self.allowed:
            self.unexpected[answer] += 1


class Agents:
    """`stop` ends them once each has an answer for its last result."""

    def __init__(self, url: str, key: str, count: int, tally: Tally, run: str) -> None:
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"},
            trust_env=False,
            timeout=30,
            limits=httpx.Limits(max_connections=None),
        )
        self._count, self._tally, self._run = count, tally, run
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def client(self) -> httpx.AsyncClient:
        return self._client

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work(number)) for number in range(self._count)]

    async def stop(self) -> None:
        self._over.set()
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        await self._client.aclose()

    async def _work(self, agent: int) -> None:
        source = random.Random(f"{self._run}-{agent}")
        number = 0
        # They do not begin all at once.
        await self._think(source.uniform(0, THINK_SECONDS))
        while not self._over.is_set():
            name = f"{self._run}-{agent}-{number}"
            size = source.choices(SIZES, WEIGHTS)[0]
            session = f"{self._run}-{agent}-{number // 50}"
            await self._sent(Call(session, text_of(name, size), name, is_streamed=size > 40_000))
            number += 1
            await self._think(source.uniform(0.2, 1.8) * THINK_SECONDS)

    async def _think(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)

    async def _sent(self, call: Call) -> None:
        while True:
            try:
                answer = await call.send(self._client)
            except httpx.TransportError:
                # A closed connection: the agent still holds its copy.
                self._tally.note("closed")
            else:
                self._tally.note(answer.status_code)
                if answer.status_code == 201:
                    self._tally.kept.append(Kept.of(call, answer))
                    return
                if answer.status_code == 200:
                    self._tally.passed += 1
                    return
            await asyncio.sleep(RETRY_SECONDS)
