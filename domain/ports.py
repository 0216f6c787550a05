"""The ports: what the governor needs of the world. Every backend of a port passes the same contract suite."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from domain.accounting import AccountingEntry, EntryFilter, EntryPage, GroupBy, SummaryRow
from domain.budget import Budget, Reported, ReportWarning, Session, SessionChange, Window
from domain.handles import Handle, SessionKey
from domain.llm import ModelTerms, Prompt, Reply
from domain.results import Durability, StoredResult, UsageReport


class Clock(Protocol):
    def __call__(self) -> int:
        """Unix time in milliseconds."""
        ...


class Tokenizer(Protocol):
    """One encoding. Exact and linear in the text's length; safe to call from any thread."""

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int: ...


class Model(Protocol):
    """One model behind one backend. One call is one attempt: who retries is not decided here."""

    @property
    def terms(self) -> ModelTerms: ...

    async def complete(self, prompt: Prompt, note_sent: Callable[[bool], None] = ...) -> Reply:
        """Makes one attempt. Calls `note_sent` with False before the request is sent, with True when the
        backend has all of it; a model that never calls it is taken to have sent it. Bounds what it reads,
        but not its time: the caller cancels it, and a cancelled call leaves nothing open. Raises
        ModelUnavailable, ModelRefused, PromptRefused, ModelBadReply, ContextExceeded."""
        ...


class Draft(Protocol):
    """A body on its way to the store. Nothing of it can be read before it is published."""

    async def write(self, chunk: bytes) -> None:
        """Raises StoreFull when the quota or the medium is full."""
        ...

    def read(self) -> AsyncIterator[bytes]:
        """What was written so far, from the start."""
        ...

    async def publish(self, stored: StoredResult) -> Durability:
        """Makes body, then info durable and visible, in one last atomic step; answers how durable. Publishing
        the same handle with the same bytes again is harmless."""
        ...


