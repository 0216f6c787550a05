"""Spillgate in this process, on memory storage: what it shows instead of a result, and its answers."""

import hashlib
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import msgspec

from app.answering.tool_call import call_tool
from app.answering.tool_definitions import Tool, ToolFormat, definitions, instructions, offered_tools
from app.governing.governor import govern
from app.runtime import Runtime, open_runtime
from app.settings import Settings
from beside.hooks.agents import DOORS
from content import MAX_PATTERN_CHARS
from content.grep import Grep
from domain.budget import SessionChange
from domain.doors import Door
from domain.handles import Handle, SessionKey
from domain.hooks.call import OWN_TOOL, cut_may_pay, cut_pays
from domain.outcomes import Outcome
from domain.ports import Tokenizer
from domain.results import ToolResult
from replay.literals import plain, stands_in, without_line_numbers
from replay.runs import Result

_TENANT = "replay"
_ASK = "tool_output"
_MAX_NAME = 256

_TYPICAL_HANDLE = "session-0d9f5b8e-6c5a-4f5e-9a63-1f2b7c8d9e01/file-5b1f3c52-8a0e-8d7e-b5c1-90f4a7d3e2b6"
"""Counted instead of the handle in a text, whose random digits have more or fewer tokens each time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy to replay: that in force, with `keys` over it for every tool. `label` names it in reports."""

    label: str
    keys: tuple[tuple[str, str | int | bool], ...] = ()

    @property
    def names_repeats(self) -> bool:
        """True if the text depends on earlier results in the same run."""
        return ("repeat", "name") in self.keys

    @property
    def policy(self) -> str:
        """The session's override. A policy that only observes is replayed as if it were enforced."""
        return json.dumps({"mode": "enforce", **dict(self.keys)})


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text that the model reads: as literals are looked for in it, with its size as it was written.
    `is_stored`: the whole result is stored, and can be asked about."""

    plain: str
    tokens: int
    bytes: int
    is_stored: bool = False


@dataclass(frozen=True, slots=True)
class ReplayedResult:
    """A result, and the client whose door it comes through. `digest`: the same for the same result."""

    result: Result
    client: str
    digest: bytes


def subject_of(result: Result, client: str) -> ReplayedResult:
    digest = hashlib.sha256()
    for part in (client, result.tool, arguments_text(result) or "", result.text):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return ReplayedResult(result, client, digest.digest())


Kept = TypeVar("Kept")

_REMEMBERED_CHARS = 16 << 20
_ENTRY_CHARS = 200


class _Memory(dict[tuple[object, ...], Kept]):
    """Remembers what the service made of results. Forgets everything after 16 Mi characters."""

    _chars = 0

    def keep(self, key: tuple[object, ...], found: Kept, chars: int = 0) -> Kept:
        self._chars += chars + _ENTRY_CHARS
        if self._chars > _REMEMBERED_CHARS:
            self.clear()
            self._chars = 0
        self[key] = found
        return found


class _Body:
    """The bytes of a stored result, in which several literals are looked for."""

    def __init__(self, sha256: str, data: bytes) -> None:
        self.sha256 = sha256
        self._data = data

    @cached_property
    def _plain(self) -> str:
        return plain(self._data.decode())

    def holds(self, literal: str, *, is_quote: bool) -> bool:
        if self._is_grepped(literal):
            return True
        return literal in without_line_numbers(self._plain) if is_quote else stands_in(literal, self._plain)

    def _is_grepped(self, literal: str) -> bool:
        if "\n" in literal or len(literal) > MAX_PATTERN_CHARS:
            return False
        grep = Grep(literal, literal=True, limit=1)
        grep.feed(self._data)
        return grep.finish().total_matches > 0


class InProcessService:
    """One runtime. The results of a run are deleted after it. Many runs hold the same result: each result is
    governed once under each plan, and each question about it is asked once."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._sessions: dict[str, SessionKey] = {}
        self._handles: dict[str, dict[bytes, Handle]] = {}
        """By label of the plan, then by the digest of the subject."""
        self._number = self._calls = 0
        self._definitions: dict[tuple[Tool, ...], int] = {}
        self._texts: _Memory[ReadText | None] = _Memory()
        self._answers: _Memory[ReadText] = _Memory()
        self._held: _Memory[bool] = _Memory()
        self._body = _Body("", b"")

    def tokenizer(self, model: str | None) -> Tokenizer:
        return self._rt.known_models.tokenizer(model)

    def definition_tokens(self, plan: Plan) -> int:
        """Tokens of the tools that the plan offers, and of the instructions for the system prompt."""
        offered = tuple(offered_tools(self._rt.policies.policy("", plan.policy)))
        tokens = self._definitions.get(offered)
        if tokens is None:
            # As GET /tools sends them.
            listed = msgspec.json.encode(definitions(offered, self._rt.modes, ToolFormat.OPENAI)).decode()
            tokens = self.tokenizer(None).count(listed + instructions(offered)) if offered else 0
            self._definitions[offered] = tokens
        return tokens

    def bypasses(self, subject: ReplayedResult, plan: Plan) -> bool:
        """True if the result passes whatever its size: the client reads such files to edit them, the policy
        says so, it is an answer of Spillgate's own tool, or the client's hooks cannot replace it."""
        tool, door = subject.result.tool, _door(subject)
        if OWN_TOOL.fullmatch(tool) or not _is_hooked(subject.result, door):
            return True
        name = tool[:_MAX_NAME] or "tool"
        return self._rt.policies.policy(name, plan.policy, door=door).bypass

    async def shown(self, subject: ReplayedResult, plan: Plan) -> ReadText | None:
        """What the model reads instead of the result; None if it passes."""
        key = (plan.label, subject.digest)
        if key in self._texts and not plan.names_repeats:
            return self._texts[key]
        result = subject.result
        size = len(result.text.encode("utf-8", "replace"))
        if (
            not result.text
            or OWN_TOOL.fullmatch(result.tool)
            or not _is_hooked(result, _door(subject))
            or (result.is_cut and not cut_may_pay(size, has_file=False))
        ):
            return self._texts.keep(key, None)
        outcome = await self._govern(subject, plan)
        if outcome.text is None or (result.is_cut and not cut_pays(size, len(outcome.text.encode()))):
            return self._texts.keep(key, None)
        text = self._text(outcome.text, outcome.handle)
        return self._texts.keep(key, text, len(text.plain))

    async def answer(self, subject: ReplayedResult, question: str, plan: Plan) -> ReadText:
        """The first answer to a question about a stored result."""
        key = (plan.label, subject.digest, question)
        if key in self._answers:
            return self._answers[key]
        handle = await self._handle(subject, plan)
        asked = {"handle": str(handle), "extract": question}
        text = self._text((await call_tool(await self._session(plan), _ASK, asked, self._rt)).text, handle)
        return self._answers.keep(key, text, len(text.plain) + len(question))

    async def holds(self, subject: ReplayedResult, literal: str, plan: Plan, *, is_quote: bool) -> bool:
        """True if a search of the stored bytes finds the literal, or the literal stands there across
        escapes, lines or line numbers."""
        stored = await self._rt.store.find(_TENANT, await self._handle(subject, plan))
        if stored is None:
            return False
        key = (stored.sha256, literal, is_quote)
        if key in self._held:
            return self._held[key]
        if self._body.sha256 != stored.sha256:
            data = b"".join([chunk async for chunk in self._rt.store.read(stored)])
            self._body = _Body(stored.sha256, data)
        return self._held.keep(key, self._body.holds(literal, is_quote=is_quote))

    async def end_plan(self, plan: Plan) -> None:
        """Deletes the results that the run stored under the plan, so that memory holds only one or two copies
        of each."""
        self._handles.pop(plan.label, None)
        key = self._sessions.pop(plan.label, None)
        ended = await self._rt.ledger.end(key) if key is not None else None
        if key is not None and ended is not None:
            await self._rt.store.delete_session(key, ended.first_live_epoch)

    async def end_run(self) -> None:
        """Drops the indexes of deleted results. All plans of a run share the indexes."""
        self._body = _Body("", b"")
        await self._rt.indexes.sweep(self._rt.store)

    async def _govern(self, subject: ReplayedResult, plan: Plan) -> Outcome:
        result = subject.result
        tool_result = ToolResult(
            await self._session(plan),
            result.tool[:_MAX_NAME] or "tool",
            call_id=self._next_call_id() if plan.names_repeats else None,
            tool_arguments=arguments_text(result),
            is_error=result.is_error,
            door=_door(subject),
        )
        outcome = (await govern(tool_result, result.text, self._rt)).outcome
        if outcome.handle is not None:
            self._handles.setdefault(plan.label, {})[subject.digest] = outcome.handle
        return outcome

    def _next_call_id(self) -> str:
        self._calls += 1
        return f"call_{self._calls:012d}"

    async def _handle(self, subject: ReplayedResult, plan: Plan) -> Handle:
        """Returns the handle in this run. The text may be remembered from another run."""
        handle = self._handles.get(plan.label, {}).get(subject.digest)
        if handle is None:
            handle = (await self._govern(subject, plan)).handle
            assert handle is not None
        return handle

    def _text(self, text: str, handle: Handle | None) -> ReadText:
        if handle is not None:
            text = text.replace(str(handle), _TYPICAL_HANDLE)
        return ReadText(plain(text), self.tokenizer(None).count(text), len(text.encode()), handle is not None)

    async def _session(self, plan: Plan) -> SessionKey:
        key = self._sessions.get(plan.label)
        if key is None:
            self._number += 1
            # All handles have one length, because the room for an answer depends on the handle's length.
            key = self._sessions[plan.label] = SessionKey(_TENANT, f"replay-{self._number:012d}")
            self._rt.policies.check_override(plan.policy)
            change = SessionChange(frozenset({"policy"}), policy=plan.policy)
            await self._rt.ledger.put_session(key, change)
        return key


