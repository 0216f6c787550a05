"""The audit: who read, changed or was refused what, and from where. No line holds content.

A request is a line, or a line for each stored result that it made or read. Where nothing of a tenant is read
or changed (probes, pages, scrapes), only a refusal is one.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
from msgspec import structs

from app.operations.line_writer import JsonLines
from domain.errors import BadRequest, ResultNotFound, SpillgateError
from domain.handles import Handle, parse_handle
from domain.outcomes import Outcome
from domain.ports import Observer, ServedRequest
from domain.results import ToolResult

AUDIT_SETTING = "SPILLGATE_AUDIT"
NOT_ANSWERED = 499


@dataclass(slots=True)
class Touched:
    """What a request has done so far: the results that it made, read or named, each with the code of a
    refusal that is about it alone; the tenant that it deleted, and why it was refused."""

    handles: dict[str, str | None] = field(default_factory=dict)
    tenant: str | None = None
    code: str | None = None
    revealed: bool = False


class AuditLine(msgspec.Struct, frozen=True, gc=False):
    """`key_tenant` and `role` are those of the key `key`,
    null without keys; `tenant` is whose data it was. `route` is the template of the path. `bytes` were
    answered, `bytes_received` came with the request. `code` is that of a refusal, also of one that the model
    is told with a status of 200. `revealed`: what is redacted was read as it is stored."""

    time: datetime
    key: str | None
    key_tenant: str | None
    role: str | None
    tenant: str | None
    session_id: str | None
    route: str
    handle: str | None
    bytes: int
    bytes_received: int
    status: int
    code: str | None
    revealed: bool
    address: str
    request_id: str


_touched: ContextVar[Touched | None] = ContextVar("touched", default=None)


def _handle_in(text: str) -> Handle | None:
    with suppress(ResultNotFound):
        return parse_handle(text)
    return None


class Audit(Observer):
    """A line that cannot be written is counted, and the request is still answered."""

    def __init__(self, target: str, count: Callable[[int], None]) -> None:
        """`count` is called with the number of lines that are lost. Raises ConfigError if the file cannot be
        opened."""
        self.lines = JsonLines[AuditLine](AUDIT_SETTING, target, count)

    def begun(self, request: ServedRequest) -> None:
        _touched.set(Touched())

    def governed(self, result: ToolResult, outcome: Outcome, tokens_out: int, seconds: float) -> None:
        if outcome.handle is not None:
            self.named(outcome.handle)

    def named(self, handle: Handle) -> None:
        if (touched := _touched.get()) is not None:
            touched.handles.setdefault(str(handle), None)

    def deletes(self, tenant: str) -> None:
        if (touched := _touched.get()) is not None:
            touched.tenant = tenant

    def revealed(self) -> None:
        if (touched := _touched.get()) is not None:
            touched.revealed = True

    def refused(self, error: SpillgateError, route: str, *, carries_result: bool) -> None:
        if (touched := _touched.get()) is not None:
            touched.code = error.code

    def told(self, error: SpillgateError, handles: Iterable[str] = ()) -> None:
        """Records the error at each handle. A text that is not a handle is not recorded."""
        if (touched := _touched.get()) is None:
            return
        named = [str(handle) for handle in map(_handle_in, handles) if handle]
        if not named:
            touched.code = error.code
        known = {handle.casefold(): handle for handle in touched.handles}
        for handle in named:
            touched.handles[known.get(handle.casefold(), handle)] = error.code

    def answered(self, request: ServedRequest, error: BaseException | None) -> None:
        """Writes a line for each result that the request made, read or named, else one."""
        touched = _touched.get()
        if touched is None or (request.is_plain and 0 < request.status < BadRequest.status):
            return
        caller, fields = request.caller, request.fields
        in_path = "/{handle}" in request.route
        named = _handle_in("/".join(request.path.split("/")[2:4])) if in_path else None
        line = AuditLine(
            time=datetime.now(UTC),
            key=caller and caller.key,
            key_tenant=caller and caller.tenant,
            role=caller and caller.role,
            tenant=touched.tenant or fields.get("tenant"),
            session_id=fields.get("session_id") or (named and named.session_id),
            route=f"{request.method} {request.route}".strip(),
            handle=named and str(named),
            bytes=request.sent,
            bytes_received=request.received,
            status=request.status or NOT_ANSWERED,
            code=touched.code,
            revealed=touched.revealed,
            address=request.address,
            request_id=fields["request_id"] or "",
        )
        for handle, code in touched.handles.items():
            self.lines.put_nowait(structs.replace(line, handle=handle, code=code or line.code))
        if not touched.handles:
            self.lines.put_nowait(line)
