"""The accounting: one immutable line for each result, model call, extraction, reading, and handing on."""

from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

import msgspec

from domain.llm import LlmTokens
from domain.outcomes import OutcomeKind, Trigger
from domain.results import Durability
from domain.structs import fields_of, frozen_struct, sparse_struct


class EntryType(StrEnum):
    TOOL = "tool"
    LLM = "llm"
    EXTRACT = "extract"
    READ = "read"
    PASS_ON = "pass_on"
    UNRECORDED = "unrecorded"
    LOST = "lost"


class EntryStatus(StrEnum):
    OK = "ok"
    FAILED = "failed"


class GroupBy(StrEnum):
    TENANT = "tenant"
    TOOL_NAME = "tool_name"
    SESSION_ID = "session_id"
    TRIGGER = "trigger"
    OUTCOME = "outcome"
    MODEL = "model"
    TYPE = "type"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    MINUTE = "minute"
    STRATEGY = "strategy"
    TOOL_KIND = "tool_kind"
    KEY = "key"
    DOOR = "door"


DAY_MS = 86_400_000
PERIOD_MS = {GroupBy.DAY: DAY_MS, GroupBy.HOUR: 3_600_000, GroupBy.MINUTE: 60_000}
PERIOD_FORMATS = {
    GroupBy.MONTH: "%Y-%m",
    GroupBy.DAY: "%Y-%m-%d",
    GroupBy.HOUR: "%Y-%m-%dT%H:00Z",
    GroupBy.MINUTE: "%Y-%m-%dT%H:%MZ",
}
"""The name of a period: its beginning in UTC, as a format of `strftime` in Python and in SQLite."""
FIELD_OF = {GroupBy.DOOR: "client"}
"""The field of an entry that a key groups by, if its name differs from the key."""


@frozen_struct
class Unrecorded:
    """What an entry of the type `unrecorded` stands for: passed results and readings of one session and day
    (UTC) for which the ledger had no room. `since` is the time of the first (Unix ms); the entry's
    `timestamp` is that of the last. The entry's tokens, bytes, characters and cost are their sums."""

    since: int
    results: int
    readings: int


@sparse_struct
class EntryDetails:
    """`truncated`: the model did not get the whole result (stored results included), or the extraction did
    not read all of the data. `truncated_bytes` is the size of the text before the cut, `truncated_total` its
    rows. In mode `observe`, `observed_outcome` and `observed_tokens_saved` are the outcome and the saved
    tokens that `enforce` would have had.

    For a question about a stored result, or a reading of it: `found_nothing`: the answer holds nothing of the
    result. `costs_more`: the answer and its model calls cost more tokens than storing the result saved.

    `redacted`: how many secrets of each kind were masked in what the model was shown. `durability`: where the
    body of a stored result was when its handle was returned. `client_passes`: a result that passes whatever
    its size, because the client's tool reads a file in order to edit it. `unrecorded`: set in an entry of
    that type only."""

    tool_output_handle: str | None = None
    tool_output_reason: str | None = None
    truncated: bool = False
    bytes: int = 0
    lines: int = 0
    tokens: int = 0
    truncated_bytes: int | None = None
    truncated_total: int | None = None
    observed_outcome: OutcomeKind | None = None
    observed_tokens_saved: int = 0
    found_nothing: bool = False
    costs_more: bool = False
    redacted: dict[str, int] | None = None
    durability: Durability | None = None
    client_passes: bool = False
    unrecorded: Unrecorded | None = None


_NO_DETAILS = EntryDetails()
_ASKED_BACK = (EntryType.EXTRACT, EntryType.READ)


@sparse_struct
class AccountingEntry:
    """`timestamp` is Unix ms, `latency` ms. `tokens_saved` is negative for extractions, model calls and
    reading back: sums are net. `tokens` are those of a model call. The camelCase names are those of
    ai-agent's accounting format. `key` is the name of the API key that the request came with.

    A tool entry has `tool_call_id` (or the Idempotency-Key), `tool_kind`, the `turn` of its usage report or
    else of its session, the `client` that sent the result, and the `project` that the client works in. A
    model call has `extract_id`, the id of its extraction's entry. An extraction has the `mode` asked for, the
    `strategy` used, `fallback_reason` if it fell back, and `coverage`, the share of the data (0 to 1) that
    the answer rests on. For a result that was handed on, `tool_name` is the tool that got it.

    An entry of the type `lost` says that the ledger lost acknowledged entries from before about its
    `timestamp`.
    """

    id: str
    type: EntryType
    timestamp: int
    tenant: str
    session_id: str
    tool_name: str
    status: EntryStatus = EntryStatus.OK
    latency: float = 0.0
    mcpServer: str = ""  # noqa: N815
    command: str = ""
    charactersIn: int = 0  # noqa: N815
    charactersOut: int = 0  # noqa: N815
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_saved: int = 0
    trigger: Trigger | None = None
    outcome: OutcomeKind | None = None
    model: str | None = None
    provider: str | None = None
    tool_call_id: str | None = None
    turn: int | None = None
    tool_kind: str | None = None
    extract_id: str | None = None
    mode: str | None = None
    strategy: str | None = None
    fallback_reason: str | None = None
    coverage: float | None = None
    stop_reason: str | None = None
    tokens: LlmTokens | None = None
    cost_usd: float = 0.0
    error: str | None = None
    client: str | None = None
    project: str | None = None
    key: str | None = None
    details: EntryDetails = _NO_DETAILS

    @property
    def is_stored(self) -> bool:
        return self.type is EntryType.TOOL and self.details.tool_output_handle is not None

    @property
    def is_asked_back(self) -> bool:
        """True if a model's question about a stored result was answered, or a model read the result. Answers
        to people do not count: they do not reduce the savings."""
        if self.type not in _ASKED_BACK or self.status is not EntryStatus.OK:
            return False
        return self.tokens_saved != 0 or self.tokens_out <= 0


