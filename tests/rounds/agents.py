"""Agents that send results through a balancer and repeat what was not answered, and what came of each try."""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.faults.calls import Call, Kept, text_of

SIZES = (2_000, 13_000, 40_000, 200_000, 1_100_000)
WEIGHTS = (70, 15, 10, 4, 1)
THINK_SECONDS = 1.0
RETRY_SECONDS = 0.3
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
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def client(self) -> httpx.AsyncClient:
        return self._client

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work(number)) for number in range(self._count)]

    async def stop(self) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        await self._client.aclose()

    async def _work(self, agent: int) -> None:
        source = random.Random(f"{self._run}-{agent}")
        number = 0
        while not self._is_over:
            name = f"{self._run}-{agent}-{number}"
            size = source.choices(SIZES, WEIGHTS)[0]
            session = f"{self._run}-{agent}-{number // 50}"
            await self._sent(Call(session, text_of(name, size), name, is_streamed=size > 40_000))
            number += 1
            await asyncio.sleep(source.uniform(0.2, 1.8) * THINK_SECONDS)

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
