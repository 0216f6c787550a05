"""JMESPath over stored data: each query runs in a confined process of its own, a few at a time."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from weakref import WeakValueDictionary

import anyio
import msgspec
from anyio.abc import Process
from msgspec import Struct

from content.data.slices import Slice
from content.kinds import Kind
from domain.errors import InvalidField, NotQueryable, Overloaded, QueryTooCostly

__all__ = ["Queries", "Query"]


TOO_LARGE = "The query takes more memory than it has: the data, or what the expression makes, is too large."


class Query(Struct, frozen=True):
    """A JMESPath expression. It answers at most `limit` items of an array, and `max_bytes` of JSON."""

    expression: str
    max_bytes: int
    tool_name: str = ""
    limit: int = 100
    offset: int = 0


class Found(Struct, frozen=True, tag=True):
    """What the data was read as, and the part of the expression's value that is answered. `hint` says why the
    expression selects nothing, where keys are the cause."""

    kind: Kind
    slice: Slice
    hint: str = ""


class Refused(Struct, frozen=True, tag=True):
    """The code and the detail of an InvalidField or of one of its subclasses."""

    code: str
    detail: str


Read = Callable[[], AsyncIterator[bytes]]

MAX_DATA_BYTES = 32 << 20
AT_A_TIME = 3
WAIT_SECONDS = 10.0
RUN_SECONDS = 30.0

_COMMAND = (sys.executable, "-S", "-P", "-m", "extraction.query_child")
# Signals that end a child when memory runs out.
_OUT_OF_MEMORY = (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
_REFUSALS: dict[str, type[InvalidField]] = {
    kind.code: kind for kind in (InvalidField, NotQueryable, QueryTooCostly)
}
_decode: Callable[[bytes], Found | Refused] = msgspec.json.Decoder(Found | Refused).decode


class ProcessFailed(Exception):
    """The child ended with an exit code that its bounds do not explain."""


class Queries:
    """Each tenant has one slot, so that no tenant can hold all of the `AT_A_TIME` children."""

    def __init__(self) -> None:
        self._children = anyio.Semaphore(AT_A_TIME)
        self._slots: WeakValueDictionary[str, anyio.Semaphore] = WeakValueDictionary()

    async def run(self, tenant: str, query: Query, size: int, read: Read) -> Found:
        """Evaluates `query` over the `size` bytes that `read` yields.

        Raises InvalidField, NotQueryable or QueryTooCostly where the expression or the data is at fault;
        Overloaded after WAIT_SECONDS without a slot, or RUN_SECONDS in which the child got too little of the
        processor.
        """
        if size > MAX_DATA_BYTES:
            raise NotQueryable(
                f"The result has {size:,} bytes; up to {MAX_DATA_BYTES:,} can be queried. "
                "Search it with grep, read its lines, or ask a question about it."
            )
        async with self._turn(tenant):
            try:
                with anyio.fail_after(RUN_SECONDS):
                    return await _run(query, read)
            except TimeoutError:
                raise Overloaded(
                    f"The query had no answer within {RUN_SECONDS:.0f} s because the service is busy. "
                    "Try again in a moment."
                ) from None

    @contextlib.asynccontextmanager
    async def _turn(self, tenant: str) -> AsyncIterator[None]:
        slot = self._slots.setdefault(tenant, anyio.Semaphore(1))
        async with contextlib.AsyncExitStack() as held:
            try:
                with anyio.fail_after(WAIT_SECONDS):
                    await held.enter_async_context(slot)
                    await held.enter_async_context(self._children)
            except TimeoutError:
                raise Overloaded("Too many queries are running. Try again in a moment.") from None
            yield


async def _run(query: Query, read: Read) -> Found:
    command = (*_COMMAND, str(os.getpid()))
    process = await anyio.open_process(command, env=_environment(), stderr=subprocess.DEVNULL)
    async with process:
        try:
            await _feed(process, query, read())
            assert process.stdout is not None
            reply = b"".join([chunk async for chunk in process.stdout])
            code = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    if code == -signal.SIGXCPU:
        raise QueryTooCostly(
            "The query takes more time than it has: the data is large, or the expression does much with each "
            "item. Filter first, and leave out functions within functions."
        )
    if -code in _OUT_OF_MEMORY:
        raise QueryTooCostly(TOO_LARGE)
    if code != 0:
        raise ProcessFailed(f"the child of a query ended with {code}")
    found = _decode(reply)
    if isinstance(found, Refused):
        raise _REFUSALS[found.code](found.detail)
    return found


def _environment() -> dict[str, str]:
    """Where the child finds its modules, and no secrets."""
    libraries = os.environ.get("LD_LIBRARY_PATH")
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return paths | {"LD_LIBRARY_PATH": libraries} if libraries else paths


async def _feed(process: Process, query: Query, chunks: AsyncIterator[bytes]) -> None:
    """Returns when the child has all, or has ended early: then its exit code says why."""
    assert process.stdin is not None
    try:
        await process.stdin.send(msgspec.json.encode(query) + b"\n")
        async for chunk in chunks:
            await process.stdin.send(chunk)
        await process.stdin.aclose()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return
