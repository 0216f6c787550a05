"""A stored result: its info, bytes and lines, search, query, and what models were given of it."""

import re
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path, Query, Request, Response
from starlette.responses import StreamingResponse

from app.answering.pass_on import account_passed_on
from app.answering.reading import (
    NO_VALUE,
    account_read,
    account_texts,
    asked_words,
    begun,
    command_of,
    data_kind_of,
    given_text,
    look_up,
    path_of,
    query_text,
    scan,
    selected,
)
from app.http.api.answers import JSON, PLAIN, cut_on_error, prefers, wants_text
from app.http.api.bodies import MOST, BodyOut
from app.http.api.request_body import cancel_on_disconnect
from app.http.api.roles import KeyRole
from app.http.api.routing import InRuntime, Router, Tenant, Traits
from app.http.api.times import Time, milliseconds
from app.masking.redactions import ShownResult
from app.operations.tracing import READ
from app.runtime import Runtime
from content import MAX_EXPRESSION_CHARS, MAX_PATTERN_CHARS, model_text
from content.csv_text import CSV, rows_csv, safe_cell
from content.grep import Grep, Match
from content.greppable import needs_view
from content.kind import Kind
from content.lines import LinePage, LinePager
from content.threads import in_thread_if_long
from domain.accounting import AccountingEntry, EntryFilter, EntryType
from domain.errors import (
    BadPattern,
    BadQuery,
    Forbidden,
    InvalidField,
    NotQueryable,
    QueryTooCostly,
    RangeNotSatisfiable,
    ResultExpired,
    ResultNotFound,
)
from domain.handles import parse_handle
from domain.outcomes import OutcomeKind
from domain.results import Measure, StoredResult
from extraction.query_terms import DataQuery, QueryAnswer

router = Router(tags=["results"])

ANSWER_BYTES = 1 << 18
"""The most bytes of text in one answer."""

_MOST_PAGES = 20
"""The most pages of entries that are read for one page of the list: the results of many entries may be
gone."""

_ALL_ROWS = 1 << 30

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")

HandlePath = Annotated[str, Path(description="As the handle message gives it.")]


Accounted = Annotated[
    bool, Query(description="false: a person reads, not a model. The accounting gets no entry.")
]


class BodyView(StrEnum):
    RAW = "raw"
    GREPPABLE = "greppable"


class _Known(BodyOut):
    """What is known of a stored result. Times are Unix milliseconds. `command` is that by which a person
    recognises the call: the command, file, page or pattern in its arguments, else all arguments. `path` is
    the file that holds the bytes; null if the caller can probably not read it. If something is masked,
    `sha256` and `measure` are those of what `/content` answers, and `path` is null."""

    handle: str
    session_id: str
    tool_name: str
    tool_arguments: str | None
    tool_kind: str | None
    provider: str | None
    is_error: bool
    measure: Measure
    sha256: str
    stored_at: int
    expires_at: int
    command: str
    path: str | None


class StoredOut(_Known):
    """`kind`: the format as which the data is read."""

    kind: Kind


class ListedOut(_Known):
    """`client` sent the result; `project` is what the client works in. Null if the client did not say."""

    client: str | None
    project: str | None


class ListOut(BodyOut):
    """The newest first. A page may hold fewer results than `limit`, even none: go on while `next_cursor` is
    not null."""

    results: list[ListedOut]
    next_cursor: str | None


class GrepOut(BodyOut):
    matches: list[Match]
    total_matches: int
    next_offset: int | None
    view: BodyView