def whole_json(entry: AccountingEntry) -> bytes:
    """The JSON of an entry with all its fields, for readers outside."""
    return msgspec.json.encode({**fields_of(entry), "details": fields_of(entry.details)})


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Selects entries; None matches any value. `since` and `until` are Unix ms, `since <= timestamp < until`.
    `handle` needs its `session_id` beside it. `stored` selects the entries of stored results; it is not for
    summaries. Only a summary may have no `tenant`."""

    tenant: str | None
    session_id: str | None = None
    type: EntryType | None = None
    tool_name: str | None = None
    trigger: Trigger | None = None
    outcome: OutcomeKind | None = None
    status: EntryStatus | None = None
    since: int | None = None
    until: int | None = None
    handle: str | None = None
    stored: bool = False

    def touches(self, first: int, last: int) -> bool:
        """Whether the time from `first` to `last` (Unix ms) overlaps the selected time."""
        return (self.until is None or first < self.until) and (self.since is None or last >= self.since)


@dataclass(frozen=True, slots=True)
class EntryPage:
    """Oldest first, or newest first if requested. `next_cursor` is None on the last page."""

    entries: list[AccountingEntry]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """Sums over the entries of one group. `groups` has the value of each key, None for entries without that
    property; `group` is the value of the first key. `tokens_saved_observed` is what results in mode `observe`
    would have saved; `tokens_saved` does not include it. `stored` counts stored results. `asked_back` counts
    answered questions of models about stored results, and readings by models; `found_nothing` and
    `costs_more` count the answers among these that held nothing, or that cost more than storing the result
    saved."""

    group: str | None
    entries: int
    failed: int
    bytes: int
    tokens_in: int
    tokens_out: int
    tokens_saved: int
    latency_ms_mean: float
    latency_ms_max: float
    cost_usd: float
    tokens_saved_observed: int = 0
    stored: int = 0
    asked_back: int = 0
    found_nothing: int = 0
    costs_more: int = 0
    groups: dict[str, str | None] = field(default_factory=dict)

    def plus(self, other: "SummaryRow") -> "SummaryRow":
        """Adds both rows. The result has the groups of this row."""
        entries = self.entries + other.entries
        waited = self.latency_ms_mean * self.entries + other.latency_ms_mean * other.entries
        added = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        return replace(
            self,
            **added,
            latency_ms_mean=waited / max(entries, 1),
            latency_ms_max=max(self.latency_ms_max, other.latency_ms_max),
        )


_ADDED = [one.name for one in fields(SummaryRow) if not one.name.startswith(("group", "latency"))]

MOST_GROUPS = 10_000
"""The most groups of a summary. The others are added up in its `rest`."""

MOST_GROUPS_OF_DAY = 1_000
"""The most groups that the sums of one day keep apart. Later groups of the day lose the names that callers
choose, such as the tool's, and are added up."""

HISTORY_DAYS = 400
"""Sums of days are kept for 13 months: the longest have 397 days."""


class Gap(StrEnum):
    """Why a summary lacks entries of the selected time. AGE, BYTES: entries were deleted, past their
    retention or the quota of bytes, and the sums of their days cannot answer the question. HISTORY: sums of
    days were deleted. MERGED: sums do not separate the values of a filter. UNRECORDED: the ledger had no room
    for entries. LOST: the ledger lost acknowledged entries. DAMAGED: a record cannot be read."""

    AGE = "age"
    BYTES = "bytes"
    HISTORY = "history"
    MERGED = "merged"
    UNRECORDED = "unrecorded"
    LOST = "lost"
    DAMAGED = "damaged"


GAPS_OF_TYPES = {"unrecorded": Gap.UNRECORDED, "lost": Gap.LOST}
"""The types of entries that report missing entries of their time, and the gap that each reports."""


@dataclass(frozen=True, slots=True)
class Summary:
    """`rows` has at most MOST_GROUPS groups, most tokens saved first. `rest` has the sums of all other
    groups, None if there are none. `gaps`: why entries of the selected time may be missing, each with the
    time (Unix ms) up to which they may be, or None if that is unknown."""

    rows: list[SummaryRow]
    rest: SummaryRow | None = None
    gaps: dict[Gap, int | None] = field(default_factory=dict)

    @property
    def total(self) -> SummaryRow:
        total = SummaryRow(None, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0)
        for row in (*self.rows, *([] if self.rest is None else [self.rest])):
            total = total.plus(row)
        return total
