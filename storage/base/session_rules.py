"""Pure rules of all ledgers: opening, charging and ending a session, and a tenant's quotas (429, 507)."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from typing import Any, NotRequired, TypedDict, Unpack, cast

from domain.accounting import PERIOD_MS, AccountingEntry, EntryType, GroupBy
from domain.budget import Budget, Reported, ReportWarning, Session, SessionChange, next_epoch
from domain.errors import (
    Conflict,
    IdempotencyKeyReused,
    SessionEnded,
    SpillgateError,
    StoreFull,
    TenantFull,
    TooManySessions,
)
from domain.handles import DEFAULT_SESSION, SessionKey
from domain.ports import Call, Charge, Clock, Entered, LostWrite, Receipt
from domain.quotas import LedgerUsage, QuotaOf, TenantQuota, reached, unbounded
from domain.results import UsageReport
from domain.structs import replace

NOTHING = LedgerUsage(0, 0)
IDLE_MS = PERIOD_MS[GroupBy.HOUR]
"""An idle session may be deleted to make room for a new one. It is idle after this time without use, or after
a quarter of the retention if that is shorter."""
ROLLED_TO = 0.9
"""The share of `ledger_max_bytes` that remains in use after the oldest entries were deleted."""
IDLE_SHARE = 0.02
"""How many idle sessions are deleted at once, as a share of `max_sessions`."""
SESSION_BYTES = 1024
"""The bytes for which a session counts, without its policy and the name of its model."""


class LedgerOptions(TypedDict):
    clock: Clock
    session_retention_seconds: float
    entry_retention_seconds: float
    quota_of: NotRequired[QuotaOf]
    max_bytes: NotRequired[int]


class LedgerBase(ABC):
    """What all ledgers share: a clock, retentions and quotas; and one method that reserves and settles."""

    def __init__(self, **options: Unpack[LedgerOptions]) -> None:
        self._clock = options["clock"]
        self._session_ms = int(options["session_retention_seconds"] * 1000)
        self._entry_ms = int(options["entry_retention_seconds"] * 1000)
        self._idle_ms = min(IDLE_MS, self._session_ms // 4)
        self._quota_of = options.get("quota_of", unbounded)
        self._max_bytes = options.get("max_bytes", 0)
        """The bound of all tenants together; 0: none."""

    async def lost_writes(self) -> list[LostWrite]:
        """Returns nothing for a ledger that keeps all that it acknowledges."""
        return []

    @abstractmethod
    async def _charge(self, charge: Charge, *, forced: bool) -> Receipt | None:
        """Reserves; or settles if `forced`, and then always returns a receipt."""

    def reserve(self, charge: Charge) -> Coroutine[Any, Any, Receipt | None]:
        return self._charge(charge, forced=False)

    def settle(self, charge: Charge) -> Coroutine[Any, Any, Receipt]:
        return cast(Coroutine[Any, Any, Receipt], self._charge(charge, forced=True))


def fresh(key: SessionKey, now: int) -> Session:
    return Session(key, epoch=0, created_at=now, last_used_at=now)


def alive(session: Session) -> Session:
    if session.ended_at is not None:
        raise over()
    return session


def over() -> SessionEnded:
    return SessionEnded("This session has ended. Open it again with PUT /sessions/{id}, or use another id.")


def conflict() -> Conflict:
    return Conflict("The session was opened again or emptied during this request. Try again.")


def used(session: Session, now: int) -> Session:
    return replace(session, last_used_at=max(session.last_used_at, now))


def reported(session: Session, report: UsageReport, now: int) -> Reported:
    """Applies a report. Returns the same session object if it changes nothing. Raises SessionEnded."""
    after = alive(session).reported(report)
    return after if after.session is session else Reported(used(after.session, now), after.warning)


def enter_retry(
    session: Session, call: Call, entry: AccountingEntry, fingerprint: str, text: str | None
) -> Entered:
    """A retry that `enter` finds: returns the first receipt. The report of the retry is not applied. Its
    content is not known yet: `answer_retry` in the governor compares it with that of the first call."""
    budget = session.budget(call.default_window, call.enforce)
    receipt = Receipt(entry, budget, fingerprint, text, is_retry=True)
    changes = call.report is not None and session.reported(call.report).session is not session
    return Entered(session, receipt, ReportWarning.NOT_APPLIED if changes else None)


def session_usage(session: Session) -> LedgerUsage:
    """Returns how much of its tenant's quota a session uses, without its entries and findings."""
    texts = len((session.policy or "").encode()) + len(session.model or "")
    return LedgerUsage(int(session.ended_at is None), SESSION_BYTES + texts)


def counts_alike(one: Session, other: Session) -> bool:
    """True only if `session_usage` is the same for both."""
    return one.policy is other.policy and one.model is other.model and one.ended_at == other.ended_at


def entry_bytes(packed: bytes | bytearray, text: str | None) -> int:
    """Returns the bytes for which an entry counts. `packed` is its JSON, counted twice because columns and
    indexes repeat parts of it; `text` is stored with the receipt of a named call."""
    return 2 * len(packed) + text_bytes(text)


def text_bytes(text: str | None) -> int:
    return 0 if text is None else len(text.encode("utf-8", "surrogatepass"))


