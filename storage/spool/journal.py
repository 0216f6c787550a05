"""The journal of a spool: changes for Redis as JSON lines, each synced before it is acknowledged."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from domain.accounting import AccountingEntry
from domain.budget import SessionChange
from domain.errors import InvalidField, StoreFull, StoreUnavailable
from domain.handles import SessionKey
from domain.ports import Charge
from storage.base.places import InPlace


class Declared(msgspec.Struct, tag=True, frozen=True):
    key: SessionKey
    change: SessionChange


class Charged(msgspec.Struct, tag=True, frozen=True):
    charge: Charge


class Appended(msgspec.Struct, tag=True, frozen=True):
    entry: AccountingEntry


Line = Declared | Charged | Appended
_BATCH = 200
log = logging.getLogger("spillgate.spool")
_decode = msgspec.json.Decoder(Declared | Charged | Appended).decode


class Journal:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._place = InPlace(path, "The journal of the spool")
        self._turn = asyncio.Lock()
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            # A crash cut the last line, which was not acknowledged: end it, so that the next line is whole.
            os.write(self._fd, b"\n")

    async def write(self, line: Line) -> None:
        """Raises StoreFull, StoreUnavailable, InvalidField."""
        try:
            packed = msgspec.json.encode(line) + b"\n"
        except UnicodeEncodeError:
            raise InvalidField("A text in it cannot be kept. Use valid Unicode.") from None
        async with self._turn:
            await asyncio.to_thread(self._write, packed)

    async def each(self, act: Callable[[Line], Awaitable[None]], offset: int = 0) -> int:
        """Calls `act` with each line from `offset` on, oldest first. Returns the offset of the end."""
        while lines := await asyncio.to_thread(self._read, offset):
            for line in lines:
                try:
                    decoded = _decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    log.error("a line of the spool's journal is damaged: it is skipped")
                else:
                    await act(decoded)
                offset += len(line)
        return offset

    async def replay(self, act: Callable[[Line], Awaitable[None]]) -> None:
        """Calls `act` with each line, oldest first, then empties the journal. After a crash or an error of
        `act`, lines may be replayed again."""
        offset = 0
        while True:
            offset = await self.each(act, offset)
            async with self._turn:
                if offset == os.fstat(self._fd).st_size:
                    os.ftruncate(self._fd, 0)
                    return

    @property
    def is_empty(self) -> bool:
        return os.fstat(self._fd).st_size == 0

    def check(self) -> None:
        """Raises StoreUnavailable if its file was deleted or replaced."""
        self._place.check()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, packed: bytes) -> None:
        self.check()
        size = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, packed) < len(packed):
                raise OSError
            os.fsync(self._fd)
        except OSError as error:
            os.ftruncate(self._fd, size)
            raise StoreFull("The journal of the spool cannot be written. Free space on its disk.") from error

    def _read(self, offset: int) -> list[bytes]:
        try:
            with open(os.dup(self._fd), "rb") as file:
                file.seek(offset)
                lines = [line for _, line in zip(range(_BATCH), file, strict=False)]
                # The last line may be incomplete while it is written.
                return [line for line in lines if line.endswith(b"\n")]
        except OSError as error:
            raise StoreUnavailable("The journal of the spool cannot be read. Check its disk.") from error
