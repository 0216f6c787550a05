"""What a session has spent on models, so that its ceilings hold over all its extractions at once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from domain.accounting import EntryFilter, EntryType, GroupBy
from domain.handles import SessionKey
from domain.llm import LlmCall
from domain.ports import Ledger
from policies.facts import Policy

_REACHED = "the session's cap of model {} is reached"


@dataclass(slots=True)
class _Spent:
    """Of one session with extractions under way: calls begun; tokens and cost of those that ended."""

    calls: int
    tokens: int
    cost_usd: float
    users: int = 0


class Purse:
    """One extraction's view of its session's spending."""

    def __init__(self, spent: _Spent, policy: Policy) -> None:
        self._spent = spent
        self._policy = policy

    def take(self) -> str | None:
        """Counts a call that is about to begin; or says why none may."""
        spent, policy = self._spent, self._policy
        if 0 < policy.max_llm_calls <= spent.calls:
            return _REACHED.format("calls")
        if 0 < policy.max_llm_tokens <= spent.tokens:
            return _REACHED.format("tokens")
        if 0 < policy.max_llm_cost_usd <= spent.cost_usd:
            return _REACHED.format("cost")
        spent.calls += 1
        return None

    def booked(self, call: LlmCall) -> None:
        self._spent.tokens += call.tokens.input + call.tokens.output
        self._spent.cost_usd += call.cost_usd


class Purses:
    """One process's. Replicas each see what the ledger held when their extraction began."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open: dict[SessionKey, _Spent] = {}

    @asynccontextmanager
    async def open(self, key: SessionKey, policy: Policy) -> AsyncIterator[Purse]:
        spent = await self._spent(key)
        spent.users += 1
        try:
            yield Purse(spent, policy)
        finally:
            spent.users -= 1
            if not spent.users:
                self._open.pop(key, None)

    async def _spent(self, key: SessionKey) -> _Spent:
        if key not in self._open:
            spent = _Spent(0, 0, 0.0)
            for row in await self._ledger.summary(
                EntryFilter(key.tenant, key.session_id, EntryType.LLM), GroupBy.TYPE
            ):
                spent = _Spent(row.entries, row.tokens_in + row.tokens_out, row.cost_usd)
            # Another extraction may have opened it while this one waited.
            self._open.setdefault(key, spent)
        return self._open[key]
