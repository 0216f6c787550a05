"""Small results of agents through services over one PostgreSQL, and what their ledger must then have."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx

from tests.counts import FULL
from tests.faults.service_process import Service

SESSIONS = 3
PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.0 if FULL else 0.06
"""Of a writer between two results: else the load alone keeps the processors busy."""


@dataclass
class Load:
    """A named call is sent, to any service, until it is acknowledged; another one once."""

    services: list[Service]
    name: str = "run"
    seed: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Tokens by the id of the entry."""
    named: dict[str, str] = field(default_factory=dict)
    """Entry ids by call id."""
    retried: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Codes of the errors."""
    sent: int = 0
    longest_refusal: float = 0.0
    """Seconds until the answer."""

    def __post_init__(self) -> None:
        self._source = random.Random(self.seed)
        self.clients = [service.client() for service in self.services]

    async def run(self, stopping: asyncio.Event, writers: int = 4) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(writers):
                tasks.create_task(self._write(stopping))

    async def until(self, count: int) -> None:
        """So many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.acknowledged) < wanted:
                await asyncio.sleep(0.01)

    async def _write(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            self.sent += 1
            call_id = f"{self.name}-{self.sent}" if self._source.random() < 0.5 else None
            words = " word" * self._source.randrange(1, 200)
            body = {"session_id": self.session(self.sent), "tool_name": "grep", "content": words}
            if call_id is not None:
                body["tool_call_id"] = call_id
            tries = 1
            while not await self._acknowledge(body, call_id) and call_id is not None:
                tries += 1
                await asyncio.sleep(0.05)
            self.retried += tries > 1 and call_id is not None
            await asyncio.sleep(PAUSE_SECONDS)

    def session(self, number: int) -> str:
        return f"{self.name}-{number % SESSIONS}"

    async def _acknowledge(self, body: dict[str, str], call_id: str | None) -> bool:
        began = time.monotonic()
        try:
            answer = await self._source.choice(self.clients).post("/results", json=body)
        except httpx.TransportError:
            return False
        found = answer.json()
        if answer.status_code != 200:
            self.refused[found["code"]] += 1
            self.longest_refusal = max(self.longest_refusal, time.monotonic() - began)
            await asyncio.sleep(0.02)
            return False
        assert found["outcome"] == "pass", found
        assert not any("not recorded" in warning for warning in found["warnings"]), found
        self.acknowledged[found["entry_id"]] = found["measure"]["tokens"]
        if call_id is not None:
            self.named[call_id] = found["entry_id"]
        return True

    async def entries(self) -> list[dict[str, object]]:
        headers = {"Accept": "application/x-ndjson"}
        answer = await self._get("/accounting/entries", {"type": "tool"}, headers)
        return [json.loads(line) for line in answer.text.splitlines()]

    async def lost(self) -> set[str]:
        """The ids of acknowledged entries that are not there."""
        return self.acknowledged.keys() - {str(entry["id"]) for entry in await self.entries()}

    async def check(self) -> None:
        """All that was acknowledged is there, each call once; sums and budgets are those of the entries."""
        entries = await self.entries()
        ids = [str(entry["id"]) for entry in entries]
        assert len(set(ids)) == len(ids)
        assert self.acknowledged.keys() <= set(ids)
        calls = Counter(str(entry["tool_call_id"]) for entry in entries if entry["tool_call_id"])
        assert set(calls.values()) <= {1}
        assert self.named.keys() <= calls.keys()
        by_id = {str(entry["id"]): entry for entry in entries}
        for entry_id, tokens in self.acknowledged.items():
            assert by_id[entry_id]["tokens_out"] == tokens
        for client in self.clients:
            total = (await self._get("/accounting/summary", {"type": "tool"}, client=client)).json()
            assert (total["complete"], total["total"]["entries"]) == (True, len(entries))
            assert total["total"]["tokens_out"] == sum(_tokens(entry) for entry in entries)
        for number in range(SESSIONS):
            session_id = self.session(number)
            charged = sum(_tokens(entry) for entry in entries if entry["session_id"] == session_id)
            session = (await self._get(f"/sessions/{session_id}", {})).json()
            assert session["budget"]["reserved_tokens"] == charged

    async def _get(
        self,
        path: str,
        asked: dict[str, str],
        headers: dict[str, str] | None = None,
        client: httpx.AsyncClient | None = None,
    ) -> httpx.Response:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                answer = await (client or self.clients[0]).get(path, params=asked, headers=headers)
                if answer.status_code == 200:
                    return answer
                assert answer.status_code == 503, answer.text
                await asyncio.sleep(0.1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self.clients:
            await client.aclose()
        if error is None:
            assert [service.failures() for service in self.services if service.failures()] == []

    @asynccontextmanager
    async def writing(self, writers: int = 4) -> AsyncIterator[None]:
        """Agents write until the end of the context. They end at once if it raises: they try again as long as
        the server is away."""
        stopping = asyncio.Event()
        running = asyncio.create_task(self.run(stopping, writers))
        try:
            yield
        except BaseException:
            running.cancel()
            raise
        stopping.set()
        await running


def _tokens(entry: dict[str, object]) -> int:
    tokens = entry["tokens_out"]
    assert isinstance(tokens, int)
    return tokens
