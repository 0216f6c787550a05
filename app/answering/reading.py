"""Reading a stored result back: its lookup, who pays, a scan of its lines, and the entry of what it costs."""

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from app.masking.redactions import ShownResult
from app.models.known_models import SessionModel
from app.operations.logs import describe_request, described
from app.runtime import Runtime
from content import model_text
from content.greppable import Found, Scan, Scanner
from content.kind import Kind
from content.redaction.masks import masks_in
from content.source_text import SourceText
from content.text import clip, line_count
from content.threads import in_thread_if_long
from domain.accounting import AccountingEntry, EntryDetails, EntryType
from domain.budget import Session
from domain.errors import (
    BadQuery,
    ResultExpired,
    ResultNotFound,
    SessionEnded,
    StorageError,
    StoreFull,
    TooManySessions,
)
from domain.handles import Handle, SessionKey, parse_handle
from domain.ports import Call, Charge, Receipt, asked_name, given_name
from domain.results import StoredResult, ToolResult
from extraction.query_terms import DataQuery, QueryAnswer, Slice
from policies.policy import Policy
from policies.tool_calls import name_of, split_tool_name
from storage.sealed.keys import refuse_sealed

log = logging.getLogger(__name__)

UNCAPPED_BYTES = 12_288
_KIND_BYTES = 64 << 10
_MOST_SESSIONS = 1000
_NEAR_CHARS = 60
DASHBOARD = "dashboard"
"""The session and the client of accounting entries for questions of persons. This session is never opened."""
MOST_WORDS = 1000
"""The most characters kept of a question, and the most characters shown of the arguments of a call."""

NO_VALUE = ("null", "[]")
"""The answer to a query that selects nothing."""

_NAMES_A_CALL = ("command", "cmd", "file_path", "filePath", "url", "query", "pattern", "path", "prompt")

_ENDED = "The session of this result has ended, and its results with it. Run the tool again."


async def look_up(rt: Runtime, tenant: str, text: str) -> StoredResult:
    """Finds a result and restarts its retention. Raises ResultNotFound, ResultExpired or SessionEnded."""
    handle = parse_handle(text)
    describe_request(session_id=handle.session_id)
    rt.observer.named(handle)
    stored = await rt.store.find(tenant, handle)
    if stored is None:
        raise await _absence(rt, tenant, handle)
    if rt.storage_keys is None:
        refuse_sealed(stored)
    rt.observer.found(stored)
    return await rt.store.touch(stored)


async def session_in_any_case(key: SessionKey, rt: Runtime) -> Session | None:
    """The session of this id, else one whose id differs in letter case alone: a door that knows no session
    takes it from the handle as the model wrote it. Ids with capitals are looked for among the first 1,000
    sessions."""
    wanted = key.session_id.casefold()
    if session := await rt.ledger.session(key) or await rt.ledger.session(SessionKey(key.tenant, wanted)):
        return session
    page = await rt.ledger.sessions(key.tenant, _MOST_SESSIONS, None)
    return next((one for one in page.sessions if one.key.session_id.casefold() == wanted), None)


async def _absence(rt: Runtime, tenant: str, handle: Handle) -> Exception:
    """Returns the error that says why no result is stored under the handle."""
    stored_at = await rt.ledger.stored_at(tenant, handle)
    if stored_at is not None:
        session = await rt.ledger.session(SessionKey(tenant, handle.session_id))
        if session is not None and session.ended_at is not None:
            return SessionEnded(_ENDED)
        if rt.clock() - stored_at >= rt.retention_ms:
            return ResultExpired("This result has expired. Run the tool again.")
        if session is not None and stored_at < session.created_at:
            return SessionEnded(_ENDED)
    return ResultNotFound("No stored result has this handle. Use it exactly as the handle message gave it.")


def path_of(stored: StoredResult) -> str | None:
    """Returns the file or the page that the result comes from, by the tool's arguments."""
    call = ToolResult(
        stored.key, stored.tool_name, tool_arguments=stored.tool_arguments, tool_kind=stored.tool_kind
    )
    return name_of(call)