def _is_hooked(result: Result, door: Door | None) -> bool:
    """Whether the client lets its hook replace the result."""
    if door is None:
        return True
    return (not door.hooked or re.fullmatch(door.hooked, result.tool) is not None) and (
        door.hooks_failures or not result.is_error
    )


def _door(subject: ReplayedResult) -> Door | None:
    door = DOORS.get(subject.client)
    return None if door is None else door.of_call(subject.result.tool, arguments_text(subject.result))


def arguments_text(result: Result) -> str | None:
    """The arguments as JSON, a string as it is."""
    if result.arguments is None or isinstance(result.arguments, str):
        return result.arguments
    return json.dumps(result.arguments, ensure_ascii=False)


def in_memory(settings: Settings) -> Settings:
    """The settings with memory storage, and without a model that could be asked."""
    elsewhere = ("storage_", "store_", "ledger_", "llm_", "embed_", "accounting_", "extract_models")
    here = {name: one.default for name, one in Settings.model_fields.items() if name.startswith(elsewhere)}
    here |= {"storage_url": "memory:", "allow_request_overrides": True}
    return settings.model_copy(update=here)


@asynccontextmanager
async def open_service(settings: Settings) -> AsyncIterator[InProcessService]:
    """Raises ConfigError."""
    # The log would hold a line for each stored result.
    logging.getLogger().addHandler(logging.NullHandler())
    async with open_runtime(in_memory(settings)) as rt:
        yield InProcessService(rt)
