"""SQL and JMESPath over stored data: in confined processes, a few at a time. Some are kept for a minute."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Raw, Struct

from content.kind import Kind
from content.text import cut_head, without_surrogates
from domain.errors import BadQuery, InvalidField, NotQueryable, Overloaded, QueryTooCostly
from extraction.tenant_gate import TenantGate

_encode = msgspec.json.Encoder().encode

TOO_LARGE = "The query takes more memory than it has: the data, or what the query makes of it, is too large."


class Slice(Struct, frozen=True):
    """`total` counts the items of an array, None for any other value. `truncated`: `result` is a part.
    `columns` are those of rows that SQL selects."""

    result: Raw
    type: str
    total: int | None
    next_offset: int | None
    truncated: bool
    columns: list[str] | None = None


def slice_of(value: object, limit: int, offset: int, max_bytes: int) -> Slice:
    """Returns items `offset` to before `offset + limit` of an array, as many as fit; a string, cut if needed;
    any other value whole. Raises QueryTooCostly if an item or value does not fit and cannot be cut."""
    if isinstance(value, list):
        return _items(value, limit, offset, max_bytes)
    encoded, truncated = encoded_json(value), False
    if len(encoded) > max_bytes:
        if not isinstance(value, str):
            raise _too_large("value", len(encoded), max_bytes)
        encoded, truncated = _string_head(str(without_surrogates(value)), len(encoded), max_bytes), True
    return Slice(Raw(encoded), _type(value), None, None, truncated)


def _items(array: list[object], limit: int, offset: int, max_bytes: int) -> Slice:
    items: list[bytes] = []
    room = max_bytes - 2
    for item in array[offset : offset + limit]:
        encoded = encoded_json(item)
        room -= len(encoded) + 1
        if room < -1:
            if not items:
                raise _too_large("first of these items", len(encoded), max_bytes)
            break
        items.append(encoded)
    end = offset + len(items)
    return Slice(
        Raw(b"[" + b",".join(items) + b"]"),
        "array",
        len(array),
        end if end < len(array) else None,
        len(items) < len(array),
    )


def rows_slice(columns: list[str], rows: Iterable[Sequence[object]], query: "Query") -> Slice:
    """Returns rows `offset` to before `offset + limit`, as many as fit, and counts all. Each is an object, or
    an array if `query.has_arrays`. The texts of a row that is too large alone are cut. Raises QueryTooCostly
    if it does not fit then either."""
    items: list[bytes] = []
    room, total, end = query.max_bytes - 2, 0, query.offset + query.limit
    is_cut = False
    for row in rows:
        if query.offset <= total < end:
            encoded = _row_json(columns, row, query)
            if not items and len(encoded) > room:
                encoded, is_cut = _row_json(columns, _cut_row(row, room), query), True
                if len(encoded) > room:
                    raise _too_large_row(len(encoded), query.max_bytes)
            room -= len(encoded) + 1
            if room >= -1:
                items.append(encoded)
            else:
                end = total
        total += 1
    end = query.offset + len(items)
    following = end if end < total and query.offset < total else None
    result = Raw(b"[" + b",".join(items) + b"]")
    return Slice(result, "array", total, following, is_cut or len(items) < total, columns)


def _row_json(columns: list[str], row: Sequence[object], query: "Query") -> bytes:
    return encoded_json(row if query.has_arrays else dict(zip(columns, row, strict=True)))


def _cut_row(row: Sequence[object], room: int) -> list[object]:
    """Half of the room is for the names of the columns, if they are shown, and for what is no text."""
    share = room // (2 * len(row))
    cells = []
    for cell in row:
        size = len(encoded_json(cell))
        is_long = isinstance(cell, str) and size > share
        cells.append(msgspec.json.decode(_string_head(str(cell), size, share)) if is_long else cell)
    return cells


def _too_large_row(size: int, max_bytes: int) -> QueryTooCostly:
    return QueryTooCostly(
        f"A row has {size:,} bytes, and an answer holds {max_bytes:,}. Select the columns that you need, "
        "by name."
    )


def encoded_json(value: object) -> bytes:
    """Encodes as JSON. Lone surrogates become U+FFFD, infinities null. Raises BadQuery for other
    values."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(without_surrogates(value))
    except TypeError:
        raise BadQuery("The value is an expression (&…), not data: give it to a function.") from None
    except RecursionError:
        raise BadQuery("The value is nested too deeply for an answer.") from None


