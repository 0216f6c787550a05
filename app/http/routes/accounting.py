"""The accounting: entries, exports, summaries."""

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import msgspec
from anyio.to_thread import run_sync
from fastapi import Depends, Query, Request, Response
from pydantic import WithJsonSchema
from starlette.responses import StreamingResponse

from app.http.api.answers import JSON, cut_on_error, prefers
from app.http.api.bodies import BodyOut
from app.http.api.roles import KeyRole
from app.http.api.routing import EveryTenant, InRuntime, Router, Tenant, Traits
from app.http.api.times import Time, milliseconds
from app.runtime import Runtime
from content.csv_text import CSV, safe_cell
from domain.accounting import (
    HISTORY_DAYS,
    MOST_GROUPS,
    MOST_GROUPS_OF_DAY,
    PERIOD_MS,
    AccountingEntry,
    EntryDetails,
    EntryFilter,
    EntryPage,
    EntryStatus,
    EntryType,
    Gap,
    GroupBy,
    Summary,
    SummaryRow,
    whole_json,
)
from domain.errors import Forbidden, InvalidField, ResultNotFound
from domain.handles import NAME_PATTERN, parse_handle
from domain.llm import LlmTokens
from domain.outcomes import OutcomeKind, Trigger

router = Router(prefix="/accounting", tags=["accounting"])

EXPORT_PAGE = 1000
MOST_PERIODS = 1440
"""The most hours or minutes of a summary: 60 days of hours, 24 hours of minutes."""
NDJSON = "application/x-ndjson"

Entries = Callable[[EntryFilter, int, str | None], Awaitable[EntryPage]]
"""Returns a page of entries. Its arguments: the filter, the most entries, the cursor."""


class SummaryFormat(StrEnum):
    JSON = "json"
    CSV = "csv"


class Order(StrEnum):
    OLDEST = "oldest"
    NEWEST = "newest"


_HANDLE = f"^session-{NAME_PATTERN}/file-[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$"


class EntriesOut(BodyOut):
    """Entries, the newest last unless `order` says otherwise. `next_cursor` is null on the last page."""

    entries: list[AccountingEntry]
    next_cursor: str | None


class SummaryOut(BodyOut):
    """`tokens_saved` is net: what extraction and reading back cost is subtracted. `tokens_saved_observed` is
    what policies in mode `observe` would have saved. `rest` has the sums of the groups past 10,000, or past
    1,000 of a day; `total` includes them. `complete` is false if entries of the selected time may be missing;
    `warnings` say why."""

    group_by: str
    rows: list[SummaryRow]
    rest: SummaryRow | None
    total: SummaryRow
    complete: bool
    warnings: list[str]


def _filter(
    tenant: Tenant,
    session_id: str | None = None,
    type: EntryType | None = None,
    tool_name: str | None = None,
    trigger: Trigger | None = None,
    outcome: OutcomeKind | None = None,
    status: EntryStatus | None = None,
    since: Time = None,
    until: Time = None,
    handle: Annotated[
        str | None, Query(description="Entries about this result.", json_schema_extra={"pattern": _HANDLE})
    ] = None,
) -> EntryFilter:
    if handle is not None:
        session_id = _session_of(handle)
    return EntryFilter(
        tenant,
        session_id,
        type,
        tool_name,
        trigger,
        outcome,
        status,
        milliseconds(since, "since"),
        milliseconds(until, "until"),
        handle,
    )


Filter = Annotated[EntryFilter, Depends(_filter)]


def _session_of(handle: str) -> str:
    try:
        return parse_handle(handle).session_id
    except ResultNotFound:
        raise InvalidField("`handle` must be a handle: `session-…/file-…`.") from None


_KEYS = "|".join(GroupBy)
_REST = "(rest)"
_CUT = (
    f"`rest` has the sums of groups past {MOST_GROUPS}, or past {MOST_GROUPS_OF_DAY} of a day. For single "
    "groups, ask about a shorter time."
)
_ONLY_DAYS = "From before that, only sums of whole days exist, without session, hour and minute."
_GAPS = {
    Gap.AGE: "Entries up to {until} are past their retention (SPILLGATE_LEDGER_RETENTION_SECONDS). "
    f"{_ONLY_DAYS}",
    Gap.BYTES: "Entries up to {until} had to make room (SPILLGATE_LEDGER_MAX_BYTES, "
    f"SPILLGATE_LEDGER_TOTAL_MAX_BYTES). {_ONLY_DAYS}",
    Gap.HISTORY: f"Sums of the days before {{until}} are not kept: they live {HISTORY_DAYS} days at most.",
    Gap.MERGED: f"On a day with more than {MOST_GROUPS_OF_DAY} groups, sums do not name all "
    "tools: entries of this tool may be missing.",
    Gap.UNRECORDED: "For a time the ledger had no room: of those results and readings only sums by "
    "session are kept. See /accounting/entries?type=unrecorded.",
    Gap.LOST: "The ledger lost entries that it had acknowledged, in a failover or a restart. See "
    "/accounting/entries?type=lost.",
    Gap.DAMAGED: "A record is damaged, or another version wrote it: it was left out, and entries may be "
    "missing. The log names the record.",
}