def command_of(stored: StoredResult) -> str:
    """What a person knows the call by: the command, file, page or pattern in its arguments, else all of them;
    "" without arguments."""
    arguments = stored.tool_arguments or ""
    try:
        members = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        members = None
    if isinstance(members, dict):
        named = (members[name] for name in _NAMES_A_CALL if isinstance(members.get(name), str))
        arguments = next(named, arguments if members else "")
    return arguments[:MOST_WORDS]


def entry_about(
    rt: Runtime, stored: StoredResult, kind: EntryType, timestamp: int, session_id: str | None = None
) -> AccountingEntry:
    """A new entry about a stored result; the caller adds what was done and what it cost. `session_id`: the
    session that reads it, if it is another one than that of the result."""
    server, tool = split_tool_name(stored.tool_name, stored.tool_namespace)
    return AccountingEntry(
        id=rt.new_entry_id(),
        type=kind,
        timestamp=timestamp,
        tenant=stored.tenant,
        session_id=session_id or stored.handle.session_id,
        tool_name=stored.tool_name,
        mcpServer=server,
        command=tool,
        key=described("key"),
        details=EntryDetails(tool_output_handle=str(stored.handle)),
    )


@dataclass(frozen=True, slots=True)
class Subject:
    """A stored result that a model asks about, in the form `shown` to the model, and the session that pays
    for the answer. `by_person`: a person asks, and no session pays."""

    stored: StoredResult
    shown: ShownResult
    session: Session
    policy: Policy
    model: SessionModel
    by_person: bool = False

    @property
    def reader(self) -> SessionKey:
        """The session of the entries: the session that pays, if there is one."""
        return SessionKey(self.stored.tenant, DASHBOARD) if self.by_person else self.session.key

    @property
    def most_bytes(self) -> int:
        """The most bytes of an answer: the size cap, 12,288 where there is none."""
        return self.policy.max_bytes or UNCAPPED_BYTES

    @property
    def is_exhausted(self) -> bool:
        """True if the session's budget has no room for any answer."""
        return not self.by_person and self.session.budget(self.model.window, self.model.enforce).exhausted

    async def room(self, rt: Runtime, size: int, tokens: int, frame: int = 0) -> int:
        """Bytes that should fit what remains of the budget beside `frame` tokens, given that `size` bytes had
        `tokens`."""
        session = await paying_session(rt, self.reader)
        remaining = session.budget(self.model.window, self.model.enforce).remaining_tokens - frame
        return int(remaining * size / max(tokens, 1) * 0.9)

    def entry(
        self, rt: Runtime, kind: EntryType, text: str, tokens: int, started: int, *, spent: int = 0
    ) -> AccountingEntry:
        """The entry of a text that the model is given. `started` is Unix ms; `spent` are the tokens of the
        model calls that made the text."""
        now = rt.clock()
        about = entry_about(rt, self.stored, kind, now, self.reader.session_id)
        redacted = masks_in(text) if self.shown.redaction is not None else None
        return replace(
            about,
            latency=now - started,
            charactersOut=len(text),
            tokens_out=tokens,
            tokens_saved=0 if self.by_person else -tokens,
            model=self.session.model,
            client=DASHBOARD if self.by_person else None,
            details=replace(
                about.details,
                bytes=len(text.encode()),
                lines=line_count(text.encode()),
                tokens=tokens,
                costs_more=not self.by_person and tokens + spent > self.stored.tokens_saved,
                redacted=redacted,
            ),
        )

    async def reserve(self, rt: Runtime, entry: AccountingEntry, text: str) -> Receipt | None:
        if self.by_person:
            return await self._appended(rt, entry)
        return await rt.ledger.reserve(self.charge(entry, text))

    async def settle(self, rt: Runtime, entry: AccountingEntry, text: str | None = None) -> Receipt:
        if self.by_person:
            return await self._appended(rt, entry)
        return await rt.ledger.settle(self.charge(entry, text))

    async def _appended(self, rt: Runtime, entry: AccountingEntry) -> Receipt:
        await rt.ledger.append(entry)
        return Receipt(entry, self.session.budget(self.model.window, self.model.enforce))

    def charge(self, entry: AccountingEntry, text: str | None = None) -> Charge:
        """Returns the charge of the text that `entry` describes. The ledger keeps `text`."""
        return Charge(
            key=self.reader,
            epoch=self.session.epoch,
            tokens=entry.tokens_out,
            entry=entry,
            default_window=self.model.window,
            enforce=self.model.enforce,
            text=text,
        )


