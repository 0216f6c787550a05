"""Whether Redis is away, who answers then, and the journal of what Redis is to be told when it is back."""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Never, TypeVar, TypeVarTuple

import msgspec

from domain.accounting import AccountingEntry
from domain.budget import SessionChange
from domain.errors import ConfigError, StorageError, StoreBusy, StoreFull, StoreUnavailable
from domain.handles import SessionKey
from domain.ports import Charge
from domain.results import StoredResult
from storage.base.damage import DamagedInfo, decode_info, encode_info
from storage.base.places import InPlace
from storage.base.threads import Threads
from storage.disk.syscalls import Files, translated, write_all
from storage.redis.connection import renew_patience

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
PAUSE_SECONDS = 0.5
"""The pause between two checks whether Redis is back."""

log = logging.getLogger("spillgate.spool")


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of these. A session was `declared` in an epoch. A result of the local disk was `deleted`."""

    charge: Charge | None = None
    entry: AccountingEntry | None = None
    declared: tuple[SessionKey, SessionChange, int] | None = None
    deleted: StoredResult | None = None


class Journal:
    """A file of lines, each synced before it is acknowledged. Its thread does one thing after another."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError if the file cannot be used."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file = os.fdopen(os.open(path, flags, 0o600), "rb+", buffering=0)
        except OSError as error:
            raise ConfigError(f"{path} cannot be used as the journal: {error.strerror}.") from error
        self._fd = self._file.fileno()
        self._place = InPlace(path, "The journal of the spool")
        self._files = Files()
        self._thread = Threads(1, "journal")
        self.lines: deque[Line] = deque()
        """Those that Redis does not have yet, oldest first."""
        decode = msgspec.json.Decoder(Line).decode
        for packed in filter(None, self._file.read().split(b"\n")):
            try:
                self.lines.append(decode_info(packed, decode))
            except DamagedInfo:
                log.error("a line of the spool's journal is damaged: it is skipped")

    async def write(self, line: Line) -> None:
        """Raises StoreFull, StoreUnavailable, InvalidField."""
        # A crash may have cut the line before it.
        await self._run(self._write, b"\n" + encode_info(line))
        self.lines.append(line)

    async def empty(self) -> None:
        await self._run(os.ftruncate, self._fd, 0)

    async def check(self) -> None:
        """Raises StoreUnavailable if its file was deleted or replaced."""
        await self._run(self._place.check)

    async def close(self) -> None:
        """May be called again."""
        await self._thread.close()
        self._file.close()

    async def _run(self, job: Callable[[*Ts], T], *args: *Ts) -> T:
        try:
            return await self._thread.run(job, *args)
        except OSError as error:
            raise translated(error) from error

    def _write(self, packed: bytes) -> None:
        self._place.check()
        size = os.fstat(self._fd).st_size
        try:
            write_all(self._files, self._fd, packed)
            self._files.sync(self._fd)
        except OSError:
            os.ftruncate(self._fd, size)
            raise


class Outage:
    """Begins with a StoreUnavailable from Redis, or with what an earlier process left in the journal. Ends
    when Redis has all of the journal. `changed` gets the reason when it begins, and None when it ends.

    Redis is back when all of `checks` pass. Then all of `replays` get each line, oldest first and perhaps
    more than once, and at last all of `ends` are called."""

    def __init__(self, folder: Path, changed: Callable[[str | None], None] = lambda why: None) -> None:
        self._changed = changed
        self._turn = asyncio.Lock()
        self._is_away = False
        self._folder = folder
        self.checks: list[Callable[[], Awaitable[None]]] = []
        self.replays: list[Callable[[Line], Awaitable[None]]] = []
        self.ends: list[Callable[[], Awaitable[None]]] = []
        self.why: str | None = None
        """Why Redis does not have all of the journal; None: there is no outage."""

    async def open(self) -> None:
        """Opens the journal, once. Raises ConfigError if it cannot be used."""
        if not hasattr(self, "journal"):
            self.journal = await asyncio.to_thread(Journal, self._folder / "journal.jsonl")
            if self.journal.lines:
                self._set("The journal of the last outage is on its way to Redis.", is_away=True)

    async def only(self, shared: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Calls `shared`. Raises StoreUnavailable if Redis is away."""
        if self._is_away:
            raise StoreUnavailable("Redis is away, and only Redis knows this. Try again in a moment.")
        try:
            return await shared(*args)
        except StoreBusy:
            # This process is busy, Redis is not away.
            raise
        except StoreUnavailable as error:
            self._set(error.detail, is_away=True)
            raise

    async def unless_away(
        self, shared: Callable[[*Ts], Awaitable[T]], local: Callable[[*Ts], Awaitable[T]], *args: *Ts
    ) -> T:
        """Calls `shared`; `local` if Redis is away."""
        try:
            return await self.only(shared, *args)
        except StoreUnavailable:
            if not self._is_away:
                raise
            return await local(*args)

    async def first(
        self, shared: Callable[[*Ts], Awaitable[T]], local: Callable[[*Ts], Awaitable[T]], *args: *Ts
    ) -> T:
        """Calls `shared`; in an outage `local`, one call after another."""
        if self.why is None:
            try:
                return await self.only(shared, *args)
            except StoreUnavailable:
                if not self._is_away:
                    raise
        async with self._turn:
            if self.why is not None:
                return await local(*args)
        # It has ended while another call had the turn.
        return await self.first(shared, local, *args)

    async def watch(self) -> Never:
        while True:
            if self.why is not None:
                await self.try_to_end()
            await asyncio.sleep(PAUSE_SECONDS)

    async def try_to_end(self) -> None:
        renew_patience()
        try:
            await self._return()
        except StorageError as error:
            # A full Redis is there: what it has can be read and deleted.
            self._set(error.detail, is_away=not isinstance(error, StoreFull))

    async def _return(self) -> None:
        for check in self.checks:
            with suppress(StoreFull):
                await check()
        self._is_away = False
        while self.why is not None:
            while lines := self.journal.lines:
                for replay in self.replays:
                    await replay(lines[0])
                lines.popleft()
            async with self._turn:
                if not lines:
                    await self.journal.empty()
                    for end in self.ends:
                        await end()
                    self._set(None)

    def _set(self, why: str | None, *, is_away: bool = False) -> None:
        before, self.why, self._is_away = self.why, why, is_away
        if (before is None) is not (why is None):
            self._changed(why)