@router.get(
    "/entries",
    response_model=EntriesOut,
    summary="Accounting entries; Accept: text/csv or application/x-ndjson exports",
    responses={
        200: {"content": {CSV: {"schema": {"type": "string"}}, NDJSON: {"schema": {"type": "string"}}}},
    },
)
@Traits(roles=(KeyRole.ADMIN,))
async def get_entries(
    request: Request,
    rt: InRuntime,
    chosen: Filter,
    every_tenant: EveryTenant,
    limit: Annotated[int | None, Query(ge=1, le=1000, description="100; an export has no limit.")] = None,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
    order: Annotated[Order, Query(description="Which come first.")] = Order.OLDEST,
    all_tenants: Annotated[
        bool, Query(description="An admin's export of every tenant, one after the other.")
    ] = False,
) -> Response | EntriesOut:
    """Exports hold all that match, or the first `limit`. With an admin's key, the header Spillgate-Tenant
    names one tenant."""
    entries: Entries = partial(rt.ledger.entries, newest_first=order is Order.NEWEST)
    accept = request.headers.get("accept", "")
    if all_tenants:
        if limit is not None or cursor is not None or not (prefers(accept, CSV) or prefers(accept, NDJSON)):
            raise InvalidField(
                f"`all_tenants` is for an export: send Accept: {NDJSON} or {CSV}, and no limit or cursor."
            )
        entries = _of_each(entries, await _tenants(request, rt, every_tenant))
    for media, lines in ((CSV, _csv), (NDJSON, _ndjson)):
        if prefers(accept, media):
            # The first page is read before the answer begins: a bad cursor can still get an error status.
            first = await entries(chosen, limit or EXPORT_PAGE, cursor)
            pages = _pages(entries, chosen, limit, first)
            chunks = cut_on_error(request, lines(pages))
            return StreamingResponse(chunks, media_type=f"{media}; charset=utf-8")
    page = await entries(chosen, limit or 100, cursor)
    listed = [msgspec.Raw(whole_json(entry)) for entry in page.entries]
    body = msgspec.json.encode({"entries": listed, "next_cursor": page.next_cursor})
    return Response(body, media_type=JSON)


async def _tenants(request: Request, rt: Runtime, every_tenant: bool) -> list[str]:
    """All tenants that have entries. Raises Forbidden unless an admin's key asks, without naming a tenant."""
    if not every_tenant and request.app.state.keys is not None:
        raise Forbidden("`all_tenants` needs a key with the role `admin`, and no header Spillgate-Tenant.")
    # From the ledger: what readiness knows may be some seconds old.
    return sorted(await rt.ledger.usage())


def _of_each(entries: Entries, tenants: list[str]) -> Entries:
    """Pages of one tenant after the other. A cursor begins with the index of its tenant."""

    async def page(chosen: EntryFilter, limit: int, cursor: str | None) -> EntryPage:
        place, _, inner = (cursor or "0").partition(" ")
        number = int(place)
        if number >= len(tenants):
            return EntryPage([], None)
        of_tenant = await entries(replace(chosen, tenant=tenants[number]), limit, inner or None)
        after = f"{number} {of_tenant.next_cursor}" if of_tenant.next_cursor else f"{number + 1}"
        return EntryPage(of_tenant.entries, after)

    return page


async def _pages(
    entries: Entries,
    chosen: EntryFilter,
    limit: int | None,
    page: EntryPage,
) -> AsyncIterator[list[AccountingEntry]]:
    """Yields all pages, or only the first if there is a `limit`."""
    yield page.entries
    while limit is None and page.next_cursor is not None:
        page = await entries(chosen, EXPORT_PAGE, page.next_cursor)
        yield page.entries


async def _ndjson(pages: AsyncIterator[list[AccountingEntry]]) -> AsyncIterator[bytes]:
    async for page in pages:
        yield b"".join(whole_json(entry) + b"\n" for entry in page)


async def _csv(pages: AsyncIterator[list[AccountingEntry]]) -> AsyncIterator[bytes]:
    """One column for each field; names of nested fields have a prefix, such as `details.`."""
    yield (",".join(_COLUMNS) + "\r\n").encode()
    async for page in pages:
        out = io.StringIO()
        csv.writer(out).writerows([_row(entry) for entry in page])
        yield out.getvalue().encode()


_NESTED: dict[str, list[str]] = {
    "tokens": list(LlmTokens.__dataclass_fields__),
    "details": list(EntryDetails.__dataclass_fields__),
}
_FIELDS = [name for name in AccountingEntry.__dataclass_fields__ if name not in _NESTED]
_COLUMNS = [*_FIELDS, *(f"{parent}.{name}" for parent, names in _NESTED.items() for name in names)]


