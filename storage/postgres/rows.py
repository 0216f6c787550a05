"""Sessions and entries as rows of PostgreSQL, and back."""

from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

import msgspec

from domain.accounting import AccountingEntry, EntryDetails, EntryFilter
from domain.budget import Session
from domain.handles import SessionKey
from domain.results import UsageReport
from storage.base.damage import Notices
from storage.base.sparse import set_fields
from storage.base.sql import conditions
from storage.postgres.errors import unkeepable

ENTRY_BYTES = 400
"""The bytes for which an entry counts, without `rest`: its columns and its places in the indexes."""

OF_ENTRY = (
    *("id", "type", "timestamp", "status", "tool_name", "trigger", "outcome", "model"),
    *("latency", "tokens_in", "tokens_out", "tokens_saved", "cost_usd"),
    *("strategy", "tool_kind", "key", "client"),
)
"""Columns that hold a field of the entry."""

OF_DETAILS = {
    "handle": "tool_output_handle",
    "bytes": "bytes",
    "observed_tokens_saved": "observed_tokens_saved",
    "found_nothing": "found_nothing",
    "costs_more": "costs_more",
}
"""Columns that hold a field of its details."""

ENTRY_COLUMNS = ", ".join(("tenant", "session_id", *OF_ENTRY, *OF_DETAILS, "rest"))

Row = tuple[object, ...]

_ARGUMENTS = (
    *("id", "type", "timestamp", "status", "tool_name", "trigger", "outcome", "model"),
    *("details.tool_output_handle", "latency", "details.bytes", "tokens_in", "tokens_out", "tokens_saved"),
    *("cost_usd", "details.observed_tokens_saved", "strategy", "tool_kind", "key", "client"),
    *("is_stored", "is_asked_back", "details.found_nothing", "details.costs_more"),
)
"""The attributes of an entry in the order of the arguments of spillgate.step."""

NO_ENTRY: Row = (None,) * (len(_ARGUMENTS) + 2)
_arguments_of = attrgetter(*_ARGUMENTS)
_rest_of_entry = set_fields(AccountingEntry, ("tenant", "session_id", "details", *OF_ENTRY))
_rest_of_details = set_fields(EntryDetails, tuple(OF_DETAILS.values()))
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_reports = msgspec.json.Decoder(tuple[UsageReport, ...]).decode
SESSION_FIELDS = tuple(field.name for field in fields(Session)[1:-1])
SESSION_COLUMNS = ", ".join(f"s.{name}" for name in (*SESSION_FIELDS, "reports", "seal"))
_values_of_session = attrgetter(*SESSION_FIELDS)
_DAMAGES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError)
_notices = Notices()


def entry_arguments(entry: AccountingEntry) -> Row:
    """Raises InvalidField for what cannot be kept."""
    rest = _rest_of_entry(entry)
    if details := _rest_of_details(entry.details):
        rest["details"] = details
    try:
        packed = _encode(rest).decode() if rest else None
    except (UnicodeEncodeError, OverflowError):
        raise unkeepable() from None
    return (*_arguments_of(entry), ENTRY_BYTES + len(packed or ""), packed)


def entry_of(row: Mapping[str, Any]) -> AccountingEntry | None:
    """None for a damaged entry, which a warning names."""
    try:
        rest = _decode(row["rest"]) if row["rest"] else {}
        details = rest.get("details", {}) | {field: row[name] for name, field in OF_DETAILS.items()}
        columns = {name: row[name] for name in OF_ENTRY}
        known = {"tenant": row["tenant"], "session_id": row["session_id"], **columns}
        return msgspec.convert({**rest, **known, "details": details}, AccountingEntry)
    except _DAMAGES:
        _notices.warn(f"ledger: entry {row['id']}", "is damaged and left out.")
        return None


def session_arguments(session: Session) -> Row:
    reports = _encode(session.reports).decode() if session.reports else "[]"
    return (*_values_of_session(session), reports)


def session_of(key: SessionKey, row: Mapping[str, Any]) -> Session | None:
    """None for a damaged row, which a warning names."""
    try:
        columns = {name: row[name] for name in SESSION_FIELDS}
        return Session(key, **columns, reports=_decode_reports(row["reports"]))
    except _DAMAGES:
        _notices.warn(f"ledger: session {key.tenant}/{key.session_id}", "is damaged. PUT or end it.")
        return None


def where(wanted: EntryFilter, first: int = 1) -> tuple[str, list[object]]:
    """Returns the condition and its parameters, the first of them numbered `first`."""
    given = conditions(wanted)
    texts = [f"{text} ${place}" for place, (text, _) in enumerate(given, first)]
    return " AND ".join(texts) or "true", [value for _, value in given]
