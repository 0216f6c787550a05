"""Queries over stored data, each in a process of its own, a few at a time."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable

import anyio
import msgspec
from anyio.abc import Process

from content.questions import read_question
from domain.errors import InvalidField, NotQueryable, Overloaded, QueryTooCostly
from extraction.query_process import TOO_LARGE, Asked, Found, Told

Read = Callable[[], AsyncIterator[bytes]]

MAX_DATA_BYTES = 32 << 20
AT_A_TIME = 2
WAIT_SECONDS = 10.0
RUN_SECONDS = 30.0

_COMMAND = (sys.executable, "-S", "-P", "-m", "extraction.query_process")
# By the kernel, or by an allocation of C code that was not granted.
_OUT_OF_MEMORY = (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
_REFUSALS: dict[str, type[InvalidField]] = {
    kind.code: kind for kind in (InvalidField, NotQueryable, QueryTooCostly)
}
_decode = msgspec.json.Decoder(Told).decode


class ProcessFailed(Exception):
    """It ended otherwise than by its own word or by its bounds."""


class Queries:
    """Runs queries: the data flows from the store into the process, and is not held here."""

    def __init__(self) -> None:
        self._running = anyio.CapacityLimiter(AT_A_TIME)

    async def ask(self, asked: Asked, size: int, read: Read) -> Found:
        """Data of `size` bytes. Raises InvalidField, NotQueryable, QueryTooCostly; Overloaded while too
        many others wait."""
        found = await self._told(asked, size, read)
        assert found is not None, "an expression always gives something"
        return found

    async def answer(self, asked: Asked, size: int, read: Read) -> Found | None:
        """`asked` by its `instruction`. None where that is no plain question about this data, finds nothing,
        would cost too much, or cannot be run: then another way of answering is better."""
        if read_question(asked.instruction) is None:
            return None
        try:
            return await self._told(asked, size, read)
        except (InvalidField, Overloaded, ProcessFailed, OSError):
            return None

    async def _told(self, asked: Asked, size: int, read: Read) -> Found | None:
        if size > MAX_DATA_BYTES:
            raise NotQueryable(
                f"The result has {size:,} bytes; up to {MAX_DATA_BYTES:,} can be queried. "
                "Search it by grep, read it by lines, or ask POST /extract."
            )
        try:
            with anyio.fail_after(WAIT_SECONDS):
                await self._running.acquire()
        except TimeoutError:
            raise Overloaded("Too many queries are running. Try again in a moment.") from None
        try:
            with anyio.fail_after(RUN_SECONDS):
                return await _run(asked, read)
        except TimeoutError:
            raise _too_slow() from None
        finally:
            self._running.release()


async def _run(asked: Asked, read: Read) -> Found | None:
    process = await anyio.open_process(_COMMAND, env=_environment(), stderr=subprocess.DEVNULL)
    async with process:
        try:
            await _feed(process, asked, read())
            told = await _said(process)
            code = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    if code == -signal.SIGXCPU:
        raise _too_slow()
    if -code in _OUT_OF_MEMORY:
        raise QueryTooCostly(TOO_LARGE)
    if code != 0:
        raise ProcessFailed(f"the process of a query ended with {code}")
    return _found(_decode(told))


def _environment() -> dict[str, str]:
    """No secrets, and where this process finds its modules."""
    libraries = os.environ.get("LD_LIBRARY_PATH")
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return paths | {"LD_LIBRARY_PATH": libraries} if libraries else paths


async def _feed(process: Process, asked: Asked, chunks: AsyncIterator[bytes]) -> None:
    """Until the process has all, or has ended early: then its exit says why."""
    assert process.stdin is not None
    try:
        await process.stdin.send(msgspec.json.encode(asked) + b"\n")
        async for chunk in chunks:
            await process.stdin.send(chunk)
        await process.stdin.aclose()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


async def _said(process: Process) -> bytes:
    assert process.stdout is not None
    return b"".join([chunk async for chunk in process.stdout])


def _found(told: Told) -> Found | None:
    if told.refused is not None:
        raise _REFUSALS[told.refused.code](told.refused.detail)
    return told.found


def _too_slow() -> QueryTooCostly:
    return QueryTooCostly(
        "The query takes more time than it has: the data is large, or the expression does much with each "
        "item. Filter first, and leave out functions within functions."
    )