def _row(entry: AccountingEntry) -> list[Any]:
    values = asdict(entry)
    parents = {parent: values.pop(parent) or {} for parent in _NESTED}
    nested = [parents[parent].get(name) for parent, names in _NESTED.items() for name in names]
    return [safe_cell(value) for value in (*values.values(), *nested)]


def _keys(
    group_by: Annotated[
        str,
        WithJsonSchema({"type": "string", "pattern": f"^({_KEYS})(,({_KEYS}))*$"}),
        Query(
            max_length=256,
            description="One or more keys, separated by commas. `key` is the name of the API key, `door` "
            "the client. `month`, `day`, `hour` and `minute` are in UTC; the last two need `since`, at most "
            "1,440 of them before `until`. Other keys are fields of the entries.",
        ),
    ] = "tool_name",
) -> tuple[GroupBy, ...]:
    """The keys without repetitions, in their order. Raises InvalidField."""
    names = dict.fromkeys(group_by.split(","))
    if not set(names) <= set(GroupBy):
        raise InvalidField(f"`group_by` must be one or more of {', '.join(GroupBy)}, separated by commas.")
    return tuple(map(GroupBy, names))


@router.get(
    "/summary",
    response_model=SummaryOut,
    summary="Sums by group, most tokens saved first; Accept: text/csv or format=csv exports",
    responses={200: {"content": {CSV: {"schema": {"type": "string"}}}}},
)
@Traits(roles=(KeyRole.ADMIN,))
async def get_summary(
    request: Request,
    rt: InRuntime,
    chosen: Filter,
    every_tenant: EveryTenant,
    keys: Annotated[tuple[GroupBy, ...], Depends(_keys)],
    format: Annotated[SummaryFormat | None, Query(description="Instead of Accept.")] = None,
) -> Response:
    """With `group_by=tenant`, an admin's key sums up all tenants, or the one that the header Spillgate-Tenant
    names."""
    for period in {GroupBy.HOUR, GroupBy.MINUTE}.intersection(keys):
        _check_periods(chosen, period, rt.clock())
    if every_tenant and GroupBy.TENANT in keys:
        chosen = replace(chosen, tenant=None)
    summary = await rt.ledger.summary(chosen, *keys)
    # In a thread: 10,000 rows take over 10 ms.
    if format is SummaryFormat.CSV or (format is None and prefers(request.headers.get("accept", ""), CSV)):
        return Response(await run_sync(_summary_csv, summary, keys), media_type=f"{CSV}; charset=utf-8")
    return Response(await run_sync(_summary_json, summary, keys), media_type=JSON)


def _check_periods(chosen: EntryFilter, group_by: GroupBy, now: int) -> None:
    """Raises InvalidField for a time of more than MOST_PERIODS hours or minutes."""
    until = now if chosen.until is None else chosen.until
    if chosen.since is None or until - chosen.since > MOST_PERIODS * PERIOD_MS[group_by]:
        raise InvalidField(
            f"group_by={group_by} needs `since`, at most {MOST_PERIODS} {group_by}s before `until`."
        )


_SUMMED = [name for name in SummaryRow.__dataclass_fields__ if name not in ("group", "groups")]


def _summary_json(summary: Summary, keys: tuple[GroupBy, ...]) -> bytes:
    """Encodes a SummaryOut. Rows one by one: a single call for all would hold the interpreter's lock too
    long."""
    return msgspec.json.encode(
        {
            "group_by": ",".join(keys),
            "rows": msgspec.Raw(b"[%b]" % b",".join(map(msgspec.json.encode, summary.rows))),
            "rest": summary.rest,
            "total": summary.total,
            "complete": not summary.gaps,
            "warnings": _warnings(summary),
        }
    )


def _warnings(summary: Summary) -> list[str]:
    gaps = [_GAPS[gap].format(until=until and _time(until)) for gap, until in summary.gaps.items()]
    return gaps if summary.rest is None else [*gaps, _CUT]


def _time(at: int) -> str:
    """Unix ms as ISO 8601."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _summary_csv(summary: Summary, keys: tuple[GroupBy, ...]) -> str:
    """Columns: each key, each sum, `complete`, and `warnings`."""
    out = io.StringIO()
    write = csv.writer(out).writerow
    write([*keys, *_SUMMED, "complete", "warnings"])
    complete = "false" if summary.gaps else "true", " ".join(_warnings(summary))
    rows = [(list(row.groups.values()), row) for row in summary.rows]
    if summary.rest is not None:
        rows.append(([_REST] * len(keys), summary.rest))
    for groups, row in rows:
        write([*map(safe_cell, groups), *(getattr(row, name) for name in _SUMMED), *complete])
    return out.getvalue()