@router.get("/results", summary="List what is stored")
@Traits(span=READ)
async def list_stored(
    rt: InRuntime,
    tenant: Tenant,
    session_id: Annotated[str | None, Query(description="Only those of this session.")] = None,
    tool_name: Annotated[str | None, Query(description="Only those of this tool.")] = None,
    client: Annotated[str | None, Query(description="Only those that this client sent.")] = None,
    project: Annotated[str | None, Query(description="Only those of this project.")] = None,
    text: Annotated[
        str | None,
        Query(max_length=256, description="In the tool's name or the command, in any letter case."),
    ] = None,
    min_bytes: Annotated[int, Query(ge=0, le=MOST, description="Only those that are not smaller.")] = 0,
    max_bytes: Annotated[
        int | None, Query(ge=0, le=MOST, description="Only those that are not larger.")
    ] = None,
    since: Time = None,
    until: Time = None,
    limit: Annotated[int, Query(ge=1, le=200, description="A page may hold fewer.")] = 100,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> ListOut:
    """Newest first. A page reads at most twenty times `limit` entries, so a page before the last one may be
    empty. On the last page `next_cursor` is null. Listing does not restart the retention of results."""
    first, last = milliseconds(since, "since"), milliseconds(until, "until")
    wanted = EntryFilter(tenant, session_id, EntryType.TOOL, tool_name, since=first, until=last, stored=True)
    words = (text or "").casefold()
    results: list[ListedOut] = []
    for _ in range(_MOST_PAGES):
        page = await rt.ledger.entries(wanted, limit - len(results), cursor, newest_first=True)
        for entry in page.entries:
            size = entry.details.bytes
            is_fitting = min_bytes <= size and (max_bytes is None or size <= max_bytes)
            if not is_fitting or client not in (None, entry.client) or project not in (None, entry.project):
                continue
            if (stored := await _stored_by(rt, entry)) is None:
                continue
            if words in entry.tool_name.casefold() or words in command_of(stored).casefold():
                # A result may expire between the two lookups: the list then leaves it out.
                with suppress(ResultExpired):
                    known = await _known(rt, stored)
                    results.append(ListedOut(**known, client=entry.client, project=entry.project))
        cursor = page.next_cursor
        if 2 * len(results) >= limit or cursor is None:
            break
    return ListOut(results=results, next_cursor=cursor)


async def _stored_by(rt: Runtime, entry: AccountingEntry) -> StoredResult | None:
    """The result that the call of this entry stored; None if it is gone."""
    handle = entry.details.tool_output_handle
    return await rt.store.find(entry.tenant, parse_handle(handle)) if handle else None


@router.get("/results/{handle:path}/lines", summary="Read lines", response_model=LinePage)
@Traits(span=READ)
async def get_lines(
    request: Request,
    rt: InRuntime,
    tenant: Tenant,
    handle: HandlePath,
    offset: Annotated[int, Query(ge=1, le=MOST, description="First line, 1-based.")] = 1,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 200,
    view: Annotated[BodyView, Query(description="greppable pretty-prints one-line data.")] = BodyView.RAW,
    accounted: Accounted = True,
) -> LinePage | Response:
    """At most 256 KiB of text."""
    stored = await look_up(rt, tenant, handle)
    pager = LinePager(offset, limit, ANSWER_BYTES)
    page = await scan(
        rt, await rt.redactions.shown_to_people(stored), pager, greppable=view is BodyView.GREPPABLE
    )
    if accounted:
        await account_texts(rt, stored, [line.text for line in page.lines])
    if wants_text(request):
        text = model_text.lines_text(page, offset, ANSWER_BYTES + model_text.LINE_ROOM, "offset = {}".format)
        return Response(text, media_type=PLAIN)
    return page


@router.get("/results/{handle:path}/grep", summary="Search lines", response_model=GrepOut)
@Traits(span=READ, raises=(BadPattern,))
async def get_grep(
    request: Request,
    rt: InRuntime,
    tenant: Tenant,
    handle: HandlePath,
    pattern: Annotated[str, Query(min_length=1, max_length=MAX_PATTERN_CHARS, description="RE2 syntax.")],
    context: Annotated[int, Query(ge=0, le=20, description="Lines before and after each match.")] = 0,
    ignore_case: bool = False,
    literal: bool = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[
        int, Query(ge=0, le=MOST, description="Matches to skip: the `next_offset` of a page.")
    ] = 0,
    view: Annotated[BodyView | None, Query(description="Default: greppable for one-line data.")] = None,
    accounted: Accounted = True,
) -> GrepOut | Response:
    """Matches single lines, without the CR of a CRLF and the colours of a terminal. Line numbers count in the
    `view`. Of a line longer than 2,000 bytes, the text around the match is shown, and `truncated` is true."""
    grep = Grep(
        pattern,
        context=context,
        ignore_case=ignore_case,
        literal=literal,
        limit=limit,
        offset=offset,
        max_bytes=ANSWER_BYTES,
    )
    stored = await look_up(rt, tenant, handle)
    if view is None:
        one_line = needs_view(stored.measure.bytes, stored.measure.lines)
        view = BodyView.GREPPABLE if one_line else BodyView.RAW
    page = await scan(
        rt, await rt.redactions.shown_to_people(stored), grep, greppable=view is BodyView.GREPPABLE
    )
    if accounted:
        shown = [text for match in page.matches for text in (*match.before, match.text, *match.after)]
        await account_texts(rt, stored, shown)
    if wants_text(request):
        matches = model_text.Matches(page.matches, page.total_matches, offset + 1, base=0, spans=grep.spans)
        return Response(model_text.grep_text(matches, ANSWER_BYTES), media_type=PLAIN)
    return GrepOut(
        matches=page.matches,
        total_matches=page.total_matches,
        next_offset=page.next_offset,
        view=view,
    )


_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bytes.", "content": {"text/plain": {}}},
    206: {"description": "The range asked for.", "content": {"text/plain": {}}},
    304: {"description": "Not modified."},
}


