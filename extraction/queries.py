"""SQL and JMESPath over stored data, in confined processes: a few at a time, some kept for a minute."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from domain.errors import BadQuery, InvalidField, NotQueryable, Overloaded, QueryTooCostly
from extraction.query_terms import (
    LINES_ALWAYS_BYTES,
    TOO_LARGE,
    DataQuery,
    QueryAnswer,
    RefusedQuery,
    is_sql,
    needs_lines,
)
from extraction.tenant_gate import TenantGate

OpenBody = Callable[[], AsyncIterator[bytes]]

MAX_DATA_BYTES = 128 << 20
AT_A_TIME = 2
WAIT_SECONDS = 10.0
RUN_SECONDS = 30.0

KEPT = 2
KEPT_SECONDS = 60.0
KEPT_BYTES = 300 << 20
"""Processes that are kept: how many, for how long after their last query, and in how much memory together."""

_LEAST_MEMORY = 3 << 29
"""A service in a container with less than 1.5 GiB keeps no processes."""

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
    """A process that answers queries over one result, or several. It has the data as a file in memory."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self._process = process
        self._replies = BufferedByteReceiveStream(process.stdout)
        self.has_lines = False

    @property
    def memory(self) -> int:
        """Its resident bytes; 0 if the system does not report them."""
        try:
            pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    async def ask(self, query: DataQuery) -> QueryAnswer:
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
    """A child that waits for another query over the same data. `key` identifies the data."""

    key: Hashable
    child: _Child
    timer: asyncio.TimerHandle | None = None


class Queries:
    """Runs queries in child processes. A tenant runs one query at a time, so that no tenant holds all of the
    `AT_A_TIME` slots, and has at most one kept child."""

    def __init__(self) -> None:
        self._gate = TenantGate(AT_A_TIME)
        self._kept: dict[str, _Kept] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._keeps = _memory_of_container() >= _LEAST_MEMORY

    async def run(
        self, tenant: str, query: DataQuery, size: int, read: OpenBody, key: Hashable | None = None
    ) -> QueryAnswer:
        """Evaluates `query` over the `size` bytes that `read` yields. `key` identifies these bytes: while a
        process with them is kept, they are not read again.

        Raises BadQuery, NotQueryable or QueryTooCostly if the expression or the data is the reason;
        Overloaded after WAIT_SECONDS without a slot, or after RUN_SECONDS without an answer, because the
        child got too little processor time.
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
        self, tenant: str, query: DataQuery, size: int, read: OpenBody, key: Hashable | None
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

    async def _taken(self, tenant: str, key: Hashable | None, query: DataQuery) -> _Child | None:
        """The tenant's kept child, if it has this data and the lines that the query reads. Ends any other."""
        kept = self._let_go(tenant)
        if kept is None:
            return None
        if kept.key == key and (kept.child.has_lines or not needs_lines(query.expression)):
            return kept.child
        await kept.child.end()
        return None

    def _let_go(self, tenant: str) -> _Kept | None:
        """Takes the tenant's child out of those that are kept, and stops its timer."""
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


async def _started(read: OpenBody) -> _Child:
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
    """The variables by which the child finds its modules; no secrets."""
    libraries = os.environ.get("LD_LIBRARY_PATH")
    # One malloc arena: each takes 64 MiB of the address space, which is bounded.
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "MALLOC_ARENA_MAX": "1"}
    return paths | {"LD_LIBRARY_PATH": libraries} if libraries else paths


def _memory_of_container() -> float:
    """The bytes of memory that the container may use; infinite if there is no bound."""
    try:
        return float(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        return float("inf")
