"""Sessions: open, change, read, list, report usage, end."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request, Response
from pydantic import Field

from app.answering.reading import asked_words, command_of
from app.answering.session_reads import MOST_READS, check_reads, keep_reads, reads_of
from app.http.api.answers import BudgetOut, budget_out, report_warnings
from app.http.api.bodies import INTEGRAL, MOST, BodyIn, BodyOut
from app.http.api.openapi import body_of, struct_of
from app.http.api.result_request import UsageIn, policy_text, read_usage
from app.http.api.roles import KeyRole
from app.http.api.routing import (
    SESSION_ID,
    InRuntime,
    IsAgent,
    Router,
    Tenant,
    Traits,
    check_json,
    session_key,
)
from app.http.api.times import Time, milliseconds
from app.runtime import Runtime
from domain.accounting import EntryFilter, EntryType
from domain.budget import Session, SessionChange
from domain.errors import (
    InvalidPolicy,
    SessionEnded,
    SessionNotFound,
    StoreFull,
    TooManySessions,
)
from domain.handles import DEFAULT_SESSION, SessionKey, parse_handle
from domain.outcomes import OutcomeKind

router = Router(tags=["sessions"])

_MOST_PAGES = 20
"""The most pages of the ledger that are read for one page of the list."""


async def _key(
    tenant: Tenant,
    session_id: Annotated[
        str, Path(description="Letters, digits and ._:@=+~-, at most 128.", json_schema_extra=SESSION_ID)
    ],
) -> SessionKey:
    return session_key(tenant, session_id)


Key = Annotated[SessionKey, Depends(_key)]
SessionId = Annotated[str, Field(json_schema_extra=SESSION_ID)]
Tokens = Annotated[int, Field(ge=0, le=1_000_000_000, strict=True), INTEGRAL]


class SessionIn(BodyIn):
    """A field that is left out keeps its value; null removes it."""

    context_window: Tokens | None = Field(
        None, description="Tokens. Default: that of `model`, else SPILLGATE_CONTEXT_WINDOW."
    )
    buffer_tokens: Tokens | None = Field(None, description="Tokens of the window that are kept free.")
    max_output_tokens: Tokens | None = Field(
        None, description="Tokens of the window for the model's answer. The limit is what both leave."
    )
    model: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        None, description="Chooses the tokenizer, and the window where it is known."
    )
    policy: dict[str, Any] | None = Field(None, description="Policy keys for the results of this session.")
    reads: Annotated[list[SessionId], Field(max_length=MOST_READS)] | None = Field(
        None, description="Other sessions whose results the model of this one may read, such as its parent's."
    )


class LastCall(BodyOut):
    """The newest result of a session: the client that sent it, and the project of that client. `command` is
    the command of the newest stored result; "" if there is none, or if the caller's key may not read stored
    texts."""

    timestamp: int
    tool_name: str
    client: str | None
    project: str | None
    command: str


class SessionOut(BodyOut):
    """Times are Unix milliseconds. `warnings` say how an unexpected usage report was applied, and whether
    nothing fits the declared window. `last_call` is null unless a list was asked for it."""

    session_id: str
    context_window: int | None
    buffer_tokens: int | None
    max_output_tokens: int | None
    model: str | None
    policy: dict[str, Any] | None
    reads: list[str]
    turn: int | None
    budget: BudgetOut
    stored_results: int
    created_at: int
    last_used_at: int
    expires_at: int
    warnings: list[str]
    last_call: LastCall | None


class AskedOut(BodyOut):
    """`question`: the words of a model's question. `entry_id`: the id of the entry of the answer."""

    entry_id: str
    handle: str
    question: str


class QuestionsOut(BodyOut):
    """Newest first."""

    questions: list[AskedOut]
    next_cursor: str | None


class SessionOrder(StrEnum):
    ID = "id"
    NEWEST = "newest"


_NOTHING_FITS = (
    "Buffer and output take the whole window, so every result is replaced. Declare a larger "
    "`context_window`, or smaller `buffer_tokens` and `max_output_tokens`."
)

_HELD = (
    "The ledger's disk or server is full: this instance holds the change in memory until there is room. A "
    "restart before that loses the change."
)


class SessionsOut(BodyOut):
    """A page may hold fewer sessions than `limit`, even none: go on while `next_cursor` is not null."""

    sessions: list[SessionOut]
    next_cursor: str | None