@router.head(
    "/results/{handle:path}/content",
    response_class=Response,
    summary="Size and ETag of the bytes",
    responses=_BYTES,
)
@router.get("/results/{handle:path}/content", response_class=Response, summary="Read bytes", responses=_BYTES)
@Traits(span=READ, raises=(Forbidden, RangeNotSatisfiable))
async def get_content(
    request: Request,
    rt: InRuntime,
    tenant: Tenant,
    handle: HandlePath,
    accounted: Annotated[
        bool, Query(description="true: what is read goes to the model, and counts against the savings.")
    ] = False,
    redact: Annotated[
        bool, Query(description="false: as it is stored, for a key with the role `reveal`.")
    ] = True,
    passed_on_to: Annotated[
        str | None,
        Query(min_length=1, max_length=256, description="The tool that gets the bytes, unread by a model."),
    ] = None,
) -> Response:
    """The bytes as they came. `Range` (one range), `If-None-Match` and `If-Range` work; the `ETag` is the
    SHA-256. What the policy redacts is masked, and the `ETag` is that of the masked text, unless a key with
    the role `reveal` sends `redact=false`. If the result is deleted while it is sent, the connection ends
    early."""
    if not redact and request.scope.get("role") is not KeyRole.REVEAL:
        raise Forbidden("Only a key with the role `reveal` may read what is redacted.")
    stored = await look_up(rt, tenant, handle)
    if not redact:
        rt.observer.revealed()
    shown = await rt.redactions.shown_to_people(stored) if redact else ShownResult(stored, rt.store)
    size, etag = shown.result.measure.bytes, f'"{shown.result.sha256}"'
    headers = {"ETag": etag, "Accept-Ranges": "bytes"}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    span = _range(request, etag, size)
    start, end = span or (0, size)
    headers["Content-Length"] = str(end - start)
    if span:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    status = 206 if span else 200
    if request.method == "HEAD":
        return Response(None, status, headers, media_type=PLAIN)
    body = await begun(
        request.app.state.read_ahead.chunks(partial(shown.store.read, shown.result), start, end)
    )
    if passed_on_to is not None:
        await account_passed_on(rt, stored, passed_on_to, end - start)
    elif accounted:
        chars = (end - start) * stored.measure.chars // max(size, 1)
        await account_read(rt, stored, end - start, chars)
    return StreamingResponse(cut_on_error(request, body), status, headers, media_type=PLAIN)