def is_admitted(entry: AccountingEntry) -> bool:
    """True for entries other than those of results: reading goes on past the quota of bytes. Their entries
    are kept, and older entries are deleted to make room."""
    return entry.type is not EntryType.TOOL


def check_room(usage: LedgerUsage, quota: TenantQuota, *, opens: bool, admitted: bool = False) -> None:
    """`opens`: a session is about to be opened. `admitted`: see `is_admitted`. Raises TenantFull,
    TooManySessions."""
    if 0 < quota.ledger_max_bytes <= usage.bytes and not admitted:
        raise reached(TenantFull, "ledger_max_bytes", quota.ledger_max_bytes)
    if opens and 0 < quota.max_sessions <= usage.sessions:
        raise reached(TooManySessions, "max_sessions", quota.max_sessions)


def surplus_bytes(usage: LedgerUsage, quota: TenantQuota) -> int:
    """Returns the bytes to delete once the tenant has reached its quota; 0 before."""
    return surplus(usage.bytes, quota.ledger_max_bytes)


def surplus(used: int, most: int) -> int:
    """Returns the bytes to delete once a bound is reached; 0 before. A bound of 0 means no bound."""
    return max(0, used - int(most * ROLLED_TO)) if 0 < most <= used else 0


def largest_first(usages: Mapping[str, LedgerUsage]) -> list[str]:
    """The tenants in the order in which entries are deleted when all tenants together reach the bound."""
    return sorted(usages, key=lambda tenant: -usages[tenant].bytes)


def check_total(used: int, most: int, *, admitted: bool = False) -> None:
    """`used` bytes of all tenants. `admitted`: see `is_admitted`. Raises StoreFull."""
    if 0 < most <= used and not admitted:
        raise StoreFull(
            "Sessions in use take all that SPILLGATE_LEDGER_TOTAL_MAX_BYTES allows. End sessions that are "
            "done with, or raise it, and try again.",
            cause=f"{used:,} of {most:,} bytes are used",
        )


def idle_to_delete(usage: LedgerUsage, quota: TenantQuota) -> int:
    """The number of idle sessions to delete: 0 as long as the tenant has fewer than `max_sessions`."""
    most = quota.max_sessions
    return max(1, int(most * IDLE_SHARE)) if 0 < most <= usage.sessions else 0


def with_retry_time(error: SpillgateError, idle_at: int | None, now: int) -> SpillgateError:
    """Returns the error of a full quota with the time at which the client may try again. `idle_at` (Unix ms):
    when the next session becomes idle and may be deleted; None if there is no such session, so that a later
    attempt fails, too."""
    error.retryable = idle_at is not None
    error.retry_after = None if idle_at is None else max(1, -(-(idle_at - now) // 1000))
    return error


def opened(session: Session | None, key: SessionKey, change: SessionChange, now: int) -> Session:
    """Opens or changes a session. An ended one starts empty, with a later epoch."""
    if session is None:
        session = fresh(key, now)
    elif session.ended_at is not None:
        session = replace(fresh(key, now), epoch=session.first_live_epoch)
    return used(change.applied(session), now)


def ended(session: Session, now: int) -> Session:
    """Ends the session. The default session is emptied instead, and keeps its declared window, model and
    policy."""
    if session.ended_at is not None:
        return session
    if session.key.session_id == DEFAULT_SESSION:
        # Its retention restarts, so that it is not forgotten before its results are deleted.
        return replace(
            used(session, now),
            epoch=next_epoch(session.epoch, now),
            used_tokens=None,
            turn=None,
            reserved_tokens=0,
            reports=(),
        )
    return replace(session, ended_at=now)


def keeps(session: Session, epoch: int) -> bool:
    """Returns whether findings of `epoch` may be stored."""
    return session.ended_at is None and session.epoch == epoch


def session_to_charge(session: Session | None, charge: Charge) -> Session:
    """Returns the session to charge. Raises SessionEnded, Conflict."""
    if session is None:
        session = fresh(charge.key, charge.entry.timestamp)
    if alive(session).epoch != charge.epoch:
        raise conflict()
    return session


def charged(session: Session, charge: Charge, now: int) -> Session:
    return replace(
        session,
        last_used_at=max(session.last_used_at, now),
        reserved_tokens=session.reserved_tokens + charge.tokens,
    )


def differs_by_charge(before: Session, after: Session) -> bool:
    """True if the sessions differ only in what a charge changes: the last use and the reserved tokens."""
    return after == replace(before, last_used_at=after.last_used_at, reserved_tokens=after.reserved_tokens)


def receipt(before: Budget, charge: Charge) -> Receipt:
    """`before` is the budget before the charge."""
    budget = Budget(
        before.limit_tokens, before.used_tokens, before.reserved_tokens + charge.tokens, before.enforced
    )
    return Receipt(charge.entry, budget, charge.fingerprint, charge.text)


def retry_receipt(
    session: Session, charge: Charge, entry: AccountingEntry, fingerprint: str, text: str | None
) -> Receipt:
    """A retry that `reserve` or `settle` finds, because a concurrent request with the same call id was
    charged after this one entered: returns the first receipt with the current budget. Raises
    IdempotencyKeyReused if the contents differ."""
    if fingerprint != charge.fingerprint:
        raise IdempotencyKeyReused
    return Receipt(
        entry, session.budget(charge.default_window, charge.enforce), fingerprint, text, is_retry=True
    )