@router.put("/sessions/{session_id}", summary="Open or change a session")
@Traits(writes=True, roles=(KeyRole.ADMIN,), raises=(InvalidPolicy, TooManySessions))
async def put_session(rt: InRuntime, key: Key, body: SessionIn, is_agent: IsAgent) -> SessionOut:
    """A field that is left out stays as it is; null removes its value. `{}` opens a session, or opens an
    ended one again."""
    policy = None if body.policy is None else policy_text(body.policy)
    if policy is not None:
        rt.policies.check_session(policy, is_agent)
    before = await rt.ledger.session(key)
    if before is not None and before.ended_at is not None:
        await rt.store.delete_session(key, before.first_live_epoch)
    values = body.model_dump(exclude={"policy", "reads"})
    change = SessionChange(frozenset(body.model_fields_set - {"reads"}), **values, policy=policy)
    reads = await check_reads(rt, key, body.reads or [])
    session = await rt.ledger.put_session(key, change)
    if "reads" in body.model_fields_set:
        await keep_reads(rt, session, reads)
    shown = await _shown(rt, session, [_HELD] if rt.unrecorded.holds(key) else [])
    if shown.budget.enforced and shown.budget.limit_tokens == 0:
        shown.warnings.append(_NOTHING_FITS)
    return shown


@router.get("/sessions/{session_id}", summary="Read a session")
@Traits(roles=(KeyRole.ADMIN,), raises=(SessionNotFound, SessionEnded))
async def get_session(rt: InRuntime, key: Key) -> SessionOut:
    return await _shown(rt, await _live(rt, key))


async def _live(rt: Runtime, key: SessionKey) -> Session:
    """Raises SessionNotFound, SessionEnded."""
    session = await rt.ledger.session(key)
    if session is None:
        raise SessionNotFound("No session has this id. PUT opens one; a first result does too.")
    if session.ended_at is not None:
        raise SessionEnded
    return session


@router.delete(
    "/sessions/{session_id}",
    status_code=204,
    response_class=Response,
    summary="End a session: its results are deleted, or kept; its accounting is kept",
)
@Traits(writes=True, roles=(KeyRole.ADMIN,), raises=(SessionNotFound,))
async def delete_session(
    rt: InRuntime,
    key: Key,
    keep_results: Annotated[
        bool,
        Query(
            description="Forget the session, and leave its results until their retention ends. A later use "
            "opens it again, empty."
        ),
    ] = False,
) -> None:
    """Using the session is then 410 until a PUT opens it again. The session `default` is emptied, never
    ended."""
    if keep_results:
        if await rt.ledger.release(key) is None and key.session_id != DEFAULT_SESSION:
            raise SessionNotFound("No session has this id.")
        return
    ended = await _end(rt, key)
    if ended is not None:
        await rt.store.delete_session(key, ended.first_live_epoch)
    elif key.session_id != DEFAULT_SESSION:
        # Bodies with this id are kept: they may belong to a session whose first entry is being written.
        raise SessionNotFound("No session has this id.")