def _range(request: Request, etag: str, size: int) -> tuple[int, int] | None:
    """The requested range; None for the whole body: without a range, with several, or with an outdated
    If-Range."""
    match = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if match is None or match[0] == "bytes=-" or request.headers.get("if-range", etag) != etag:
        return None
    first, last = match[1], match[2]
    if not first:
        start, end = max(0, size - int(last[:20])), size
    else:
        start, end = int(first[:20]), min(size, int(last[:20]) + 1 if last else size)
    if last and first and int(last[:20]) < start:
        return None
    if start >= size or start >= end:
        raise RangeNotSatisfiable(f"The result has {size} bytes.", size)
    return start, end


@router.get("/results/{handle:whole_handle}", summary="What is known of a stored result")
async def get_stored(request: Request, rt: InRuntime, tenant: Tenant, handle: HandlePath) -> StoredOut:
    """`kind` is decided by the first 64 KiB. A handle without a result is 410 `result_expired` or
    `session_ended` if it once had one, else 404."""
    stored = await look_up(rt, tenant, handle)
    known = await _known(rt, stored, reveals=request.scope.get("role") is KeyRole.REVEAL)
    return StoredOut(**known, kind=await data_kind_of(rt, await rt.redactions.shown_to_people(stored)))


@router.delete(
    "/results/{handle:whole_handle}",
    status_code=204,
    response_class=Response,
    summary="Delete a stored result",
)
@Traits(writes=True)
async def delete_stored(rt: InRuntime, tenant: Tenant, handle: HandlePath) -> None:
    await look_up(rt, tenant, handle)
    if not await rt.store.delete(tenant, parse_handle(handle)):
        raise ResultNotFound("No stored result has this handle.")


async def _known(rt: Runtime, stored: StoredResult, *, reveals: bool = False) -> dict[str, Any]:
    """The fields of _Known. With `reveals` they describe the stored bytes, without masks."""
    shown = ShownResult(stored, rt.store) if reveals else await rt.redactions.shown_to_people(stored)
    shared = _Known.model_fields.keys() - {"handle", "session_id", "command", "path"}
    return {
        "handle": str(stored.handle),
        "session_id": stored.handle.session_id,
        "command": command_of(stored),
        "path": None if shown.has_masks else rt.body_path(stored.tenant, stored.handle),
        **{name: getattr(shown.result, name) for name in shared},
    }


class QueryOut(BodyOut):
    """`total` and `next_offset` are set for an array. `truncated`: `result` is only a part of the value.
    `hint` says which keys or columns exist if nothing is selected, and where in the data the rows of SQL are;
    else "". `columns` are those that SQL selects, null for JMESPath."""

    result: Any
    type: Literal["array", "object", "string", "number", "boolean", "null"]
    kind: Kind
    total: int | None
    next_offset: int | None
    truncated: bool
    hint: str
    columns: list[str] | None


_CSV_BYTES = 16 << 20
"""The most bytes of JSON that are converted to a CSV."""


