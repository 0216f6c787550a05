"""The tool results in the messages of a conversation, governed and replaced.

A client sends the whole conversation with each request, and keeps its tool results as they were. Each is
governed once, by the id of its call; in later requests the same text stands in its place, so that the caches
of model providers stay valid.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from time import perf_counter
from typing import Any, NamedTuple

import anyio.lowlevel
import anyio.to_thread

from app.doors.govern_call import arguments_of, govern_call
from app.doors.seen_messages import Seen
from app.edge.json_body import INLINE_JSON_BYTES, Texts, size_of, utf8_of
from app.operations.tracing import GOVERN, begin_part, end_part, note_refused
from app.runtime import Runtime
from domain.doors import Door
from domain.errors import SpillgateError
from domain.handles import SessionKey
from domain.hooks import MAX_NAME, HookCall, in_blocks, texts_of

DIGEST_CHARS = 24
"""Characters of the id of a call that is named by its content."""

_AT_A_TIME = 16
_STEP_SECONDS = 0.0005
"""The event loop serves others after so long a step through the messages."""

_HOUR_MS = 3_600_000
_UNNAMED = "tool"


@dataclass(frozen=True, slots=True)
class GovernedMessages:
    """`messages` are as many as came. `seen` has an item for each tool result that was governed, by the
    position of its message. `error`: why some results were left as they are."""

    messages: list[Any]
    seen: dict[int, Seen]
    error: SpillgateError | None

    @property
    def is_changed(self) -> bool:
        return any(one.text is not None for one in self.seen.values())


class _Result(NamedTuple):
    """A message that holds a tool's result."""

    position: int
    texts: list[str]
    call_id: str | None
    name: str
    """The name in the message; often empty."""


