"""What the tests of the strategies share: an actor for the models, and a stored text."""

import asyncio
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from hashlib import sha256

import anyio

from domain.errors import ModelError, ModelRefused
from domain.extraction import ByteRange, LlmUsage
from domain.handles import Handle
from domain.llm import Message, ModelTerms, Prompt, Reply, ToolCall
from domain.results import Measure, StoredResult
from extraction.asked_bytes import AskedBytes
from extraction.prompts import closing, inside, opening
from extraction.task import ExtractionLimits, Progress, Task
from storage.memory import MemoryStore

Play = Callable[[Prompt], Reply | ModelError | Awaitable[Reply]]

SMALL = ModelTerms("small", 8_000, 1_000)
HANDLE = Handle("s", "00000000-0000-4000-8000-000000000000")


class Actor:
    """Implements Asking: every prompt is answered by `play`, `slots` at a time, each after its latency."""

    def __init__(
        self,
        play: Play,
        *,
        terms: ModelTerms = SMALL,
        seconds: float = 60.0,
        latency: float | Callable[[Prompt], float] = 0.0,
        slots: int = 8,
        calls_left: int | None = None,
    ) -> None:
        self.terms = terms
        self.prompts: list[Prompt] = []
        self.waiting = self.in_flight = self.most_in_flight = self.most_waiting = 0
        self._play = play
        self._latency = latency
        self._slots = anyio.Semaphore(slots)
        self._most_calls = calls_left
        self.ends = anyio.current_time() + seconds

    @property
    def concurrency(self) -> int:
        return 8

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.ends - anyio.current_time())

    @property
    def calls_left(self) -> int | None:
        return None if self._most_calls is None else max(0, self._most_calls - len(self.prompts))

    @property
    def usage(self) -> LlmUsage:
        return LlmUsage(len(self.prompts), 10 * len(self.prompts), len(self.prompts))

    def count(self, text: str) -> int:
        return -(-len(text.encode()) // 4)

    async def count_in_thread(self, text: str) -> int:
        return self.count(text)

    def has_model_without(self, names: Collection[str]) -> bool:
        return False

    def leave_out(self, name: str, reason: str) -> None:
        raise AssertionError("There is no other model.")

    async def ask(self, prompt: Prompt, seconds: float | None = None, without: Collection[str] = ()) -> Reply:
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            async with self._slots:
                return await self._answered(prompt)
        finally:
            self.waiting -= 1

    async def _answered(self, prompt: Prompt) -> Reply:
        if self.calls_left == 0:
            raise ModelRefused("the cap is reached")
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.prompts.append(prompt)
        try:
            await asyncio.sleep(self._latency(prompt) if callable(self._latency) else self._latency)
            reply = self._play(prompt)
            if inspect.isawaitable(reply):
                return await reply
            if isinstance(reply, ModelError):
                raise reply
            return reply
        finally:
            self.in_flight -= 1


class Kept:
    """Implements Findings."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def find(self, key: str) -> str | None:
        return self.texts.get(key)

    async def keep(self, key: str, finding: str) -> None:
        self.texts[key] = finding


def said(prompt: Prompt) -> str:
    return "\n".join(message.content for message in prompt.messages)


def nonce_of(prompt: Prompt) -> str:
    return str(re.findall(r"<ai-agent-([0-9a-f]+)-FINAL", said(prompt))[-1])


def reporting(prompt: Prompt, text: str) -> Reply:
    nonce = nonce_of(prompt)
    return Reply(f"{opening(nonce)}\n{text}\n{closing(nonce)}", "stop")


def calling(*calls: tuple[str, str]) -> Reply:
    named = tuple(ToolCall(f"call-{index}", name, given) for index, (name, given) in enumerate(calls))
    return Reply("", "tool_calls", named)


def data_of(prompt: Prompt) -> str:
    return "".join(inside("data", said(prompt)))


def findings_of(prompt: Prompt) -> list[str]:
    return inside("finding", said(prompt))


def tool_messages(prompt: Prompt) -> list[Message]:
    return [message for message in prompt.messages if message.tool_call_id is not None]


async def stored_text(text: str, tokens: int | None = None) -> tuple[MemoryStore, StoredResult]:
    data = text.encode()
    measured = -(-len(data) // 4) if tokens is None else tokens
    measure = Measure(len(data), text.count("\n") + 1, len(text), measured, True)
    store = MemoryStore(clock=lambda: 0, retention_seconds=3600, max_bytes=0)
    stored = StoredResult(
        tenant="default",
        handle=HANDLE,
        tool_name="journal",
        tool_arguments=None,
        tool_kind=None,
        provider=None,
        is_error=False,
        measure=measure,
        sha256=sha256(data).hexdigest(),
        stored_at=0,
        expires_at=0,
        epoch=0,
    )
    async with store.draft(stored.tenant) as draft:
        await draft.write(data)
        await draft.publish(stored)
    return store, stored


async def task_of(
    text: str,
    asking: Actor | None,
    *,
    extract: str = "What went wrong?",
    max_bytes: int = 12_000,
    ranges: Iterable[ByteRange] = (),
    kept: Kept | None = None,
    limits: ExtractionLimits = ExtractionLimits(),  # noqa: B008
    steps: list[Progress] | None = None,
) -> Task:
    store, stored = await stored_text(text)
    watch = [] if steps is None else steps
    asked = AskedBytes(store, stored, ranges)
    ends = math.inf if asking is None else asking.ends
    return Task(asked, extract, max_bytes, limits, asking, kept or Kept(), watch.append, ends=ends)