@router.get(
    "/results/{handle:path}/query",
    summary="Query JSON, tables or lines; Accept: text/csv answers with all rows",
    response_model=QueryOut,
)
@Traits(span=READ, raises=(BadQuery, NotQueryable, QueryTooCostly))
async def get_query(
    request: Request,
    rt: InRuntime,
    tenant: Tenant,
    handle: HandlePath,
    expression: Annotated[
        str,
        Query(
            min_length=1,
            max_length=MAX_EXPRESSION_CHARS,
            description="SQL over the table `data` where it begins with SELECT or WITH, else JMESPath.",
        ),
    ],
    limit: Annotated[int, Query(ge=1, le=10_000, description="Items of an array.")] = 100,
    offset: Annotated[
        int, Query(ge=0, le=MOST, description="Items to skip: the `next_offset` of a page.")
    ] = 0,
    accounted: Accounted = True,
) -> Response:
    stored = await look_up(rt, tenant, handle)
    is_text, is_csv = wants_text(request), prefers(request.headers.get("accept", ""), CSV)
    cap = _CSV_BYTES if is_csv else await _cap(rt, stored)
    shown = await rt.redactions.shown_to_people(stored)
    rows, skipped = (_ALL_ROWS, 0) if is_csv else (limit, offset)
    query = DataQuery(expression, cap, stored.tool_name, rows, skipped, path_of(stored), is_text)
    answer = await cancel_on_disconnect(request, selected(rt, [shown], query))
    csv = await in_thread_if_long(len(answer.slice.result), _rows_csv, answer) if is_csv else None
    if accounted:
        text = bytes(answer.slice.result).decode()
        await account_texts(rt, stored, [text], found_nothing=text in NO_VALUE)
    if csv is not None:
        return Response(csv, media_type=f"{CSV}; charset=utf-8")
    if is_text:
        return Response(query_text(query, answer, cap), media_type=PLAIN)
    told = {**msgspec.structs.asdict(answer.slice), "kind": answer.kind, "hint": answer.hint}
    return Response(msgspec.json.encode(told), media_type=JSON)


def _rows_csv(answer: QueryAnswer) -> str:
    """A CSV that is safe to open in a spreadsheet. Raises InvalidField if the value is not rows, or has too
    many."""
    part = answer.slice
    if part.type != "array":
        raise InvalidField("Only rows can be CSV: the query selects one value.")
    if part.truncated or part.next_offset is not None:
        raise InvalidField(f"The rows have more than {_CSV_BYTES:,} bytes: select fewer.")
    columns = part.columns if part.columns else None
    return rows_csv(msgspec.json.decode(part.result), safe_cell, columns=columns, line_end="\r\n")


async def _cap(rt: Runtime, stored: StoredResult) -> int:
    """The most bytes of an answer: the size cap for results of this tool."""
    session = await rt.ledger.session(stored.key)
    policy = rt.policies.policy(stored.tool_name, session.policy if session else None)
    return min(policy.max_bytes or ANSWER_BYTES, ANSWER_BYTES)


class Given(BodyOut):
    """A text that a model was given, by `type`: in place of the result (`tool`), as the answer to a question
    (`extract`), or read back (`read`); or that was handed to the tool `tool_name`, unread by the model
    (`pass_on`). `bytes` is its size. `question`: the model's words that it answers. `question` and `text` are
    null if they were not kept."""

    entry_id: str
    type: EntryType
    timestamp: int
    outcome: OutcomeKind | None
    strategy: str | None
    tool_name: str
    bytes: int
    tokens: int
    question: str | None
    text: str | None


class GivenOut(BodyOut):
    """Oldest first."""

    given: list[Given]
    next_cursor: str | None


@router.get("/results/{handle:path}/given", summary="What the model was given of a stored result")
@Traits(span=READ)
async def get_given(
    rt: InRuntime,
    tenant: Tenant,
    handle: HandlePath,
    texts: Annotated[bool, Query(description="false: `text` is null.")] = True,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> GivenOut:
    stored = await look_up(rt, tenant, handle)
    about = EntryFilter(tenant, stored.handle.session_id, handle=str(stored.handle))
    page = await rt.ledger.entries(about, limit, cursor)
    redaction = await rt.redactions.given_to_people(stored)

    async def text_of(entry: AccountingEntry) -> str | None:
        text = await given_text(rt, stored, entry) if texts else None
        return text if redaction is None else await redaction.masked_text(text)

    given = [
        Given(
            entry_id=entry.id,
            type=entry.type,
            timestamp=entry.timestamp,
            outcome=entry.outcome,
            strategy=entry.strategy,
            tool_name=entry.tool_name,
            bytes=entry.details.bytes,
            tokens=entry.tokens_out,
            question=await asked_words(rt, stored.epoch, entry),
            text=await text_of(entry),
        )
        for entry in page.entries
        if entry.type is not EntryType.LLM
    ]
    return GivenOut(given=given, next_cursor=page.next_cursor)
