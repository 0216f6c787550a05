"""The ports: clock, tokenizer, model, store, ledger, and the observer. All backends of a store or a ledger
pass one contract suite."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from domain.accounting import AccountingEntry, EntryFilter, EntryPage, GroupBy, Summary
from domain.budget import Budget, Reported, ReportWarning, Session, SessionChange, Window
from domain.errors import SpillgateError
from domain.extraction import Answer, Question
from domain.handles import Handle, SessionKey
from domain.llm import LlmCall, ModelTerms, Prompt, Reply
from domain.outcomes import Outcome
from domain.quotas import LedgerUsage, Purged
from domain.results import Durability, StoredResult, ToolResult, UsageReport
from domain.structs import frozen_struct

Clock = Callable[[], int]
"""Returns Unix time in milliseconds."""


class ClockReading(NamedTuple):
    """`times`: the clock of each server by its name, in Unix ms. `jump_ms`: the size of a jump of a clock
    that is not confirmed; 0: there is none."""

    times: Mapping[str, int]
    jump_ms: int


class SharedClock(Protocol):
    """The clocks of the servers that several processes go by. All methods raise StorageError."""

    @property
    def software(self) -> str:
        """What these servers are, for the operator."""
        ...

    async def read(self) -> ClockReading: ...

    async def note_jump(self, ms: int) -> None:
        """Informs the other processes, and those that start later, that a clock has jumped."""
        ...

    async def confirm(self) -> None:
        """Informs them that the clock is right now."""
        ...


class Tokenizer(Protocol):
    """One encoding. Exact and linear in the text's length; safe to call from any thread."""

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int: ...


class Model(Protocol):
    """One model of one backend. A call is one attempt; the caller decides about retries."""

    @property
    def terms(self) -> ModelTerms: ...

    async def complete(self, prompt: Prompt, note_sent: Callable[[bool], None] = ...) -> Reply:
        """Makes one attempt. Calls `note_sent` with False before it sends the request, and with True when the
        backend has all of it; without such calls the request counts as sent. The size of a reply is
        bounded, the time is not: the caller cancels the call, which leaves no connection open. Raises
        ModelUnavailable, ModelRefused, PromptRefused, ModelBadReply, ContextExceeded."""
        ...


class Draft(Protocol):
    """A body that is being written. Readers see it only after `publish`."""

    async def write(self, chunk: bytes) -> None:
        """Raises TenantFull past the tenant's quota; StoreFull if the store or its medium is full."""
        ...

    def read(self) -> AsyncIterator[bytes]:
        """Yields the bytes written so far."""
        ...

    async def publish(self, stored: StoredResult) -> Durability:
        """Makes body and info durable, then visible in one atomic step. Returns how durable they are.
        Publishing the same handle with the same bytes again changes nothing."""
        ...