async def _end(rt: Runtime, key: SessionKey) -> Session | None:
    """Ends the session. If the medium is full, deletes the session's bodies first, to make the room that the
    ledger needs."""
    try:
        return await rt.ledger.end(key)
    except StoreFull:
        session = await rt.ledger.session(key)
        if session is None or not await rt.store.delete_session(key, session.epoch + 1):
            raise
        return await rt.ledger.end(key)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Selects sessions; None matches any value."""

    text: str
    tool_name: str | None
    client: str | None
    project: str | None
    min_stored: int
    since: int | None
    until: int | None

    @property
    def needs_call(self) -> bool:
        return bool(self.text or self.client or self.project)

    def takes(self, session: Session, stored: int) -> bool:
        at = session.last_used_at
        is_then = (self.since is None or at >= self.since) and (self.until is None or at < self.until)
        return is_then and stored >= self.min_stored

    def takes_call(self, session: Session, call: LastCall | None) -> bool:
        client, project = (None, None) if call is None else (call.client, call.project)
        if self.client not in (None, client) or self.project not in (None, project):
            return False
        named = (session.key.session_id, "" if call is None else call.command)
        return any(self.text in name.casefold() for name in named)

    def is_past(self, newest: Sequence[Session]) -> bool:
        """True if all later sessions of the list were last used before `since`."""
        return self.since is not None and bool(newest) and newest[-1].last_used_at < self.since


def _wanted(
    text: Annotated[
        str | None, Query(max_length=256, description="In the id or the last command, in any case.")
    ] = None,
    tool_name: Annotated[str | None, Query(description="Only those that called this tool.")] = None,
    client: Annotated[str | None, Query(description="Only those that this client used last.")] = None,
    project: Annotated[str | None, Query(description="Only those that work in this project.")] = None,
    min_stored: Annotated[
        int, Query(ge=0, le=MOST, description="Only those with so many stored results.")
    ] = 0,
    since: Time = None,
    until: Time = None,
) -> _Wanted:
    """`since` and `until` bound the last use."""
    first, last = milliseconds(since, "since"), milliseconds(until, "until")
    return _Wanted((text or "").casefold(), tool_name, client, project, min_stored, first, last)


async def _called(rt: Runtime, session: Session, tool_name: str | None) -> bool:
    """Whether the session called the tool; True for None."""
    if tool_name is None:
        return True
    calls = EntryFilter(
        session.key.tenant, session.key.session_id, EntryType.TOOL, tool_name, since=session.created_at
    )
    return bool((await rt.ledger.entries(calls, 1, None, newest_first=True)).entries)


@router.get("/sessions", summary="List the sessions that are alive")
@Traits(roles=(KeyRole.ADMIN,))
async def list_sessions(
    rt: InRuntime,
    tenant: Tenant,
    request: Request,
    wanted: Annotated[_Wanted, Depends(_wanted)],
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
    order: Annotated[SessionOrder, Query(description="By id, or those used last first.")] = SessionOrder.ID,
    last_call: Annotated[bool, Query(description="Answer with the last call of each.")] = False,
) -> SessionsOut:
    """The filters `text`, `client` and `project` look at the last call; `text` also at the id."""
    reads_text = request.scope.get("role") is not KeyRole.ADMIN
    is_newest, shown = order is SessionOrder.NEWEST, list[SessionOut]()
    for _ in range(_MOST_PAGES):
        page = await rt.ledger.sessions(tenant, limit - len(shown), cursor, newest_first=is_newest)
        counts = await rt.store.count_results([session.key for session in page.sessions])
        for session, count in zip(page.sessions, counts, strict=True):
            if not wanted.takes(session, count):
                continue
            calls = last_call or wanted.needs_call
            call = await _last_call(rt, session, reads_text and count > 0) if calls else None
            if wanted.takes_call(session, call) and await _called(rt, session, wanted.tool_name):
                shown.append(await _out(rt, session, count, last_call=call if last_call else None))
        cursor = None if is_newest and wanted.is_past(page.sessions) else page.next_cursor
        if cursor is None or 2 * len(shown) >= limit:
            break
    return SessionsOut(sessions=shown, next_cursor=cursor)


@router.get("/sessions/{session_id}/questions", summary="List what was asked about its results")
@Traits(raises=(SessionNotFound, SessionEnded))
async def list_questions(
    rt: InRuntime,
    key: Key,
    limit: Annotated[int, Query(ge=1, le=1000, description="Entries to look at.")] = 200,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> QuestionsOut:
    session = await _live(rt, key)
    of_session = EntryFilter(key.tenant, key.session_id, since=session.created_at)
    page = await rt.ledger.entries(of_session, limit, cursor, newest_first=True)
    asked = []
    for entry in page.entries:
        words, handle = await asked_words(rt, session.epoch, entry), entry.details.tool_output_handle
        if words is not None and handle is not None:
            asked.append(AskedOut(entry_id=entry.id, handle=handle, question=words))
    return QuestionsOut(questions=asked, next_cursor=page.next_cursor)


async def _last_call(rt: Runtime, session: Session, reads_text: bool) -> LastCall | None:
    calls = EntryFilter(session.key.tenant, session.key.session_id, EntryType.TOOL, since=session.created_at)
    newest = (await rt.ledger.entries(calls, 1, None, newest_first=True)).entries
    if not newest:
        return None
    command = ""
    if reads_text:
        stored_calls = replace(calls, outcome=OutcomeKind.STORE)
        for entry in (await rt.ledger.entries(stored_calls, 1, None, newest_first=True)).entries:
            stored = await rt.store.find(
                session.key.tenant, parse_handle(entry.details.tool_output_handle or "")
            )
            command = "" if stored is None else command_of(stored)
    last = newest[0]
    return LastCall(
        timestamp=last.timestamp,
        tool_name=last.tool_name,
        client=last.client,
        project=last.project,
        command=command,
    )


@router.post(
    "/sessions/{session_id}/usage",
    summary="Report the committed context",
    openapi_extra=body_of(struct_of(UsageIn)),
)
@Traits(writes=True, raises=(SessionEnded, TooManySessions))
async def report_usage(rt: InRuntime, key: Key, request: Request) -> SessionOut:
    check_json(request)
    after = await rt.ledger.report(key, read_usage(await request.body()))
    return await _shown(rt, after.session, report_warnings(after.warning))


async def _shown(rt: Runtime, session: Session, warnings: Sequence[str] = ()) -> SessionOut:
    (count,) = await rt.store.count_results([session.key])
    return await _out(rt, session, count, warnings)


async def _out(
    rt: Runtime,
    session: Session,
    stored_results: int,
    warnings: Sequence[str] = (),
    last_call: LastCall | None = None,
) -> SessionOut:
    model = await rt.known_models.of_session(session.model)
    return SessionOut(
        session_id=session.key.session_id,
        context_window=session.context_window,
        buffer_tokens=session.buffer_tokens,
        max_output_tokens=session.max_output_tokens,
        model=session.model,
        policy=None if session.policy is None else json.loads(session.policy),
        reads=await reads_of(rt, session),
        turn=session.turn,
        budget=budget_out(session.budget(model.window, model.enforce)),
        stored_results=stored_results,
        created_at=session.created_at,
        last_used_at=session.last_used_at,
        expires_at=session.last_used_at + rt.retention_ms,
        warnings=list(warnings),
        last_call=last_call,
    )
