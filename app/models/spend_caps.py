"""Caps on what a session, and a tenant in a day, spends on models, shared by concurrent extractions."""

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from domain.accounting import DAY_MS, EntryFilter, EntryType, GroupBy
from domain.errors import SpendReached, StorageError
from domain.handles import SessionKey
from domain.llm import LlmCall
from domain.ports import Clock, Ledger
from domain.quotas import QuotaOf, reached
from policies.policy import Policy

_REACHED = "the session's cap of model {} is reached"
_DAY_REACHED = "the tenant's quota of model spend a day is reached"
_FRESH_SECONDS = 1.0
_NEVER = float("-inf")


class UnrecordedCost(Protocol):
    """US dollars for model calls since a time (Unix ms) that the ledger had no room for."""

    def __call__(self, tenant: str, since: int = 0, session_id: str | None = None) -> float: ...


def _nothing(tenant: str, since: int = 0, session_id: str | None = None) -> float:
    return 0.0


@dataclass(slots=True)
class _Spent:
    """One session: calls started; tokens and cost of the calls that ended. `users` counts its extractions and
    the calls that are not accounted yet: while there are any, the ledger does not hold all that was spent."""

    calls: int
    tokens: int
    cost_usd: float
    users: int = 0


@dataclass(slots=True)
class _Today:
    """What a tenant has spent in a day of UTC, which is counted since 1970. `added_usd` is what this instance
    has added, whether or not the ledger has it."""

    day: int
    cost_usd: float = 0.0
    added_usd: float = 0.0
    read_at: float = _NEVER