class BodyReader(Protocol):
    """Reads bodies: a ResultStore, or what shows one in another form."""

    def read(self, stored: StoredResult, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Yields bytes `start` to before `end` in chunks of at most 1 MiB. Raises ResultExpired if the body
        was deleted after `find`."""
        ...


class Load(NamedTuple):
    """How busy a backend is. `connections` to a server are in use, of at most `connections_cap`; 0: it has no
    such connections. `waiting` operations wait for a connection, or for the only writer. `medium_share`
    of the server's memory or of the file system is used, by anyone; 0: it is not known."""

    connections: int = 0
    connections_cap: int = 0
    waiting: int = 0
    medium_share: float = 0.0


class Backend(Protocol):
    """What stores and ledgers have in common. Driver errors are raised as StorageError."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Messages for the operator, as of the last `check`."""
        ...

    @property
    def load(self) -> Load:
        """How busy it is now."""
        ...

    async def check(self) -> None:
        """Raises StorageError if a write would fail now."""
        ...

    async def close(self) -> None: ...


class ResultStore(BodyReader, Backend, Protocol):
    """Keeps the bodies of results and their StoredResult."""

    def draft(self, tenant: str) -> AbstractAsyncContextManager[Draft]:
        """Opens a draft of this tenant. Leaving the context without `publish` deletes it."""
        ...

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        """None if the result is unknown, deleted or past its `expires_at`."""
        ...

    async def touch(self, stored: StoredResult) -> StoredResult:
        """Restarts retention at now. Returns `stored` with the new `expires_at` (Unix ms), which is never
        earlier than the old one, even if the clock was set back."""
        ...

    async def delete(self, tenant: str, handle: Handle) -> bool:
        """False if there was nothing to delete."""
        ...

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        """Deletes the session's results of epochs before `epoch`, never a later one, which may be published
        at the same time. Returns how many it deleted."""
        ...

    async def delete_tenant(self, tenant: str) -> int:
        """Deletes results of the tenant, in one step of bounded time. Returns how many; 0: none is left."""
        ...

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        """For each session, the number of its results that are stored and not expired."""
        ...

    async def sweep(self) -> int:
        """Deletes expired results. Returns how many."""
        ...

    async def stored_bytes(self) -> int:
        """Bytes of published bodies and drafts, as the quota counts them."""
        ...

    async def usage(self) -> dict[str, int]:
        """Returns the stored bytes of each tenant that has any."""
        ...


@frozen_struct
class Charge:
    """The cost of one entry. A call with the same `call_id` in the same epoch is charged once: a retry gets
    the first receipt. `text` is what the model reads, None if a result passed: kept with the receipt of a
    call with an id, else as the finding `kept_as`, in the same step, unless the bound of bytes is reached.
    `default_window` and `enforce`: see Session.budget."""

    key: SessionKey
    epoch: int
    tokens: int
    entry: AccountingEntry
    default_window: Window
    enforce: bool
    call_id: str | None = None
    fingerprint: str = ""
    text: str | None = None

    @property
    def kept_as(self) -> str | None:
        """The name of the finding that keeps the text; None unless the entry is about a stored result."""
        is_kept = self.text is not None and self.call_id is None
        return given_name(self.entry.id) if is_kept and self.entry.details.tool_output_handle else None


def asked_name(entry_id: str) -> str:
    """The name of the finding that keeps the words of the question to which the entry is the answer."""
    return f"asked:{entry_id}"


def given_name(entry_id: str) -> str:
    """The name of the finding that keeps the text that the model was given with an entry."""
    return f"given:{entry_id}"


@frozen_struct
class Call:
    """A call that begins. `default_window` and `enforce`: see Session.budget."""

    key: SessionKey
    default_window: Window
    enforce: bool
    call_id: str | None = None
    report: UsageReport | None = None


@frozen_struct
class Receipt:
    """What the ledger recorded for a call. `is_retry`: the call was a retry. Not `is_recorded`: the ledger
    had no room, and has no entry of it."""

    entry: AccountingEntry
    budget: Budget
    fingerprint: str = ""
    text: str | None = None
    is_retry: bool = False
    is_recorded: bool = True


@frozen_struct
class Entered:
    """The session at the start of a call. `receipt`: this call was settled before. `warning` is about the
    call's usage report."""

    session: Session
    receipt: Receipt | None = None
    warning: ReportWarning | None = None


@dataclass(frozen=True, slots=True)
class SessionPage:
    sessions: list[Session]
    next_cursor: str | None


class LostWrite(NamedTuple):
    """An entry that the ledger acknowledged and has lost, with others before it: its session and its time."""

    key: SessionKey
    at: int


class Ledger(Backend, Protocol):
    """Keeps sessions, budgets and the accounting. Every method is one atomic step, and each that changes
    something is durable against a killed process when it returns.

    With each entry the sums of its day are written, which outlive it. At `ledger_max_bytes` of a tenant's
    quota, its oldest entries go; then ended sessions are forgotten, then idle ones. At the bound of bytes of
    all tenants the same happens to the largest of them; if that is not enough, new calls raise StoreFull.

    At `max_sessions`, idle sessions leave, as by `release`: first those that stored nothing, those used
    longest ago before others. Only if that is not enough, a new call (`enter`, `reserve`, `settle`), `append`
    and opening a session raise TenantFull, and opening a session TooManySessions; both say when the next
    session is idle, and change nothing else. All else still works: retries are answered, open sessions take
    reports and changes, and can be ended. Entries of all types but `tool` are accepted past the bound of
    bytes: reading goes on.
    """

    async def enter(self, call: Call) -> Entered:
        """Starts a call that will be charged, and applies its report. For a call that was settled before,
        returns the receipt; a report that would change the session is then not applied, with NOT_APPLIED. An
        unknown session is returned as a new one, and recorded only with a report or, later, a charge. Raises
        SessionEnded, StoreFull, TooManySessions."""
        ...

    async def reserve(self, charge: Charge) -> Receipt | None:
        """Charges the tokens and appends the entry if they fit what remains; None if they do not, with
        nothing changed. A budget that is not enforced fits everything. Raises SessionEnded; Conflict if
        the session was opened again or emptied since `charge.epoch`; IdempotencyKeyReused if the call
        was settled with another fingerprint."""
        ...

    async def settle(self, charge: Charge) -> Receipt:
        """Like `reserve`, but charges past the limit if needed."""
        ...

    async def append(self, entry: AccountingEntry) -> None:
        """Appends an entry that charges no budget. Ended sessions accept it too."""
        ...

    async def session(self, key: SessionKey) -> Session | None:
        """The session, also an ended one until it is forgotten."""
        ...

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        """Opens or changes a session. An ended session starts again: `next_epoch`, nothing used or
        reserved."""
        ...

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        """Applies a usage report. Opens the session if needed. Raises SessionEnded."""
        ...

    async def end(self, key: SessionKey) -> Session | None:
        """Ends the session; None if it is unknown. Ending an ended session changes nothing. The session
        `default` is never ended but emptied: a later epoch, nothing used or reserved. Returns the session
        afterwards; results before its `first_live_epoch` are to be deleted."""
        ...

    async def release(self, key: SessionKey) -> Session | None:
        """Forgets the session, with its receipts and findings; its results live until their retention. A
        later use opens it again, empty. Returns it as it was; None: it is unknown. An ended session stays."""
        ...

    async def sessions(
        self, tenant: str, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> SessionPage:
        """Sessions that are not ended, by id, or those that were used last first. Raises InvalidField for an
        unknown cursor and for one of the other order."""
        ...

    async def entries(
        self, wanted: EntryFilter, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> EntryPage:
        """Entries, oldest first or newest first. Raises InvalidField for an unknown cursor and for one of
        the other order."""
        ...

    async def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        """Sums by one or more keys. Periods are UTC: `YYYY-MM-DD`, `YYYY-MM-DDThh:00Z`,
        `YYYY-MM-DDThh:mmZ`. Of more than MOST_GROUPS groups the ledger chooses those that it tells apart.
        `gaps` of the summary say all that is missing of the time asked for."""
        ...

    async def lost_writes(self) -> list[LostWrite]:
        """The newest of the entries that were acknowledged to this process and are lost, until an entry of
        the type `lost` with the same session and time is appended."""
        ...

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        """When the accounting last recorded this handle (Unix ms). None: the handle was never known."""
        ...

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        """The text kept under `name` in this epoch of the session."""
        ...

    async def keep_finding(
        self, key: SessionKey, epoch: int, name: str, text: str, *, once: bool = False
    ) -> None:
        """Keeps a text until the session ends, is emptied or is forgotten. Keeps nothing, without an error,
        if that has happened already or the bound of bytes is reached; nor, with `once`, if there is a text
        under this name."""
        ...

    async def sweep(self) -> list[SessionKey]:
        """Deletes idle sessions and entries past their retention. Returns the ended sessions that are still
        remembered: their bodies are deleted again, in case of a crash before."""
        ...

    async def delete_tenant(self, tenant: str) -> Purged:
        """Deletes sessions and entries of the tenant, in one step of bounded time."""
        ...

    async def usage(self) -> dict[str, LedgerUsage]:
        """The usage of each tenant that has any, read from counters."""
        ...

    async def entry_count(self) -> int:
        """The number of entries of all tenants, for the metrics, found without a scan: never too small."""
        ...


class ServedRequest(Protocol):
    """A request over HTTP, as far as it has come. `path` is as it came; `route` is the template of the route
    that serves it, "" for none; `span` names its span, "" if it has none. `is_plain`: nothing of a tenant is
    read or changed by it. `tracing`: its headers `traceparent` and `tracestate`. `fields` are those of its
    lines in the log, by name. `status` is 0 until it is answered, `seconds` is the time since it began, and
    the bytes are those of both bodies so far."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def route(self) -> str: ...

    @property
    def span(self) -> str: ...

    @property
    def is_plain(self) -> bool: ...

    @property
    def tracing(self) -> Mapping[str, str]: ...

    @property
    def fields(self) -> Mapping[str, str | None]: ...

    @property
    def caller(self) -> "Caller | None": ...

    @property
    def address(self) -> str: ...

    @property
    def status(self) -> int: ...

    @property
    def seconds(self) -> float: ...

    @property
    def received(self) -> int: ...

    @property
    def sent(self) -> int: ...


class Caller(NamedTuple):
    """The API key of a request: its name or the beginning of its digest, its tenant and its role."""

    key: str
    tenant: str
    role: str


class Observer:
    """Observes what happens to a request, in the task of the request: for metrics, log, spans and audit. A
    method that an observer does not override does nothing. No method raises, or delays the request."""

    def begun(self, request: ServedRequest) -> None:
        """Called before anything of the request is checked."""

    def admitted(self, request: ServedRequest) -> None:
        """Called when a route is about to serve the request."""

    def answered(self, request: ServedRequest, error: BaseException | None) -> None:
        """Called last, for each request that has begun. `error` is the exception that goes to the server."""

    def part(
        self, name: str, tracing: Mapping[str, str] | None = None, method: str | None = None
    ) -> AbstractContextManager[None]:
        """A context in which all that the observer is told belongs to this part of the request. `tracing`:
        the caller's trace of the part. `method`: that of the protocol in which it came."""
        return nullcontext()

    def refused(self, error: SpillgateError, route: str, *, carries_result: bool) -> None:
        """`route` is the method and the template of the path, as far as they are known. `carries_result`: an
        agent holds the only copy of what the request brought."""

    def told(self, error: SpillgateError, handles: Iterable[str] = ()) -> None:
        """A model reads a refusal in an answer. The refusal is about `handles`, as the model wrote them, else
        about the request."""

    def failed(self, reason: str) -> None:
        """A request is refused by the fault of the caller, for a reason that is not a SpillgateError."""

    def governed(self, result: ToolResult, outcome: Outcome, tokens_out: int, seconds: float) -> None:
        """A result was governed, or a retry of it answered. `tokens_out` are the tokens that the model
        gets."""

    def stored(
        self, result: ToolResult, stored: StoredResult, entry: AccountingEntry, *, warns: bool
    ) -> None:
        """A body was kept for the first answer to a call. `warns`: its policy wants that to be a warning."""

    def named(self, handle: Handle) -> None:
        """A stored result is looked up to be read, queried or deleted."""

    def found(self, stored: StoredResult) -> None:
        """The stored result that was looked up exists."""

    def asked(self, handle: Handle | None) -> None:
        """A question is asked; None if its result is not known yet."""

    def called(self, call: LlmCall, *, embeds: bool) -> None:
        """A call of a model has ended."""

    def extracted(self, question: Question, answer: Answer | None, entry: AccountingEntry) -> None:
        """A question was answered, or failed without an answer."""

    def read(self, entry: AccountingEntry) -> None:
        """A text of a stored result is given to a model. `entry` accounts for it."""

    def unaccounted(self, entry: AccountingEntry, error: SpillgateError) -> None:
        """The entry of such a text could not be written."""

    def masked(self, counts: Mapping[str, int] | None) -> None:
        """Secrets, by kind, were masked in a text that is neither a governed result nor a reading."""

    def revealed(self) -> None:
        """A stored result is read without its masks."""

    def deletes(self, tenant: str) -> None:
        """The data of this tenant is about to be deleted."""


_EVENTS = [name for name in vars(Observer) if not name.startswith("_") and name != "part"]


class Observers(Observer):
    """Forwards to several observers. At most one of them has parts."""

    def __init__(self, *observers: Observer) -> None:
        for name in _EVENTS:
            own = [one for one in observers if getattr(type(one), name) is not getattr(Observer, name)]
            if own:
                setattr(self, name, _each([getattr(one, name) for one in own]))
        for one in observers:
            if type(one).part is not Observer.part:
                self.part = one.part  # type: ignore[method-assign]


def _each(methods: list[Callable[..., None]]) -> Callable[..., None]:
    if len(methods) == 1:
        return methods[0]

    def tell(*event: object, **more: object) -> None:
        for method in methods:
            method(*event, **more)

    return tell
