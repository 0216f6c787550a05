"""Sessions and their token budgets: what fits, when one is exhausted, what a usage report changes."""

import dataclasses
from dataclasses import dataclass
from enum import StrEnum

from domain.handles import SessionKey
from domain.results import UsageReport
from domain.structs import frozen_struct, replace


@dataclass(frozen=True, slots=True)
class Window:
    """A model's context window, all in tokens. Not `is_known`: neither the operator nor a table gives the
    window, so that no usage report makes it enforced."""

    context_window: int
    buffer_tokens: int
    max_output_tokens: int
    is_known: bool = True


def window_of(size: int, buffer: int | None, output: int | None, default: Window) -> Window:
    """A window of `size` tokens. A `buffer` or `output` of None is undeclared and taken from `default`; what
    is undeclared takes at most a third of the window together."""
    third = size // 3
    if buffer is None and output is None:
        both = default.buffer_tokens + default.max_output_tokens
        buffer = default.buffer_tokens if both <= third else third * default.buffer_tokens // both
        output = min(default.max_output_tokens, third - buffer)
    elif buffer is None:
        buffer = min(default.buffer_tokens, third)
    elif output is None:
        output = min(default.max_output_tokens, third)
    return Window(size, buffer, output or 0)


@frozen_struct
class Budget:
    """A session's tokens. If `enforced` is false, the window is unknown: tokens are counted, and every result
    fits."""

    limit_tokens: int
    used_tokens: int
    reserved_tokens: int
    enforced: bool

    @property
    def remaining_tokens(self) -> int:
        return max(0, self.limit_tokens - self.used_tokens - self.reserved_tokens)

    @property
    def exhausted(self) -> bool:
        return self.enforced and self.remaining_tokens == 0

    def fits(self, tokens: int) -> bool:
        return not self.enforced or tokens <= self.remaining_tokens


def next_epoch(epoch: int, ended_at: int) -> int:
    """The epoch after `epoch`, which ended at `ended_at` (Unix ms)."""
    return max(epoch + 1, ended_at)


REMEMBERED_REPORTS = 64
"""The most usage reports that a session remembers of its current run."""


class ReportWarning(StrEnum):
    """Warns the caller about the effect of its usage report."""

    NEW_RUN = "new_run"
    TURN_CHANGED = "turn_changed"
    NOT_APPLIED = "not_applied"


@frozen_struct
class Session:
    """An agent's run. Window fields are None if the agent did not declare them. Times are Unix ms.

    `epoch` grows each time the id is opened again or emptied, and separates calls and results of an earlier
    life from those of this one. It is 0 in the first life that the ledger knows, later the time (Unix ms) at
    which the previous life ended: it grows even if the ledger forgot the session in between.
    `policy` is the session's policy override as JSON text. `reports` are the last REMEMBERED_REPORTS usage
    reports of the current run that have a turn: oldest first, without duplicates.
    """

    key: SessionKey
    epoch: int
    created_at: int
    last_used_at: int
    context_window: int | None = None
    buffer_tokens: int | None = None
    max_output_tokens: int | None = None
    model: str | None = None
    policy: str | None = None
    used_tokens: int | None = None
    turn: int | None = None
    reserved_tokens: int = 0
    ended_at: int | None = None
    reports: tuple[UsageReport, ...] = ()

    def budget(self, default_window: Window, enforce: bool) -> Budget:
        """The budget in force. `default_window` gives what the session did not declare. `enforce`: the budget
        is enforced even if the session declared no window and reported no usage.

        An undeclared buffer and output together take at most a third of a declared window.
        """
        window, buffer, output = self.context_window, self.buffer_tokens, self.max_output_tokens
        undeclared = default_window.buffer_tokens if buffer is None else 0
        undeclared += default_window.max_output_tokens if output is None else 0
        if window is None:
            window = default_window.context_window
            enforced = enforce or (default_window.is_known and self.used_tokens is not None)
        else:
            undeclared, enforced = min(undeclared, window // 3), True
        limit = max(0, window - (buffer or 0) - (output or 0) - undeclared)
        return Budget(limit, self.used_tokens or 0, self.reserved_tokens, enforced)

    @property
    def first_live_epoch(self) -> int:
        """Results of earlier epochs belong to an ended life. It is the session's epoch; for an ended session,
        the epoch in which it will be opened again."""
        return self.epoch if self.ended_at is None else next_epoch(self.epoch, self.ended_at)

    def reported(self, report: UsageReport) -> "Reported":
        """The session after this report; the same object if the report changes nothing.

        - A higher turn, the first report, or, without a turn, changed usage: a new turn. `used_tokens` is set
          and nothing is reserved.
        - A report of this run again: the same turn, or a late one of a lower turn, which counts into the
          current one.
        - A lower turn that was not reported before: a new run, with NEW_RUN.
        - The current turn with other usage: `used_tokens` is set, `reserved_tokens` kept, with TURN_CHANGED.
        """
        if report.turn is None:
            if report.used_tokens == self.used_tokens:
                return Reported(self)
            return Reported(replace(self, used_tokens=report.used_tokens, reserved_tokens=0))
        corrects = report.turn == self.turn and report.used_tokens != self.used_tokens
        if report in self.reports and not corrects:
            return Reported(self)
        reserved, warning = 0, None
        seen = tuple(one for one in self.reports if one != report)
        if self.turn is not None and report.turn < self.turn:
            seen, warning = (), ReportWarning.NEW_RUN
        elif self.turn == report.turn:
            reserved = self.reserved_tokens
            warning = ReportWarning.TURN_CHANGED if corrects else None
        after = replace(
            self,
            used_tokens=report.used_tokens,
            turn=report.turn,
            reserved_tokens=reserved,
            reports=(*seen, report)[-REMEMBERED_REPORTS:],
        )
        return Reported(after, warning)


@frozen_struct
class Reported:
    """A session after a usage report, and the warning for the caller."""

    session: Session
    warning: ReportWarning | None = None


@dataclass(frozen=True, slots=True)
class SessionChange:
    """The change of a PUT. Fields named in `set_fields` are set, also to None; the others stay."""

    set_fields: frozenset[str]
    context_window: int | None = None
    buffer_tokens: int | None = None
    max_output_tokens: int | None = None
    model: str | None = None
    policy: str | None = None

    def then(self, later: "SessionChange") -> "SessionChange":
        """Both changes as one."""
        values = {name: getattr(later, name) for name in later.set_fields}
        return dataclasses.replace(self, set_fields=self.set_fields | later.set_fields, **values)

    def applied(self, session: Session) -> Session:
        return replace(session, **{name: getattr(self, name) for name in self.set_fields})
