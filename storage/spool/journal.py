"""The journal of an outage: what Redis is to be told, in a file that outlives the process."""

import logging
import os
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import msgspec

from domain.accounting import AccountingEntry
from domain.budget import SessionChange
from domain.errors import ConfigError
from domain.handles import SessionKey
from domain.ports import Charge
from storage.base.damage import DamagedInfo, decode_info, encode_info
from storage.base.places import InPlace
from storage.base.threads import Threads
from storage.disk.syscalls import Files, translated, write_all

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_BATCH = 200

log = logging.getLogger("spillgate.spool")


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of these. A session was `declared` at a time in Unix ms."""

    charge: Charge | None = None
    entry: AccountingEntry | None = None
    declared: tuple[SessionKey, SessionChange, int] | None = None


_decode = msgspec.json.Decoder(Line).decode


class Journal:
    """Lines in a file, each synced before it is acknowledged. Its thread does one thing after another."""

    def __init__(self, path: Path, writing: Callable[[], None]) -> None:
        """`writing` is called before each write. Raises ConfigError if the file cannot be opened."""
        self._writing = writing
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file = os.fdopen(os.open(path, flags, 0o600), "rb+", buffering=0)
        except OSError as error:
            raise ConfigError(f"{path} cannot be used as the journal: {error.strerror}.") from error
        self._fd = self._file.fileno()
        self._place = InPlace(path, "The journal of the spool")
        self._files = Files()
        self._thread = Threads(1, "journal")
        if self.size and os.pread(self._fd, 1, self.size - 1) != b"\n":
            # A crash cut the last line, which was not acknowledged: end it, so that the next line is whole.
            os.write(self._fd, b"\n")

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    async def write(self, line: Line) -> None:
        """Raises StoreFull, StoreUnavailable, InvalidField."""
        packed = encode_info(line) + b"\n"
        self._writing()
        await self._run(self._write, packed)

    async def each(self, act: Callable[[Line], Awaitable[None]], offset: int = 0) -> int:
        """Calls `act` with each line from `offset` on, oldest first. Returns the offset of the end."""
        while lines := await self._run(self._read, offset):
            for line in lines:
                try:
                    decoded = decode_info(line.rstrip(), _decode)
                except DamagedInfo:
                    log.error("a line of the spool's journal is damaged: it is skipped")
                else:
                    await act(decoded)
                offset += len(line)
        return offset

    async def empty(self, size: int) -> bool:
        """Empties it, unless it has another size by now: then returns False."""
        return await self._run(self._empty, size)

    async def check(self) -> None:
        """Raises StoreUnavailable if its file was deleted or replaced."""
        await self._run(self._place.check)

    async def close(self) -> None:
        await self._thread.close()
        self._file.close()

    async def _run(self, job: Callable[[*Ts], T], *args: *Ts) -> T:
        try:
            return await self._thread.run(job, *args)
        except OSError as error:
            raise translated(error) from error

    def _write(self, packed: bytes) -> None:
        self._place.check()
        size = self.size
        try:
            write_all(self._files, self._fd, packed)
            self._files.sync(self._fd)
        except OSError:
            os.ftruncate(self._fd, size)
            raise

    def _read(self, offset: int) -> list[bytes]:
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(offset)
            return list(islice(file, _BATCH))

    def _empty(self, size: int) -> bool:
        if self.size == size:
            os.ftruncate(self._fd, 0)
        return self.size == 0