class ResultStore(Protocol):
    """Keeps the bodies of results and what is known of them. Driver errors arrive as StorageError."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator should know, as of the last `check`."""
        ...

    @property
    def constant_durability(self) -> Durability | None:
        """Of all that is in it. None where each publishing has its own, and is not asked for it later."""
        ...

    def draft(self) -> AbstractAsyncContextManager[Draft]:
        """Leaving it without publishing leaves nothing behind."""
        ...

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        """None when it is unknown, deleted or past its `expires_at`."""
        ...

    def read(self, stored: StoredResult, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Bytes `start` to before `end` in chunks of at most 1 MiB. Raises ResultExpired when the body went
        away after `find`."""
        ...

    async def touch(self, stored: StoredResult) -> StoredResult:
        """Restarts retention at now; a clock that was set back shortens no life. Returns `stored` with its
        new `expires_at` (Unix ms)."""
        ...

    async def delete(self, tenant: str, handle: Handle) -> bool:
        """False when there was nothing to delete."""
        ...

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        """Deletes the session's results of epochs before `epoch`, never a later one, which may be published
        at the same time. Returns how many it deleted."""
        ...

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        """For each session, the number of its results that are stored and not expired."""
        ...

    async def sweep(self) -> int:
        """Deletes what has expired; answers how many."""
        ...

    async def stored_bytes(self) -> int:
        """What the quota counts: published bodies and drafts."""
        ...

    async def check(self) -> None:
        """Raises StorageError when a write would not be kept now."""
        ...

    async def close(self) -> None: ...


# Not frozen, though nothing changes it: a frozen one takes three times as long to build, for every result.
@dataclass(slots=True, unsafe_hash=True)
class Charge:
    """What one entry costs its session. `call_id` makes it happen once: the same call again, in the same
    epoch, answers the first receipt. `text` is what the model reads instead of the result, None if it
    passed; it is kept with the call so that a retry gets the same answer."""

    key: SessionKey
    epoch: int
    tokens: int
    entry: AccountingEntry
    default_window: Window
    enforce: bool
    call_id: str | None = None
    fingerprint: str = ""
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the ledger wrote down, now or (`replayed`) at the first try of the same call; `degraded`: in the
    local spool."""

    entry: AccountingEntry
    budget: Budget
    fingerprint: str = ""
    text: str | None = None
    replayed: bool = False
    degraded: bool = False


@dataclass(frozen=True, slots=True)
class Entered:
    """The session as a call finds it; `receipt` when this very call was settled before. `warning` is about
    the call's usage report."""

    session: Session
    receipt: Receipt | None = None
    warning: ReportWarning | None = None


@dataclass(frozen=True, slots=True)
class LedgerBounds:
    """What one tenant may have in a ledger; 0 means no bound.

    `sessions` counts those that are not ended. `bytes` counts entries, receipts, findings and every
    remembered session, ended ones included: about what the backend keeps of them.
    """

    sessions: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class LedgerUsage:
    """What the tenant that has most of it has, in the counts of LedgerBounds."""

    sessions: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SessionPage:
    sessions: list[Session]
    next_cursor: str | None


class Ledger(Protocol):
    """Keeps sessions, budgets and the accounting. Every method is one atomic step, and each that changes
    something is durable against a killed process when it returns. Driver errors arrive as StorageError.

    Bounded per tenant by LedgerBounds. Past the bound of bytes, a new call (`enter`, `reserve`, `settle`),
    `append` and the opening of a session raise StoreFull; past the bound of sessions, the opening of one more
    raises TooManySessions; both with nothing changed. Everything else goes on: a call settled before is
    answered, a session that is open takes reports and changes, and ends. The entries of an extraction (types
    `llm` and `extract`) are taken: `enter` admitted its question.
    """

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator should know, as of the last `check`."""
        ...

    async def enter(
        self,
        key: SessionKey,
        call_id: str | None,
        report: UsageReport | None,
        default_window: Window,
        enforce: bool,
    ) -> Entered:
        """A call that will be charged arrives. A call settled before answers its receipt, and a report that
        would change the session is not applied, with NOT_APPLIED; otherwise the report is applied. An unknown
        session is answered as a fresh one, and written down only if there is a report or, later, a charge.
        Raises SessionEnded, StoreFull, TooManySessions."""
        ...

    async def reserve(self, charge: Charge) -> Receipt | None:
        """Charges the tokens and appends the entry if they fit what remains; None if they do not, with
        nothing changed. A budget that is not enforced fits everything. Raises SessionEnded; Conflict when
        the session was opened anew or emptied since `charge.epoch`; IdempotencyKeyReused when the call
        was settled with another fingerprint."""
        ...

    async def settle(self, charge: Charge) -> Receipt:
        """As `reserve`, but past the limit if need be."""
        ...

    async def append(self, entry: AccountingEntry) -> None:
        """An entry that charges no budget; accepted for an ended session too."""
        ...

    async def session(self, key: SessionKey) -> Session | None:
        """Ended ones too, until they are forgotten."""
        ...

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        """Opens or changes. An ended session starts again: `next_epoch`, nothing used or reserved."""
        ...

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        """Opens the session if need be. Raises SessionEnded."""
        ...

    async def end(self, key: SessionKey) -> Session | None:
        """Ends the session; None if unknown. The `default` session is emptied instead: a later epoch,
        nothing used or reserved, never ended. Ending an ended one changes nothing. Returns the session as
        it is then: its `first_live_epoch` is the one to delete results by."""
        ...

    async def sessions(self, tenant: str, limit: int, cursor: str | None) -> SessionPage:
        """Those alive (not ended), by id. Raises InvalidField for a cursor that is not ours."""
        ...

    async def entries(self, wanted: EntryFilter, limit: int, cursor: str | None) -> EntryPage:
        """Oldest first, newest last. Raises InvalidField for a cursor that is not ours."""
        ...

    async def summary(self, wanted: EntryFilter, group_by: GroupBy) -> list[SummaryRow]:
        """By group, most tokens saved first. `day` is UTC, `YYYY-MM-DD`."""
        ...

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        """When the accounting last saw this handle stored (Unix ms); tells expired from never known."""
        ...

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        """What was kept under this name in this life of the session."""
        ...

    async def keep_finding(self, key: SessionKey, epoch: int, name: str, text: str) -> None:
        """Keeps a text until the session ends, is emptied or is forgotten. Not kept, and no error, where
        that has happened already, and past the bound of bytes."""
        ...

    async def sweep(self) -> list[SessionKey]:
        """Forgets idle sessions and entries past their retention. Answers the ended sessions that it
        still remembers, so that bodies left behind by a crash can be deleted."""
        ...

    async def usage(self) -> LedgerUsage:
        """For the metrics: read from counters."""
        ...

    async def check(self) -> None:
        """Raises StorageError when a write would not be kept now."""
        ...

    async def close(self) -> None: ...
