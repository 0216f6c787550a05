"""A model backend on a free loopback port that misbehaves by script, down to single bytes.

    async with Backend("error_500", "answers") as backend:
        ...  # point the service, or an OpenAIModel, at backend.base_url

A request uses up one behaviour of the script; the last one goes on for ever. Their names are the keys of
BEHAVIOURS; SCRIPTS holds a script for each of the ways that a service has to survive.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from anyio.from_thread import start_blocking_portal

from tests.extraction.behaviours import (
    BEHAVIOURS,
    SCRIPTS,
    Answer,
    Asked,
    Behaviour,
    Exchange,
    Spoken,
    bomb,
    completion,
    prompt_text,
)

__all__ = ["BEHAVIOURS", "SCRIPTS", "Asked", "Backend", "Spoken", "completion", "report", "running"]

REFUSES = "refuses"

_OPENING = re.compile(r"<(ai-agent-[A-Za-z0-9_-]+-FINAL)")


def report(body: dict[str, Any], text: str = "All is well.") -> str:
    """The text in the wrapper that the request's prompt asks for; bare where it asks for none."""
    tags = _OPENING.findall(prompt_text(body))
    return f'<{tags[-1]} format="text">\n{text}\n</{tags[-1]}>' if tags else text


def running() -> set[asyncio.Task[Any]]:
    """The tasks of this loop but for those that run the tests."""
    return {task for task in asyncio.all_tasks() if "TestRunner" not in repr(task.get_coro())}


@contextmanager
def answering(text: str) -> Iterator[str]:
    """The base URL of a backend in a thread of its own, whose model reports this text."""
    with start_blocking_portal() as portal:
        backend = Backend(answer=lambda body: report(body, text))
        with portal.wrap_async_context_manager(backend):
            yield backend.base_url


class Backend:
    """`answer` says what the behaviour "answers" does; `latency`, in seconds, how long it thinks."""

    def __init__(self, *script: str | Behaviour, answer: Answer = report, latency: float = 0.0) -> None:
        self.answer = answer
        self.latency = latency
        self.asked: list[Asked] = []
        """Every request so far."""
        self.most_at_a_time = 0
        """Requests that were under way together, at most."""
        self._script: list[str | Behaviour] = list(script) or ["answers"]
        self._open: dict[asyncio.Task[None], tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self.opened = 0
        """Connections so far."""
        self._under_way = 0
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def requests(self) -> int:
        return len(self.asked)

    async def reached(self, requests: int) -> None:
        while self.requests < requests:
            await asyncio.sleep(0.01)

    @property
    def connections(self) -> int:
        """Open now, on the other side as well."""
        return sum(not reader.at_eof() for reader, _ in self._open.values())

    async def play(self, *script: str | Behaviour) -> None:
        """Goes on with another script. Where it begins with "refuses" nothing listens any more."""
        self._script = list(script)
        self._prepare()
        await self._listen_or_not()

    async def idle(self, seconds: float = 2.0) -> bool:
        """Whether all connections are closed within that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.connections:
                    await asyncio.sleep(0.005)
        return not self.connections

    async def __aenter__(self) -> Self:
        self._prepare()
        await self._listen()
        await self._listen_or_not()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._hush()
        # A connection that was accepted a moment ago has no task yet.
        await asyncio.sleep(0.01)
        served = dict(self._open)
        for task, (_, writer) in served.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*served, return_exceptions=True)
        await asyncio.sleep(0)

    def _prepare(self) -> None:
        # It takes a second to make, which is not the request's.
        if "gzip_bomb" in self._script:
            bomb()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _hush(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _listen_or_not(self) -> None:
        if self._script[0] == REFUSES:
            await self._hush()
            for _, writer in self._open.values():
                writer.close()
        elif self._server is None:
            await self._listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = reader, writer
        self.opened += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            del self._open[task]
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether there may be another."""
        asked = await _read(reader)
        self.asked.append(asked)
        chosen = self._script[0]
        if len(self._script) > 1:
            del self._script[0]
            await self._listen_or_not()
        exchange = Exchange(asked, self.answer, self.latency, reader, writer)
        self._under_way += 1
        self.most_at_a_time = max(self.most_at_a_time, self._under_way)
        try:
            await (BEHAVIOURS[chosen] if isinstance(chosen, str) else chosen)(exchange)
        finally:
            self._under_way -= 1
        return not exchange.is_last


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Asked(first.split(" ")[1], headers, json.loads(body))
