"""The tool results in the messages of a conversation, governed and replaced.

A client sends the whole conversation with each request, and keeps its tool results as they were. Each is
governed once, by its call; in later requests the same text stands in its place, so that the caches of model
providers stay valid. The text depends neither on later messages nor on the time.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import anyio.lowlevel
import msgspec

from app.doors.govern_call import arguments_of, govern_call
from app.doors.shapes import MessageCall, MessageResult, shape_of
from app.masking.redactions import new_session
from app.operations.tracing import GOVERN
from app.runtime import Runtime
from app.seen_messages import SeenResult
from content.json_text import JsonEdit, JsonPath, as_json, edited_value, text_sha256, value_at
from content.redaction.masks import masks_in
from domain.budget import Session
from domain.doors import Door
from domain.errors import SpillgateError
from domain.handles import SessionKey
from domain.hooks.call import MAX_NAME, OWN_TOOL, HookCall

DIGEST_CHARS = 24
"""Characters of the id of a call that is named by a digest."""

DoorOf = Callable[[str | None], Door | None]
"""Called with the id of a call."""

_AT_A_TIME = 16
_STEP_SECONDS = 0.0005
"""The most seconds of one step through the messages. Then the event loop serves other requests."""

_NAMES = frozenset(
    {"role", "type", "id", "name", "call_id", "tool_call_id", "tool_use_id", "toolUseId", "status"}
)
"""Members of a result that name the call it answers."""

_HOUR_MS = 3_600_000
_UNNAMED = "tool"


@dataclass(frozen=True, slots=True)
class GovernedMessages:
    """`seen`: the outcome of each tool result that was governed, in order. `edits`: the edits of the messages
    that change, by the position of the message. `error`: why some results were not replaced."""

    seen: list[SeenResult]
    edits: dict[int, list[JsonEdit]]
    error: SpillgateError | None


class PlacedResult(NamedTuple):
    """A tool's result, where its message is, and the call that it answers."""

    position: int
    result: MessageResult
    tool: str
    arguments: Any


