"""Caps on what a session spends on models, shared by its concurrent extractions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from domain.accounting import EntryFilter, EntryType, GroupBy, Missing
from domain.errors import StoreUnavailable
from domain.handles import SessionKey
from domain.llm import LlmCall
from domain.ports import Ledger
from policies.facts import Policy

_REACHED = "the session's cap of model {} is reached"


@dataclass(slots=True)
class _Spent:
    """One session with running extractions: calls started; tokens and cost of the calls that ended."""

    calls: int
    tokens: int
    cost_usd: float
    users: int = 0


class SpendCap:
    """The caps of one extraction's policy over what its session has spent."""

    def __init__(self, spent: _Spent, policy: Policy) -> None:
        self._spent = spent
        self._policy = policy

    def calls_left(self) -> int | None:
        """How many calls may still start; None if there is no cap."""
        if self._reason() is not None:
            return 0
        cap = self._policy.max_llm_calls
        return max(0, cap - self._spent.calls) if cap else None

    def try_start_call(self) -> str | None:
        """Counts one model call. Returns the reason instead if a cap is reached."""
        reason = self._reason()
        if reason is None:
            self._spent.calls += 1
        return reason

    def add(self, call: LlmCall) -> None:
        """Adds what a call cost once it has ended."""
        self._spent.tokens += call.tokens.input + call.tokens.output
        self._spent.cost_usd += call.cost_usd

    def _reason(self) -> str | None:
        spent, policy = self._spent, self._policy
        if 0 < policy.max_llm_calls <= spent.calls:
            return _REACHED.format("calls")
        if 0 < policy.max_llm_tokens <= spent.tokens:
            return _REACHED.format("tokens")
        if 0 < policy.max_llm_cost_usd <= spent.cost_usd:
            return _REACHED.format("cost")
        return None


class SpendCaps:
    """The caps of one process. A replica counts what the ledger held when its extraction began, and its own
    calls since."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open: dict[SessionKey, _Spent] = {}

    @asynccontextmanager
    async def open(self, key: SessionKey, policy: Policy) -> AsyncIterator[SpendCap]:
        spent = await self._spent(key)
        spent.users += 1
        try:
            yield SpendCap(spent, policy)
        finally:
            spent.users -= 1
            if not spent.users:
                self._open.pop(key, None)

    async def _spent(self, key: SessionKey) -> _Spent:
        if key not in self._open:
            spent = _Spent(0, 0, 0.0)
            calls = EntryFilter(key.tenant, key.session_id, EntryType.LLM)
            found = await self._ledger.summary(calls, GroupBy.TYPE)
            if Missing.OUTAGE in found.missing:
                raise StoreUnavailable("Redis is away, and only Redis knows what was spent. Try again.")
            for row in found.rows:
                spent = _Spent(row.entries, row.tokens_in + row.tokens_out, row.cost_usd)
            # Another extraction may have opened it while this one waited.
            self._open.setdefault(key, spent)
        return self._open[key]
