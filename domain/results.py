"""Tool results: their size, and the record of a stored one."""

from enum import StrEnum

from domain.doors import Door
from domain.handles import Handle, SessionKey
from domain.structs import frozen_struct

MAX_ARGUMENT_BYTES = 1 << 20
"""The most bytes of the JSON of a call's arguments."""


@frozen_struct
class Measure:
    """Size of one result. `bytes` are UTF-8; `lines` are newlines, and one more if text follows the last;
    `chars` are Unicode code points; `tokens` are an estimate unless `tokens_exact`."""

    bytes: int
    lines: int
    chars: int
    tokens: int
    tokens_exact: bool


class Durability(StrEnum):
    """Where a body is when its handle is returned. `aof`: in the append-only file of one Redis server, which
    a failover may lose. `replicated`: on that server, and confirmed by its replicas. `object`: an object
    store has accepted it. `memory`: a restart of the store may lose it."""

    DISK = "disk"
    AOF = "aof"
    REPLICATED = "replicated"
    OBJECT = "object"
    MEMORY = "memory"


@frozen_struct
class UsageReport:
    """Tokens in the agent's context, as the agent reports them. `turn` is None if it counts no turns."""

    used_tokens: int
    turn: int | None = None


@frozen_struct
class ToolResult:
    """What a caller sends about one result, without the content.

    `tool_namespace` is the server's name; None: it is taken from the tool's name. `tool_arguments` is the
    JSON or string exactly as sent. `policy` is a policy override as JSON text. `truncated_total`: the
    rows or matches that the tool found, where it returned fewer.
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
    door: Door | None = None
    truncated_total: int | None = None
    client: str | None = None
    project: str | None = None


@frozen_struct
class StoredResult:
    """The record of a stored result. Times are Unix ms; every use moves `expires_at`. `epoch` is the
    session's epoch when it was stored: ending the session deletes results of that epoch and earlier ones
    only. `tokens_saved`: what storing it saved, before anything was asked about it. `redact`: what was masked
    in its texts, and is in all that a model is shown of it."""

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
    tokens_saved: int = 0
    redact: tuple[str, ...] = ()

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.tenant, self.handle.session_id)
