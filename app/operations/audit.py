"""The audit: who read, changed or was refused what, and from where. No line holds content.

A request is a line, or a line for each stored result that it made or read. Where nothing of a tenant is read
or changed (probes, pages, scrapes), only a refusal is one.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
from msgspec import structs

from app.edge.api_keys import SHOWN_DIGITS, ApiKey
from app.operations.line_writer import JsonLines
from app.operations.tracing import note_refused
from domain.errors import ResultNotFound, SpillgateError
from domain.handles import Handle, parse_handle

SETTING = "SPILLGATE_AUDIT"
NOT_ANSWERED = 499


@dataclass(slots=True)
class Touched:
    """What a request has done so far: the results that it made, read or named, each with the code of a
    refusal that is about it alone; the tenant that it deleted, and why it was refused."""

    handles: dict[str, str | None] = field(default_factory=dict)
    tenant: str | None = None
    code: str | None = None
    revealed: bool = False


class Exchanged(Protocol):
    """What went over the wire: the bytes of both bodies; `status` 0: nothing was answered."""

    received: int
    sent: int
    status: int


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


def begin_touched() -> Touched:
    """What is noted from here on, in this task and in those that it starts, is in the returned value."""
    touched = Touched()
    _touched.set(touched)
    return touched


def note_handle(handle: object) -> None:
    """A stored result is made, read, asked or deleted."""
    if (touched := _touched.get()) is not None:
        touched.handles.setdefault(str(handle), None)


def note_tenant(tenant: str) -> None:
    """The data of this tenant is deleted."""
    if (touched := _touched.get()) is not None:
        touched.tenant = tenant


def note_refusal(code: str) -> None:
    if (touched := _touched.get()) is not None:
        touched.code = code


def note_told(error: SpillgateError, handles: Iterable[str] = ()) -> None:
    """A refusal that the model is told in an answer. It is about `handles`, as the model wrote them, else
    about the request. Nothing is noted of a text that is no handle."""
    note_refused(error)
    if (touched := _touched.get()) is None:
        return
    named = [str(handle) for handle in map(_handle_in, handles) if handle]
    if not named:
        touched.code = error.code
    known = {handle.casefold(): handle for handle in touched.handles}
    for handle in named:
        touched.handles[known.get(handle.casefold(), handle)] = error.code


def note_revealed() -> None:
    if (touched := _touched.get()) is not None:
        touched.revealed = True


def _handle_in(text: str) -> Handle | None:
    with suppress(ResultNotFound):
        return parse_handle(text)
    return None


class Audit(JsonLines[AuditLine]):
    """A line that cannot be written is counted, and the request is still answered."""

    def __init__(self, target: str) -> None:
        """Raises ConfigError if the file cannot be opened."""
        super().__init__(SETTING, target)

    def write_request(
        self, scope: Mapping[str, Any], exchanged: Exchanged, touched: Touched, route: str, address: str
    ) -> None:
        """A line for each result that the request made, read or named, else one. `route` is its method and
        the template of its path."""
        key: ApiKey | None = scope.get("key")
        logged = scope["logged"]
        named = _handle_in("/".join(scope["path"].split("/")[2:4])) if "/{handle}" in route else None
        line = AuditLine(
            time=datetime.now(UTC),
            key=(key.name or key.digest[:SHOWN_DIGITS]) if key else None,
            key_tenant=key.tenant if key else None,
            role=key.role.value if key else None,
            tenant=touched.tenant or logged.get("tenant"),
            session_id=logged.get("session_id") or (named and named.session_id),
            route=route,
            handle=named and str(named),
            bytes=exchanged.sent,
            bytes_received=exchanged.received,
            status=exchanged.status or NOT_ANSWERED,
            code=touched.code,
            revealed=touched.revealed,
            address=address,
            request_id=logged["request_id"],
        )
        for handle, code in touched.handles.items():
            self.put_nowait(structs.replace(line, handle=handle, code=code or line.code))
        if not touched.handles:
            self.put_nowait(line)