def _string_head(text: str, encoded_size: int, max_bytes: int) -> bytes:
    """Shortens the string in proportion until it fits with its escapes and quotes."""
    data, encoded = text.encode(), b""
    while data and encoded_size > max_bytes:
        data = cut_head(data, len(data) * max(max_bytes - 2, 0) // encoded_size)
        encoded = _encode(data.decode())
        encoded_size = len(encoded)
    return encoded


def _type(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "null" if value is None else "object"


def _too_large(what: str, size: int, max_bytes: int) -> QueryTooCostly:
    return QueryTooCostly(
        f"The {what} has {size:,} bytes, and an answer holds {max_bytes:,}. Select less of it: "
        "`keys(@)` lists an object's keys, `.{a: a, b: b}` picks some."
    )


class Data(Struct, frozen=True):
    """One of several results that a query reads: its size in bytes, and what tells its format."""

    size: int
    tool_name: str
    path: str | None


class Query(Struct, frozen=True):
    """SQL or a JMESPath expression. It answers at most `limit` items of an array, and `max_bytes` of JSON.
    `has_arrays`: rows that SQL selects are arrays, not objects. `several`: SQL over several results, whose
    bytes follow each other."""

    expression: str
    max_bytes: int
    tool_name: str = ""
    limit: int = 100
    offset: int = 0
    path: str | None = None
    has_arrays: bool = False
    several: tuple[Data, ...] = ()


class QueryAnswer(Struct, frozen=True, tag=True):
    """What the data was read as, and the part of the query's value that is answered. `hint` says which keys
    there are where the query selects nothing, and where the rows are in the data."""

    kind: Kind
    slice: Slice
    hint: str = ""


class RefusedQuery(Struct, frozen=True, tag=True):
    """The code and the detail of an InvalidField or of one of its subclasses, and what a BadQuery is near."""

    code: str
    detail: str
    near: str = ""


_BEFORE = r"(?>(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/|```\w*)*)"
_SQL = re.compile(
    _BEFORE + r"(?:(?:select|with)\b(?!\s*[.|\[])|values(?!\()\s*\(|"
    r"(?:from|describe|summarize|show|table|pivot|unpivot"
    r"|alter|analyze|attach|begin|call|checkpoint|commit|copy|create|delete|detach|drop|execute|explain|export|import"
    r"|insert|install|load|merge|pragma|prepare|replace|reset|rollback|set|update|use|vacuum"
    r"|comment|deallocate|force|truncate)\s+[\w(\"'])|"
    + _BEFORE
    + r"\((?:\s*\()*\s*(?:select|with|from|values)\b",
    re.IGNORECASE | re.DOTALL,
)
_LINES = re.compile(r"\blines\d*\b", re.IGNORECASE)


def is_sql(expression: str) -> bool:
    """True where the expression begins as a statement does. A key of that name is written in quotes."""
    return _SQL.match(expression) is not None


def needs_lines(expression: str) -> bool:
    return _LINES.search(expression) is not None


Read = Callable[[], AsyncIterator[bytes]]

MAX_DATA_BYTES = 128 << 20
LINES_ALWAYS_BYTES = 8 << 20
"""The lines of larger data are loaded only for a query that names them."""

AT_A_TIME = 2
WAIT_SECONDS = 10.0
RUN_SECONDS = 30.0

KEPT = 2
KEPT_SECONDS = 60.0
KEPT_BYTES = 300 << 20
"""Processes that are kept: how many, how long unused, and how much memory they have together."""

_LEAST_MEMORY = 3 << 29
"""A container with less than 1.5 GiB keeps none."""

_COMMAND = (sys.executable, "-S", "-P", "-m", "extraction.query_child")
# Signals that end a child when memory runs out.
_OUT_OF_MEMORY = (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
_REFUSALS: dict[str, type[InvalidField]] = {
    kind.code: kind for kind in (InvalidField, NotQueryable, QueryTooCostly)
}
_decode: Callable[[bytes], QueryAnswer | RefusedQuery] = msgspec.json.Decoder(
    QueryAnswer | RefusedQuery
).decode
_REPLY_BYTES = 64 << 20


class ProcessFailed(Exception):
    """The child ended with an exit code that its bounds do not explain."""


class _Child:
    """A process with the data of one result, or of several, in a file in memory."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self._process = process
        self._replies = BufferedByteReceiveStream(process.stdout)
        self.has_lines = False

    @property
    def memory(self) -> int:
        """Its resident bytes; 0 where the system does not tell."""
        try:
            pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    async def ask(self, query: Query) -> QueryAnswer:
        """Raises BadQuery, NotQueryable, QueryTooCostly, ProcessFailed."""
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(msgspec.json.encode(query) + b"\n")
            reply = await self._replies.receive_until(b"\n", _REPLY_BYTES)
        except (
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
            anyio.EndOfStream,
            anyio.IncompleteRead,
        ):
            raise _failure(await self._process.wait()) from None
        answer = _decode(reply)
        if isinstance(answer, RefusedQuery):
            if answer.code == BadQuery.code:
                raise BadQuery(answer.detail, answer.near)
            raise _REFUSALS[answer.code](answer.detail)
        return answer

    async def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        with anyio.CancelScope(shield=True):
            await self._process.aclose()


@dataclass(eq=False, slots=True)
class _Kept:
    """A child that waits for another query over the same data. `key` tells the data."""

    key: Hashable
    child: _Child
    timer: asyncio.TimerHandle | None = None


class Queries:
    """Each tenant has one slot, so that no tenant can hold all of the `AT_A_TIME` children, and one child
    that is kept."""

    def __init__(self) -> None:
        self._gate = TenantGate(AT_A_TIME)
        self._kept: dict[str, _Kept] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._keeps = _memory_of_container() >= _LEAST_MEMORY

    async def run(
        self, tenant: str, query: Query, size: int, read: Read, key: Hashable | None = None
    ) -> QueryAnswer:
        """Evaluates `query` over the `size` bytes that `read` yields. `key` names these bytes: while the
        process that has them is kept, they are not read again.

        Raises BadQuery, NotQueryable or QueryTooCostly where the expression or the data is at fault;
        Overloaded after WAIT_SECONDS without a slot, or RUN_SECONDS in which the child got too little of the
        processor.
        """
        if size > MAX_DATA_BYTES:
            raise NotQueryable(
                f"The result has {size:,} bytes; up to {MAX_DATA_BYTES:,} can be queried. "
                "Use `pattern`, `lines` or `extract`."
            )
        async with self._turn(tenant):
            try:
                with anyio.fail_after(RUN_SECONDS):
                    return await self._answer(tenant, query, size, read, key)
            except TimeoutError:
                raise Overloaded(
                    f"The query had no answer within {RUN_SECONDS:.0f} s because the service is busy. "
                    "Try again in a moment."
                ) from None

    @contextlib.asynccontextmanager
    async def _turn(self, tenant: str) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as held:
            try:
                with anyio.fail_after(WAIT_SECONDS):
                    await held.enter_async_context(self._gate.turn(tenant))
            except TimeoutError:
                raise Overloaded("Too many queries are running. Try again in a moment.") from None
            yield

    async def _answer(
        self, tenant: str, query: Query, size: int, read: Read, key: Hashable | None
    ) -> QueryAnswer:
        is_again = key is not None and is_sql(query.expression) and self._keeps
        child = await self._taken(tenant, key, query) if is_again else None
        try:
            if child is None:
                child = await _started(read)
                child.has_lines = size <= LINES_ALWAYS_BYTES or needs_lines(query.expression)
            answer = await child.ask(query)
        except BadQuery:
            if is_again and child is not None:
                await self._keep(tenant, key, child)
                child = None
            raise
        else:
            if is_again:
                await self._keep(tenant, key, child)
                child = None
            return answer
        finally:
            if child is not None:
                await child.end()

    async def _taken(self, tenant: str, key: Hashable | None, query: Query) -> _Child | None:
        """The tenant's child if it has this data, and the lines that the query reads; else it ends."""
        kept = self._let_go(tenant)
        if kept is None:
            return None
        if kept.key == key and (kept.child.has_lines or not needs_lines(query.expression)):
            return kept.child
        await kept.child.end()
        return None

    def _let_go(self, tenant: str) -> _Kept | None:
        kept = self._kept.pop(tenant, None)
        if kept is not None and kept.timer is not None:
            kept.timer.cancel()
        return kept

    async def _keep(self, tenant: str, key: Hashable | None, child: _Child) -> None:
        kept = _Kept(key, child)
        self._kept[tenant] = kept
        kept.timer = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._expire, tenant, kept)
        while len(self._kept) > KEPT or sum(one.child.memory for one in self._kept.values()) > KEPT_BYTES:
            oldest = self._let_go(next(iter(self._kept)))
            if oldest is not None:
                await oldest.child.end()

    def _expire(self, tenant: str, kept: _Kept) -> None:
        if self._kept.get(tenant) is kept:
            self._let_go(tenant)
            task = asyncio.get_running_loop().create_task(kept.child.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        """Ends the processes that are kept."""
        for tenant in tuple(self._kept):
            if (kept := self._let_go(tenant)) is not None:
                await kept.child.end()
        while self._ending:
            await self._ending.pop()


async def _started(read: Read) -> _Child:
    with _memory_file() as file:
        async for chunk in read():
            file.write(chunk)
        file.flush()
        file.seek(0)
        number = file.fileno()
        command = (*_COMMAND, str(os.getpid()), str(number))
        process = await anyio.open_process(
            command, env=_environment(), stderr=subprocess.DEVNULL, pass_fds=(number,)
        )
    return _Child(process)


def _memory_file() -> BinaryIO:
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("data"), "w+b")
    return tempfile.TemporaryFile()


def _failure(code: int) -> Exception:
    if code == -signal.SIGXCPU:
        return QueryTooCostly(
            "The query takes more time than it has: the data is large, or the query does much with each row. "
            "Filter first, and join or nest less."
        )
    if -code in _OUT_OF_MEMORY:
        return QueryTooCostly(TOO_LARGE)
    return ProcessFailed(f"the child of a query ended with {code}")


def _environment() -> dict[str, str]:
    """Where the child finds its modules, and no secrets."""
    libraries = os.environ.get("LD_LIBRARY_PATH")
    # One arena: each would take 64 MiB of the address space.
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "MALLOC_ARENA_MAX": "1"}
    return paths | {"LD_LIBRARY_PATH": libraries} if libraries else paths


def _memory_of_container() -> float:
    """The bytes that the container may use; infinite where the system does not bound them."""
    try:
        return float(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        return float("inf")