class DailySpend:
    """US dollars that tenants with a quota have spent on models since 00:00 UTC: what the ledger held when
    the last extraction began, and the calls of this instance since. While the ledger is away, they are added
    to what was known. A model without a known price costs 0."""

    def __init__(
        self,
        ledger: Ledger,
        quota_of: QuotaOf,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
        unrecorded: UnrecordedCost = _nothing,
    ) -> None:
        self._ledger = ledger
        self._quota_of = quota_of
        self._clock = clock
        self._monotonic = monotonic
        self._unrecorded = unrecorded
        self._tenants: dict[str, _Today] = {}

    async def learn(self, tenant: str) -> None:
        """Reads from the ledger what all instances have spent, at most once a second."""
        if not self._quota_of(tenant).llm_usd_per_day:
            return
        today, now = self._today(tenant), self._monotonic()
        if now < today.read_at + _FRESH_SECONDS:
            return
        # Of the entries of all types: those of model calls, and those that stand for unrecorded ones, have a
        # cost.
        of_today = EntryFilter(tenant, since=today.day * DAY_MS)
        added, unrecorded = today.added_usd, self._unrecorded(tenant, today.day * DAY_MS)
        with suppress(StorageError):
            summary = await self._ledger.summary(of_today, GroupBy.TYPE)
            # The ledger may lack what was added while it was read.
            today.cost_usd = summary.total.cost_usd + unrecorded + today.added_usd - added
            today.read_at = now

    async def learn_of(self, tenants: Iterable[str]) -> None:
        """Reads the spend of those tenants whose spend of this day was not read yet."""
        day = self._clock() // DAY_MS
        for tenant in tenants:
            today = self._tenants.get(tenant)
            if today is None or today.day != day or today.read_at == _NEVER:
                await self.learn(tenant)

    def add(self, tenant: str, cost_usd: float) -> None:
        if self._quota_of(tenant).llm_usd_per_day:
            today = self._today(tenant)
            today.cost_usd += cost_usd
            today.added_usd += cost_usd

    def is_reached(self, tenant: str) -> bool:
        return 0 < self._quota_of(tenant).llm_usd_per_day <= self._today(tenant).cost_usd

    def check(self, tenant: str) -> None:
        """Raises SpendReached."""
        if self.is_reached(tenant):
            until = (self._today(tenant).day + 1) * DAY_MS
            wait = -(-(until - self._clock()) // 1000)
            raise reached(SpendReached, "llm_usd_per_day", self._quota_of(tenant).llm_usd_per_day, wait)

    def known(self) -> dict[str, float]:
        """US dollars that each tenant has spent today, as far as this instance knows."""
        return {tenant: self._today(tenant).cost_usd for tenant in list(self._tenants)}

    def forget(self, tenant: str) -> None:
        self._tenants.pop(tenant, None)

    def _today(self, tenant: str) -> _Today:
        day = self._clock() // DAY_MS
        today = self._tenants.get(tenant)
        if today is None or today.day != day:
            today = self._tenants[tenant] = _Today(day)
        return today


class SessionSpend:
    """The caps of one extraction's policy over what its session has spent, and the quota of its tenant."""

    def __init__(
        self, spent: _Spent, policy: Policy, daily: DailySpend, tenant: str, leave: Callable[[], None]
    ) -> None:
        self._spent = spent
        self._policy = policy
        self._daily = daily
        self._tenant = tenant
        self._leave = leave

    def calls_left(self) -> int | None:
        """How many calls may still start; None if there is no cap."""
        if self._reason() is not None:
            return 0
        cap = self._policy.max_llm_calls
        return max(0, cap - self._spent.calls) if cap else None

    def try_start_call(self) -> str | None:
        """Counts one model call, to be ended with `add`. Returns the reason instead if a cap is reached."""
        reason = self._reason()
        if reason is None:
            self._spent.calls += 1
            self._spent.users += 1
        return reason

    def add(self, call: LlmCall) -> None:
        """Adds what a call cost once it is accounted."""
        self._spent.tokens += call.tokens.input + call.tokens.output
        self._spent.cost_usd += call.cost_usd
        self._daily.add(self._tenant, call.cost_usd)
        self._leave()

    def _reason(self) -> str | None:
        spent, policy = self._spent, self._policy
        if 0 < policy.max_llm_calls <= spent.calls:
            return _REACHED.format("calls")
        if 0 < policy.max_llm_tokens <= spent.tokens:
            return _REACHED.format("tokens")
        if 0 < policy.max_llm_cost_usd <= spent.cost_usd:
            return _REACHED.format("cost")
        return _DAY_REACHED if self._daily.is_reached(self._tenant) else None


class SpendCaps:
    """The caps of one process. A replica counts what the ledger held when its extraction began, and its own
    calls since. Of calls that the ledger had no room for only the cost is counted once their extraction has
    ended."""

    def __init__(self, ledger: Ledger, daily: DailySpend, unrecorded: UnrecordedCost = _nothing) -> None:
        self._ledger = ledger
        self._unrecorded = unrecorded
        self._open: dict[SessionKey, _Spent] = {}
        self.daily = daily

    @asynccontextmanager
    async def open(self, key: SessionKey, policy: Policy) -> AsyncIterator[SessionSpend]:
        await self.daily.learn(key.tenant)
        spent = await self._spent(key)
        leave = partial(self._leave, key, spent)
        spent.users += 1
        try:
            yield SessionSpend(spent, policy, self.daily, key.tenant, leave)
        finally:
            leave()

    def _leave(self, key: SessionKey, spent: _Spent) -> None:
        spent.users -= 1
        if not spent.users:
            del self._open[key]

    async def _spent(self, key: SessionKey) -> _Spent:
        if key not in self._open:
            unrecorded = self._unrecorded(key.tenant, session_id=key.session_id)
            summary = await self._ledger.summary(EntryFilter(key.tenant, key.session_id), GroupBy.TYPE)
            spent = _Spent(0, 0, summary.total.cost_usd + unrecorded)
            for row in summary.rows:
                if row.group == EntryType.LLM:
                    spent.calls, spent.tokens = row.entries, row.tokens_in + row.tokens_out
            # Another extraction may have opened it while this one waited.
            self._open.setdefault(key, spent)
        return self._open[key]
