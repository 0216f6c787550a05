"""The product, in this process and on memory storage: what it shows instead of a result, and its answers."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.doors.hooks import DOORS, OWN_TOOL
from app.governing.governor import govern
from app.runtime import Runtime, open_runtime
from app.settings import Settings
from app.tools.call import call_tool
from app.tools.definitions import ToolFormat, definitions, instructions, offered_tools
from content.grep import Grep
from domain.budget import SessionChange
from domain.handles import Handle, SessionKey
from domain.ports import Tokenizer
from domain.results import ToolResult
from replay.literals import plain, stands_in, without_line_numbers
from replay.runs import Result

_TENANT = "replay"
_ASK = "tool_output"
_MAX_NAME = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy to replay: that in force, with `keys` over it for every tool. `label` names it in reports."""

    label: str
    keys: tuple[tuple[str, str | int | bool], ...] = ()

    @property
    def policy(self) -> str | None:
        return json.dumps(dict(self.keys)) if self.keys else None


@dataclass(frozen=True, slots=True)
class Replaced:
    """What the model reads instead of a result. `handle` is None if nothing was stored."""

    text: str
    tokens: int
    handle: Handle | None


class Product:
    """One runtime. `sessions` are emptied after each run."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._sessions: dict[str, SessionKey] = {}
        self._number = 0
        self._definitions: dict[str, int] = {}

    def tokenizer(self, model: str | None) -> Tokenizer:
        return self._rt.known_models.tokenizer(model)

    def definition_tokens(self, plan: Plan) -> int:
        """Tokens of the tools that the plan offers, and of the instructions for the system prompt."""
        found = self._definitions.get(plan.label)
        if found is None:
            offered = offered_tools(self._rt.policies.policy("", plan.policy))
            listed = json.dumps(definitions(offered, self._rt.modes, ToolFormat.OPENAI))
            found = self.tokenizer(None).count(listed + instructions(offered)) if offered else 0
            self._definitions[plan.label] = found
        return found

    async def replaced(self, result: Result, plan: Plan, client: str) -> Replaced | None:
        """None if the result passes."""
        if not result.text or OWN_TOOL.fullmatch(result.tool):
            return None
        given = ToolResult(
            await self._session(plan),
            result.tool[:_MAX_NAME] or "tool",
            tool_arguments=arguments_text(result),
            is_error=result.is_error,
            door=DOORS.get(client),
        )
        outcome = (await govern(given, result.text, self._rt)).outcome
        if outcome.text is None:
            return None
        return Replaced(outcome.text, self.tokenizer(None).count(outcome.text), outcome.handle)

    async def answer(self, handle: Handle, question: str, plan: Plan) -> str:
        """The product's first answer to a question about a stored result."""
        asked = {"handle": str(handle), "extract": question}
        return (await call_tool(await self._session(plan), _ASK, asked, self._rt)).text

    async def holds(self, handle: Handle, literal: str, *, is_quote: bool) -> bool:
        """True if the stored bytes hold the literal: the product's grep finds it, or it stands there across
        escapes, lines or line numbers."""
        stored = await self._rt.store.find(_TENANT, handle)
        if stored is None:
            return False
        grep = Grep(literal, literal=True, limit=1)
        body = b""
        async for chunk in self._rt.store.read(stored):
            grep.feed(chunk)
            body += chunk
        if "\n" not in literal and grep.finish().total_matches:
            return True
        text = plain(body.decode())
        return literal in without_line_numbers(text) if is_quote else stands_in(literal, text)

    async def end_run(self) -> None:
        """Deletes what the run stored."""
        for key in self._sessions.values():
            ended = await self._rt.ledger.end(key)
            if ended is not None:
                await self._rt.store.delete_session(key, ended.first_live_epoch)
        self._sessions.clear()
        self._number += 1

    async def _session(self, plan: Plan) -> SessionKey:
        key = self._sessions.get(plan.label)
        if key is None:
            key = self._sessions[plan.label] = SessionKey(
                _TENANT, f"run-{self._number}-{len(self._sessions)}"
            )
            if plan.policy is not None:
                self._rt.policies.check_override(plan.policy)
                await self._rt.ledger.put_session(
                    key, SessionChange(frozenset({"policy"}), policy=plan.policy)
                )
        return key


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
async def open_product(settings: Settings) -> AsyncIterator[Product]:
    """Raises ConfigError."""
    # The log would hold a line for each stored result.
    logging.getLogger().addHandler(logging.NullHandler())
    async with open_runtime(in_memory(settings)) as rt:
        yield Product(rt)