async def paying_session(rt: Runtime, key: SessionKey) -> Session:
    """Returns the session, also if the ledger does not have it yet. Does not call `Ledger.enter`, which needs
    room for a new session. Raises SessionEnded."""
    session = await rt.ledger.session(key)
    if session is None:
        now = rt.clock()
        return Session(key, epoch=0, created_at=now, last_used_at=now)
    if session.ended_at is not None:
        raise SessionEnded
    return session


async def open_subject(
    rt: Runtime, tenant: str, handle: Handle, reader: SessionKey | None = None, *, by_person: bool = False
) -> Subject:
    """Finds a result as `look_up` does, and the session that pays: `reader`, else that of the result."""
    stored = await look_up(rt, tenant, str(handle))
    session = await paying_session(rt, reader or stored.key)
    policy = rt.policies.policy(stored.tool_name, session.policy)
    shown = await rt.redactions.shown(stored, policy, session)
    model = await rt.known_models.of_session(session.model)
    return Subject(stored, shown, session, policy, model, by_person)


async def given_text(rt: Runtime, stored: StoredResult, entry: AccountingEntry) -> str | None:
    """The text that the model was given with this entry; None if it was not kept. That of a named call is in
    the call's receipt."""
    if entry.type is EntryType.TOOL and entry.tool_call_id is not None:
        model = await rt.known_models.of_session(None)
        call = Call(stored.key, model.window, model.enforce, entry.tool_call_id)
        try:
            receipt = (await rt.ledger.enter(call)).receipt
        except (StoreFull, TooManySessions):
            # Such a session has no receipt and no room for a call.
            return None
        return receipt.text if receipt is not None and receipt.entry.id == entry.id else None
    return await rt.ledger.finding(stored.key, stored.epoch, given_name(entry.id))


async def data_kind_of(rt: Runtime, shown: ShownResult) -> Kind:
    """Returns the format of the data, by its beginning."""
    result, total = shown.result, shown.result.measure.bytes
    head = b"".join([chunk async for chunk in shown.store.read(result, 0, min(_KIND_BYTES, total))])
    return SourceText(head, result.tool_name, path_of(result), total_bytes=total).format.kind


