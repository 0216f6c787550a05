"""What becomes of a session, as pure functions: every ledger shares them, so that none can drift."""

from dataclasses import replace

from domain.accounting import AccountingEntry
from domain.budget import Budget, Session, SessionChange, next_epoch
from domain.errors import Conflict, IdempotencyKeyReused, SessionEnded
from domain.handles import DEFAULT_SESSION, SessionKey
from domain.ports import Charge, Receipt
from domain.results import UsageReport


def fresh(key: SessionKey, now: int) -> Session:
    return Session(key, 0, now, now)


def alive(session: Session) -> Session:
    if session.ended_at is not None:
        raise SessionEnded("This session has ended. Open it anew with PUT /sessions/{id}, or use another id.")
    return session


def used(session: Session, now: int) -> Session:
    return replace(session, last_used_at=max(session.last_used_at, now))


def reported(session: Session, report: UsageReport, now: int) -> Session:
    """The very same object when the report says nothing new. Raises SessionEnded."""
    after = alive(session).reported(report)
    return session if after is session else used(after, now)


def opened(session: Session | None, key: SessionKey, change: SessionChange, now: int) -> Session:
    """Opened, changed, or, after its end, started again with nothing of its earlier life; a later epoch."""
    if session is None:
        session = fresh(key, now)
    elif session.ended_at is not None:
        session = replace(fresh(key, now), epoch=session.first_live_epoch)
    return used(change.applied(session), now)


def ended(session: Session, now: int) -> Session:
    """The default session is emptied: what was declared stays, since nobody would declare it again."""
    if session.ended_at is not None:
        return session
    if session.key.session_id == DEFAULT_SESSION:
        # Its retention restarts, so that it is not forgotten before its results are deleted.
        emptied = used(session, now)
        epoch = next_epoch(session.epoch, now)
        return replace(emptied, epoch=epoch, used_tokens=None, turn=None, reserved_tokens=0)
    return replace(session, ended_at=now)


def keeps(session: Session, epoch: int) -> bool:
    """True while findings of that life of the session may be kept."""
    return session.ended_at is None and session.epoch == epoch


def admitted(session: Session | None, charge: Charge) -> Session:
    """The session that a charge goes to. Raises SessionEnded, Conflict."""
    if session is None:
        session = fresh(charge.key, charge.entry.timestamp)
    if alive(session).epoch != charge.epoch:
        raise Conflict("The session was opened anew or emptied while this result was on its way. Try again.")
    return session


def charged(session: Session, charge: Charge) -> Session:
    # Written out: `replace` takes three times as long, and this is done for every result.
    return Session(
        session.key,
        session.epoch,
        session.created_at,
        max(session.last_used_at, charge.entry.timestamp),
        session.context_window,
        session.buffer_tokens,
        session.max_output_tokens,
        session.model,
        session.policy,
        session.used_tokens,
        session.turn,
        session.reserved_tokens + charge.tokens,
        session.ended_at,
    )


def receipt(before: Budget, charge: Charge) -> Receipt:
    """`before` is the budget that the charge was taken from."""
    budget = Budget(
        before.limit_tokens, before.used_tokens, before.reserved_tokens + charge.tokens, before.enforced
    )
    return Receipt(charge.entry, budget, charge.fingerprint, charge.text)


def replayed(
    session: Session, charge: Charge, entry: AccountingEntry, fingerprint: str, text: str | None
) -> Receipt:
    """The first receipt of the same call, with the budget of now. Raises IdempotencyKeyReused."""
    if fingerprint != charge.fingerprint:
        raise IdempotencyKeyReused(
            "This tool_call_id or Idempotency-Key was used for other content. Use a new one for a new call."
        )
    return Receipt(entry, session.budget(charge.fallback, charge.required), fingerprint, text, replayed=True)
