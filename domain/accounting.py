"""The accounting: one immutable line per governed result, model call, extraction and reading back."""

from dataclasses import dataclass
from enum import StrEnum

from domain.decisions import OutcomeKind, Trigger
from domain.llm import LlmTokens


class EntryType(StrEnum):
    TOOL = "tool"
    LLM = "llm"
    EXTRACT = "extract"
    READ = "read"


class EntryStatus(StrEnum):
    OK = "ok"
    FAILED = "failed"


class GroupBy(StrEnum):
    TOOL_NAME = "tool_name"
    SESSION_ID = "session_id"
    TRIGGER = "trigger"
    OUTCOME = "outcome"
    MODEL = "model"
    TYPE = "type"
    DAY = "day"


@dataclass(frozen=True, slots=True)
class EntryDetails:
    """`truncated_bytes` is the size of the text that was cut, `truncated_total` the rows that it had. Under a
    policy that only observes, `observed_outcome` is what would have become of the result, and
    `observed_tokens_saved` what that would have saved."""

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


@dataclass(frozen=True, slots=True)
class AccountingEntry:
    """`timestamp` is Unix ms, `latency` ms. `tokens_saved` is negative for what extraction, its model calls
    and reading back cost, so that sums are net; `tokens` are those of a model call. camelCase names are
    those of the field's own accounting format."""

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
    strategy: str | None = None
    stop_reason: str | None = None
    tokens: LlmTokens | None = None
    cost_usd: float = 0.0
    error: str | None = None
    details: EntryDetails = EntryDetails()


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Which entries; None means any. `since` and `until` are Unix ms, `since <= timestamp < until`."""

    tenant: str
    session_id: str | None = None
    type: EntryType | None = None
    tool_name: str | None = None
    trigger: Trigger | None = None
    outcome: OutcomeKind | None = None
    status: EntryStatus | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class EntryPage:
    """Oldest first. `next_cursor` is None when there is no more."""

    entries: list[AccountingEntry]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """Sums over the entries of one group. `group` is None for entries without that property.
    `tokens_saved_observed` is what policies that only observe would have saved; no part of `tokens_saved`."""

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


def split_tool_name(tool_name: str) -> tuple[str, str]:
    """Server namespace and tool: `server/tool` and `mcp__server__tool` are told apart, else ("", name)."""
    if tool_name.startswith("mcp__") and "__" in tool_name[5:]:
        server, _, tool = tool_name[5:].partition("__")
        return server, tool
    server, slash, tool = tool_name.rpartition("/")
    return (server, tool) if slash else ("", tool_name)
