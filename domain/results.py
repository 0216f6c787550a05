"""What a tool returned, how large it is, and what is known of it once it is kept."""

from dataclasses import dataclass
from enum import StrEnum

from domain.handles import Handle, SessionKey


@dataclass(frozen=True, slots=True)
class Measure:
    """Size of one result. `bytes` are UTF-8; `lines` are newlines plus one, 0 for empty text;
    `chars` are Unicode code points; `tokens` are exact only where `tokens_exact` says so."""

    bytes: int
    lines: int
    chars: int
    tokens: int
    tokens_exact: bool


class Durability(StrEnum):
    """Where a body is when its handle is spoken. `aof`: in Redis, and in the append-only file on its disk.
    `memory`: a restart of whoever keeps it may lose it."""

    DISK = "disk"
    AOF = "aof"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What the agent says is committed in its context. `turn` is None where the agent counts no turns."""

    used_tokens: int
    turn: int | None = None


# Not frozen, though nothing changes it: a frozen one takes three times as long to build, for every result.
@dataclass(slots=True, unsafe_hash=True)
class ToolResult:
    """All that a caller says about one result, but for its content.

    `tool_namespace` is the server's, None where the tool's name is to tell it. `tool_arguments` is the JSON
    or string exactly as sent. `policy` is a policy override as JSON text.
    """

    key: SessionKey
    tool_name: str
    call_id: str | None = None
    tool_arguments: str | None = None
    is_error: bool = False
    provider: str | None = None
    tool_kind: str | None = None
    tool_namespace: str | None = None
    latency_ms: float | None = None
    model: str | None = None
    context: UsageReport | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class StoredResult:
    """What is known of a kept result. Times are Unix milliseconds; `expires_at` moves with every use.
    `epoch` is the session's at the time: ending the session deletes the results of earlier epochs only."""

    tenant: str
    handle: Handle
    tool_name: str
    tool_arguments: str | None
    tool_kind: str | None
    provider: str | None
    is_error: bool
    measure: Measure
    sha256: str
    stored_at: int
    expires_at: int
    epoch: int
    tool_namespace: str | None = None

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.tenant, self.handle.session_id)
