"""Results that pass while the ledger's medium is full: charged in memory, without an accounting entry.

What was charged so is added to the next charge of its session that the ledger takes, so that the budget
holds. A restart, or a new turn of the session, forgets it.
"""

from domain.budget import Session
from domain.errors import StoreFull, TenantFull
from domain.handles import SessionKey
from domain.ports import Call, Charge, Entered, Ledger, Receipt
from domain.structs import replace

MOST_SESSIONS = 10_000

Turn = tuple[int, int | None, int | None]
"""The epoch of a session, its turn and its used tokens. A report that changes them resets `reserved`."""


class Unrecorded:
    """The tokens of each session that the ledger does not know of."""

    def __init__(self) -> None:
        self._tokens: dict[SessionKey, tuple[Turn, int]] = {}

    def of(self, session: Session) -> int:
        if not self._tokens:
            return 0
        turn, tokens = self._tokens.get(session.key, (None, 0))
        return tokens if turn == _turn(session) else 0

    def set(self, session: Session, tokens: int) -> None:
        self._tokens.pop(session.key, None)
        if tokens:
            self._tokens[session.key] = _turn(session), tokens
        if len(self._tokens) > MOST_SESSIONS:
            del self._tokens[next(iter(self._tokens))]


async def entered(ledger: Ledger, call: Call) -> Entered:
    """Enters the session. If a report cannot be written because the medium is full, it holds for this call
    alone."""
    try:
        return await ledger.enter(call)
    except TenantFull:
        raise
    except StoreFull:
        if call.report is None:
            raise
        known = await ledger.enter(replace(call, report=None))
        after = known.session.reported(call.report)
        return replace(known, session=after.session, warning=after.warning)


async def charged(
    ledger: Ledger, unrecorded: Unrecorded, session: Session, charge: Charge, *, must_fit: bool
) -> Receipt | None:
    """Reserves, or settles unless it `must_fit`. None if the charge does not fit. A result that passes is not
    refused because the medium of the ledger is full."""
    owed = unrecorded.of(session)
    whole = replace(charge, tokens=charge.tokens + owed) if owed else charge
    try:
        receipt = await (ledger.reserve if must_fit else ledger.settle)(whole)
    except TenantFull:
        raise
    except StoreFull:
        if charge.text is not None:
            raise
        before = session.budget(charge.default_window, charge.enforce)
        budget = replace(before, reserved_tokens=before.reserved_tokens + owed)
        if must_fit and not budget.fits(charge.tokens):
            raise
        unrecorded.set(session, whole.tokens)
        after = replace(budget, reserved_tokens=before.reserved_tokens + whole.tokens)
        return Receipt(charge.entry, after, charge.fingerprint, is_recorded=False)
    if owed and receipt is not None and not receipt.is_retry:
        unrecorded.set(session, 0)
    return receipt


def _turn(session: Session) -> Turn:
    return session.epoch, session.turn, session.used_tokens