class Conversation:
    """One request's messages, in any of the shapes, and the session that they belong to."""

    def __init__(
        self,
        messages: Sequence[Any],
        key: SessionKey,
        door: DoorOf,
        *,
        is_shared: bool = False,
        own: str = "",
    ) -> None:
        """`is_shared`: other conversations have the same session. A call is then named by a digest of all
        that its outcome follows from. `own` is a further name of a tool whose results are left alone."""
        self._messages = messages
        self._key = key
        self._door = door
        self._is_shared = is_shared
        self._own = own

    async def governed(self, rt: Runtime) -> GovernedMessages:
        """Governs all results except those of Spillgate's own tools. After an error, results that are not
        governed yet stay as they are."""
        try:
            results = await self._results()
            session = await rt.ledger.session(self._key) if results else None
            seen, fresh = await self._looked_up(results, session, rt)
        except SpillgateError as error:
            return GovernedMessages([], {}, error)
        errors: list[SpillgateError] = []

        async def govern() -> None:
            until = perf_counter() + _STEP_SECONDS
            for digest, numbers in waiting:
                if errors:
                    return
                until = await _yielded(until)
                call = self._call(results[numbers[0]])
                if call.tool == self._own or not call.is_governable:
                    continue
                try:
                    with rt.observer.part(GOVERN):
                        answer = await self._governed(call, rt)
                except SpillgateError as error:
                    errors.append(error)
                    return
                if session is not None:
                    rt.seen_messages.keep(digest, answer, rt.clock() + min(_HOUR_MS, rt.retention_ms // 4))
                seen.update(dict.fromkeys(numbers, answer))

        waiting = iter(fresh.items())
        # A group of anyio takes five times as long, 0.02 ms for each task.
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(_AT_A_TIME, len(fresh))):
                tasks.create_task(govern())
        edits: dict[int, list[JsonEdit]] = {}
        until = perf_counter() + _STEP_SECONDS
        for number, placed in enumerate(results):
            until = await _yielded(until)
            one = seen.get(number)
            changes = await self._changes(placed, one.text if one else None, session, rt)
            if changes:
                edits.setdefault(placed.position, []).extend(changes)
        return GovernedMessages(
            [one for _, one in sorted(seen.items())], edits, errors[0] if errors else None
        )

    async def _changes(
        self, placed: PlacedResult, text: str | None, session: Session | None, rt: Runtime
    ) -> list[JsonEdit]:
        """Puts `text` in place of a replaced result. Masks the other members of the message that hold parts
        of the result."""
        result = placed.result
        changes = [] if text is None else list(result.edits(text))
        if placed.tool == self._own or OWN_TOOL.fullmatch(placed.tool):
            return changes
        session = session or new_session(self._key)
        redaction = rt.redactions.of_tool(session, placed.tool, self._door(result.call_id))
        if redaction is None:
            return changes
        whole = value_at(self._messages[placed.position], result.path)
        rest = _at([(place.path, "") for place in result.places], result.path)
        data = as_json(edited_value(whole, rest) if rest else whole)
        masked = await redaction.masked_json(data, keeps_numbers=True)
        if masked is data:
            return changes
        rt.observer.masked(masks_in(masked.decode()))
        named = {name: whole[name] for name in _NAMES if name in whole}
        shown = msgspec.json.decode(masked) | named
        texts = _at(changes, result.path) or [(path, value_at(whole, path)) for path, _ in rest]
        return [(result.path, edited_value(shown, texts) if texts else shown)]

    async def _governed(self, call: HookCall, rt: Runtime) -> SeenResult:
        arguments = arguments_of(call)
        if self._is_shared:
            names = "\0".join((repr(self._door("")), call.call_id or "", call.tool, arguments or "", ""))
            digest = await text_sha256(names, call.texts)
            call = call._replace(call_id=digest[:DIGEST_CHARS])
        outcome = await govern_call(call, arguments, self._key.tenant, self._door(call.call_id), rt)
        before = after = outcome.measure.tokens
        if outcome.text is not None:
            after = await rt.count(outcome.text, rt.known_models.tokenizer(None))
        return SeenResult(outcome.text, outcome.handle is not None, before, after, call.call_id)

    async def _results(self) -> list[PlacedResult]:
        """The results, each with the nearest earlier call that it answers."""
        results: list[PlacedResult] = []
        calls = _Calls()
        until = perf_counter() + _STEP_SECONDS
        for position, message in enumerate(self._messages):
            until = await _yielded(until)
            shape = shape_of(message)
            if shape is None:
                continue
            calls.add(shape.calls(message))
            for result in shape.results(message):
                call = calls.answered_by(result)
                named = (result.name, None) if call is None else (call.tool, call.arguments)
                results.append(PlacedResult(position, result, named[0] or _UNNAMED, named[1]))
        return results

    def _call(self, one: PlacedResult) -> HookCall:
        result = one.result
        return HookCall(
            tool=one.tool,
            session=self._key.session_id,
            texts=result.texts,
            answer=lambda text: {},
            shown=None,
            call_id=result.call_id if 0 < len(result.call_id) <= MAX_NAME else None,
            arguments=one.arguments,
            is_error=result.is_error,
            client="headroom" if self._is_shared else "litellm",
        )

    async def _looked_up(
        self, results: list[PlacedResult], session: Session | None, rt: Runtime
    ) -> tuple[dict[int, SeenResult], dict[str, list[int]]]:
        """Returns the answers to results that were seen before, and the numbers of the others by a digest:
        results with the same call and content are governed once. Answers are kept in memory if the session
        is known."""
        seen: dict[int, SeenResult] = {}
        fresh: dict[str, list[int]] = {}
        life = "" if session is None else _life(session)
        begin = f"{life}\0{self._door('')!r}" if self._is_shared else life
        now, until = rt.clock(), perf_counter() + _STEP_SECONDS
        for number, (_, result, tool, arguments) in enumerate(results):
            until = await _yielded(until)
            id = result.call_id if len(result.call_id) <= MAX_NAME else ""
            names = f"{begin}\0{len(id)}\0{len(tool)}\0{id}{tool}\n"
            digest = await text_sha256(names, [_written(arguments), *result.texts])
            answer = rt.seen_messages.find(digest, now) if life else None
            if answer is None:
                fresh.setdefault(digest, []).append(number)
            else:
                seen[number] = answer
        return seen, fresh


def _life(session: Session) -> str:
    """Changes when the session or its tenant is deleted."""
    times = f"{session.epoch}\0{session.created_at}\0{session.ended_at}"
    return f"{session.key.tenant}\0{session.key.session_id}\0{times}"


class _Calls:
    """The calls of a conversation, up to a message."""

    def __init__(self) -> None:
        self._by_id: dict[str, MessageCall] = {}
        self._in_order: dict[str, deque[MessageCall]] = {}

    def add(self, calls: Iterable[MessageCall]) -> None:
        """Adds the calls of one message. The results of calls without an id come before the next message with
        such calls."""
        nameless = []
        for call in calls:
            if call.id:
                self._by_id[call.id] = call
            else:
                nameless.append(call)
        if nameless:
            self._in_order = {}
        for call in nameless:
            self._in_order.setdefault(call.tool, deque()).append(call)

    def answered_by(self, result: MessageResult) -> MessageCall | None:
        if result.call_id:
            return self._by_id.get(result.call_id)
        waiting = self._in_order.get(result.name)
        return waiting.popleft() if waiting else None


def _written(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else as_json(arguments).decode()


def _at(edits: Iterable[JsonEdit], path: JsonPath) -> list[JsonEdit]:
    """The edits of a message as those of the value that `path` leads to."""
    return [(inner[len(path) :], value) for inner, value in edits]


async def _yielded(until: float) -> float:
    """Lets other requests run if `until` has passed. Returns the end of the next step."""
    if perf_counter() < until:
        return until
    await anyio.lowlevel.checkpoint()
    return perf_counter() + _STEP_SECONDS