async def begun(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same chunks, with the first already read: a missing body is an error before the answer starts."""
    first = await anext(body, b"")

    async def chunks() -> AsyncIterator[bytes]:
        yield first
        async for chunk in body:
            yield chunk

    return chunks()


async def asked_words(rt: Runtime, epoch: int, entry: AccountingEntry) -> str | None:
    """The words of the question behind this entry of this epoch; None if the words were not kept."""
    if entry.type not in (EntryType.EXTRACT, EntryType.READ):
        return None
    key = SessionKey(entry.tenant, entry.session_id)
    return await rt.ledger.finding(key, epoch, asked_name(entry.id))


def keep_words(rt: Runtime, subject: Subject, entry_id: str, words: str) -> None:
    """Keeps the words of a question with the session that asked, in the background. An answer does not wait
    for it and does not fail because of it."""
    key, epoch = subject.reader, subject.session.epoch

    async def keep() -> None:
        with suppress(StorageError):
            await rt.ledger.keep_finding(key, epoch, asked_name(entry_id), words[:MOST_WORDS])

    rt.background.start(keep())


async def scan(rt: Runtime, shown: ShownResult, scanner: Scanner[Found], *, greppable: bool) -> Found:
    """Returns what the scanner finds in the whole body, or in its greppable view."""
    scanning, size = Scan(scanner, greppable=greppable), shown.result.measure.bytes
    async for chunk in shown.store.read(shown.result):
        await in_thread_if_long(size, scanning.feed, chunk, limiter=rt.scanning)
    return await in_thread_if_long(size, scanning.finish, limiter=rt.scanning)


async def account_texts(
    rt: Runtime, stored: StoredResult, texts: Iterable[str], *, found_nothing: bool = False
) -> None:
    shown = "".join(texts)
    is_empty = found_nothing or not shown
    await account_read(
        rt, stored, len(shown.encode()), len(shown), found_nothing=is_empty, redacted=masks_in(shown)
    )


async def account_read(
    rt: Runtime,
    stored: StoredResult,
    size: int,
    chars: int,
    *,
    found_nothing: bool = False,
    redacted: dict[str, int] | None = None,
) -> None:
    """Accounts what was read back, so that savings are net. Estimates its tokens by its share of the bytes.

    Reading continues while the ledger is away: an entry that cannot be written is logged instead.
    """
    measure = stored.measure
    tokens = -(-size * measure.tokens // max(measure.bytes, 1))
    entry = entry_about(rt, stored, EntryType.READ, rt.clock())
    read = replace(
        entry,
        charactersOut=chars,
        tokens_out=tokens,
        tokens_saved=-tokens,
        details=replace(
            entry.details,
            bytes=size,
            tokens=tokens,
            found_nothing=found_nothing,
            costs_more=tokens > stored.tokens_saved,
            redacted=redacted,
        ),
    )
    rt.observer.read(read)
    try:
        await rt.ledger.append(read)
    except StorageError as error:
        rt.observer.unaccounted(read, error)
        rt.readiness.invalidate()


async def run_query(rt: Runtime, shown: Sequence[ShownResult], query: DataQuery) -> QueryAnswer:
    """For the model that wrote the query: the detail of a BadQuery says where it cannot be read. Raises as
    `Queries.run`."""
    try:
        return await selected(rt, shown, query)
    except BadQuery as error:
        near = f" It cannot be read near: {clip(error.near, _NEAR_CHARS)}" if error.near else ""
        raise BadQuery(error.detail + near) from None


async def selected(rt: Runtime, shown: Sequence[ShownResult], query: DataQuery) -> QueryAnswer:
    """Runs a query and masks its result, because a query can join the parts of a secret. Raises as
    `Queries.run`."""
    size = sum(one.result.measure.bytes for one in shown)
    key = tuple((str(one.result.handle), one.result.sha256) for one in shown)
    answer = await rt.queries.run(shown[0].result.tenant, query, size, partial(_chunks, shown), key)
    found = data = bytes(answer.slice.result)
    for one in shown:
        if one.redaction is not None:
            data = await one.redaction.masked(data)
    return answer if data == found else msgspec.structs.replace(answer, slice=_with_masks(answer.slice, data))


def _with_masks(part: Slice, data: bytes) -> Slice:
    """`data` are the masked bytes of the part. If a mask made the JSON invalid, the answer is a string."""
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError:
        text = msgspec.json.encode(data.decode())
        return Slice(msgspec.Raw(text), "string", None, None, part.truncated)
    return msgspec.structs.replace(part, result=msgspec.Raw(data))


async def _chunks(shown: Iterable[ShownResult]) -> AsyncIterator[bytes]:
    for one in shown:
        async for chunk in one.store.read(one.result):
            yield chunk


def query_text(query: DataQuery, answer: QueryAnswer, max_bytes: int) -> str:
    """Formats the result of a query for a model. `max_bytes` caps the rows of a table."""
    part, encoded = answer.slice, bytes(answer.slice.result)
    if part.columns is not None and part.total:
        selection = model_text.Selection(
            query.expression, part.columns, encoded, query.offset, part.total, part.truncated, answer.hint
        )
        return model_text.selection_text(selection, max_bytes)
    if answer.hint:
        return f"{encoded.decode()}\n[Nothing is selected. {answer.hint}]"
    text = model_text.value_text(encoded)
    if part.next_offset is not None:
        first, following = query.offset + 1, part.next_offset
        return f"{text}\n[Items {first:,} to {following:,} of {part.total:,}. Go on with: … | [{following}:]]"
    return f"{text}\n[Cut: select less.]" if part.truncated and part.total is None else text