class Conversation:
    """One request's messages of OpenAI's chat form, and the session that they belong to."""

    def __init__(self, messages: Sequence[Any], key: SessionKey, *, by_content: bool = False) -> None:
        """`by_content`: a digest of its content is the id of a call, whatever the message says."""
        self._messages = messages
        self._key = key
        self._by_content = by_content

    async def governed(self, door: Callable[[str | None], Door | None], rt: Runtime) -> GovernedMessages:
        """All but the results of Spillgate's own tools. `door` is called with the id of a call. After an
        error of one message, those that were not governed yet stay as they are. Raises StorageError if the
        session cannot be read."""
        seen, fresh, may_keep = await self._looked_up(rt)
        calls = await self._calls_of([results[0] for results in fresh.values()], rt)
        errors: list[SpillgateError] = []

        async def govern() -> None:
            until = perf_counter() + _STEP_SECONDS
            for digest, results in waiting:
                if errors:
                    return
                until = await _yielded(until)
                first = results[0]
                call = self._call(first, *calls.get(first.position, (first.name, None)))
                if not call.is_governable:
                    continue
                part = begin_part(GOVERN)
                try:
                    answer = await self._governed(call, door, rt)
                except SpillgateError as error:
                    note_refused(error)
                    errors.append(error)
                    return
                finally:
                    end_part(part)
                if may_keep:
                    rt.seen_messages.keep(digest, answer, rt.clock() + min(_HOUR_MS, rt.retention_ms // 4))
                seen.update((result.position, answer) for result in results)

        waiting = iter(fresh.items())
        # A group of anyio takes five times as long, 0.02 ms for each task.
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(_AT_A_TIME, len(fresh))):
                tasks.create_task(govern())
        return GovernedMessages(self._replaced(seen), seen, errors[0] if errors else None)

    async def _governed(self, call: HookCall, door: Callable[[str | None], Door | None], rt: Runtime) -> Seen:
        if self._by_content:
            digest = await Texts(call.texts, rt.parsing).sha256()
            call = call._replace(call_id=digest[:DIGEST_CHARS])
        call = call._replace(client="headroom" if self._by_content else "litellm")
        outcome = await govern_call(call, arguments_of(call), self._key.tenant, door(call.call_id), rt)
        return Seen(outcome.text, outcome.handle is not None, outcome.measure.tokens, call.call_id)

    async def _looked_up(self, rt: Runtime) -> tuple[dict[int, Seen], dict[bytes, list[_Result]], bool]:
        """Returns the answers to results that were seen before, and the other results by a digest: results
        with the same call and content are governed once. True if the session is known: then answers may be
        kept in memory."""
        seen: dict[int, Seen] = {}
        fresh: dict[bytes, list[_Result]] = {}
        life: str | None = None
        now, until = rt.clock(), perf_counter() + _STEP_SECONDS
        for position, message in enumerate(self._messages):
            until = await _yielded(until)
            result = _result(position, message)
            if result is None:
                continue
            if life is None:
                life = await self._life(rt)
            call_id = "" if self._by_content or result.call_id is None else result.call_id
            begin = f"{life}\0{len(call_id)}\0{len(result.name)}\0{call_id}{result.name}"
            is_small = sum(map(size_of, result.texts)) <= INLINE_JSON_BYTES
            texts = [begin, *result.texts]
            digest = _digest(texts) if is_small else await anyio.to_thread.run_sync(_digest, texts)
            answer = rt.seen_messages.find(digest, now) if life else None
            if answer is None:
                fresh.setdefault(digest, []).append(result)
            else:
                seen[position] = answer
        return seen, fresh, bool(life)

    async def _life(self, rt: Runtime) -> str:
        """Changes when the session or its tenant is deleted. Empty if the ledger has no such session."""
        session = await rt.ledger.session(self._key)
        if session is None:
            return ""
        times = f"{session.epoch}\0{session.created_at}\0{session.ended_at}"
        return f"{self._key.tenant}\0{self._key.session_id}\0{times}"

    async def _calls_of(self, results: list[_Result], rt: Runtime) -> dict[int, tuple[str, Any]]:
        """Returns tool and arguments of the call of each result, by the position of the result. A result
        names its call; the nearest message before it that made such a call names the rest."""
        calls: dict[int, tuple[str, Any]] = {}
        waiting: dict[str, list[int]] = {}
        until = perf_counter() + _STEP_SECONDS
        # From the end on: what is new is there, and its call just before it.
        for position in range(len(self._messages) - 1, -1, -1):
            until = await _yielded(until)
            if results and results[-1].position == position:
                waiting.setdefault(results.pop().call_id or "", []).append(position)
            elif waiting:
                for id, call in _calls(self._messages[position]):
                    calls.update(dict.fromkeys(waiting.pop(id, ()), call))
            elif not results:
                break
        return calls

    def _call(self, result: _Result, tool: str, arguments: Any) -> HookCall:
        return HookCall(
            tool=tool or _UNNAMED,
            session=self._key.session_id,
            texts=result.texts,
            answer=lambda text: {"content": text},
            call_id=result.call_id,
            arguments=arguments,
        )

    def _replaced(self, seen: dict[int, Seen]) -> list[Any]:
        messages = list(self._messages)
        for position, one in seen.items():
            if one.text is not None:
                content = messages[position]["content"]
                shown = one.text if isinstance(content, str) else in_blocks(content, one.text)
                messages[position] = {**messages[position], "content": shown}
        return messages


def _result(position: int, message: Any) -> _Result | None:
    if not isinstance(message, dict) or message.get("role") not in ("tool", "function"):
        return None
    content, call_id, name = message.get("content"), message.get("tool_call_id"), message.get("name")
    texts = [content] if isinstance(content, str) else texts_of(content)
    if not texts:
        return None
    is_named = isinstance(call_id, str) and 0 < size_of(call_id) <= MAX_NAME
    return _Result(position, texts, call_id if is_named else None, name if isinstance(name, str) else "")


def _calls(message: Any) -> Iterator[tuple[str, tuple[str, Any]]]:
    """The calls that a message made, the last first: id, tool and arguments."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return
    calls = message.get("tool_calls")
    for call in reversed(calls) if isinstance(calls, list) else ():
        match call:
            case {"id": str(id), "function": {"name": str(name)} as function}:
                yield id, (name, function.get("arguments"))


def _digest(texts: Sequence[str]) -> bytes:
    digest = sha256()
    for text in texts:
        digest.update(utf8_of(text))
        digest.update(b"\n")
    return digest.digest()


async def _yielded(until: float) -> float:
    """If `until` has passed, lets other requests run. Returns the end of the next step."""
    if perf_counter() < until:
        return until
    await anyio.lowlevel.checkpoint()
    return perf_counter() + _STEP_SECONDS
