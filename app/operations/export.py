"""Exports the accounting: each entry that the ledger accepts, as a line of JSON in a file or on stdout.

A thread writes the line after the ledger has the entry. A killed process leaves entries without a line: the
next one with the same file finds them in the ledger, and appends them.
"""

import asyncio
import hashlib
import logging
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from anyio.to_thread import run_sync

from app.operations.line_writer import STANDARD_OUTPUT, JsonLines
from domain.accounting import AccountingEntry, EntryFilter
from domain.errors import StorageError
from domain.ports import Charge, Ledger, Receipt
from domain.wrappers import LedgerAround

EXPORT_SETTING = "SPILLGATE_ACCOUNTING_EXPORT"

_TAIL_BYTES = 32 << 20
"""The end of an export that is compared with the ledger: about twice the lines that a killed process may have
left out."""

_PAGE = 1000
_PAUSE_SECONDS = 0.5
_FLUSH_SECONDS = 10.0

log = logging.getLogger("spillgate.export")


class _Line(msgspec.Struct):
    id: str
    timestamp: int


_decode_line = msgspec.json.Decoder(_Line).decode


class EarlierExport(NamedTuple):
    """The file of an export, as it was before this process opened it: changed at `changed_at` (Unix ms)."""

    path: Path
    changed_at: int

    @classmethod
    def find(cls, target: str) -> Self | None:
        """Returns None if the path names nothing, or something that is not a file."""
        path = Path(target).absolute()
        # A name that is none is an error where the file is opened.
        with suppress(OSError):
            if target != STANDARD_OUTPUT and path.is_file():
                return cls(path, int(path.stat().st_mtime * 1000))
        return None

    def newest(self) -> tuple[set[str], int]:
        """The ids of the newest lines, and from which time on (Unix ms) they are all there."""
        lines, left = list[_Line](), _TAIL_BYTES
        for path in (self.path, Path(f"{self.path}.1")):
            with suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(-min(left, path.stat().st_size), os.SEEK_END)
                left -= path.stat().st_size
                lines = [*_lines(file), *lines]
            if left <= 0:
                # Lines are nearly in order of time: an earlier line may be later than the first of these.
                return {line.id for line in lines}, lines[len(lines) // 4].timestamp
        times = (line.timestamp for line in lines)
        return {line.id for line in lines}, min(times, default=self.changed_at)


def _lines(file: Iterable[bytes]) -> Iterator[_Line]:
    for line in file:
        # A line that was cut off is skipped.
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            yield _decode_line(line)


def writer_of(target: str | None) -> str:
    """The first 8 digits of the `writer` of every process on this machine that exports to this file; "" if it
    is no file."""
    if target is None or target == STANDARD_OUTPUT:
        return ""
    name = f"{platform.node()}\0{os.path.realpath(target)}"
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:8]


class ExportedLedger(LedgerAround):
    """The ledger, whose entries are exported once it has accepted them. An entry that cannot be
    written is still in the ledger."""

    def __init__(
        self, ledger: Ledger, export: JsonLines[AccountingEntry], earlier: EarlierExport | None, writer: str
    ) -> None:
        """`writer`: that of the ids of this process's entries."""
        super().__init__(ledger)
        self._export = export
        self._earlier = earlier
        self._writer = writer

    async def reserve(self, charge: Charge) -> Receipt | None:
        return self._written(await self._inner.reserve(charge))

    async def settle(self, charge: Charge) -> Receipt:
        receipt = await self._inner.settle(charge)
        self._written(receipt)
        return receipt

    async def append(self, entry: AccountingEntry) -> None:
        await self._inner.append(entry)
        self._export.put_nowait(entry)

    def _written(self, receipt: Receipt | None) -> Receipt | None:
        if receipt is not None and not receipt.is_retry:
            self._export.put_nowait(receipt.entry)
        return receipt

    async def append_missing(self) -> None:
        """Exports the entries of earlier processes that have no line. Returns when every entry has a line."""
        if self._earlier is None:
            return
        known, since = await run_sync(self._earlier.newest)
        count, writers = len(known), set(map(_writer, known))
        is_done = False
        while not is_done:
            with suppress(StorageError):
                for tenant in await self._inner.usage():
                    await self._append_of(EntryFilter(tenant, since=since), known, writers)
                is_done = True
            await asyncio.sleep(0 if is_done else _PAUSE_SECONDS)
        if appended := len(known) - count:
            fields = {"entries": appended}
            log.info(
                "Entries that an earlier process had not exported are appended.", extra={"fields": fields}
            )

    async def _append_of(self, wanted: EntryFilter, known: set[str], writers: set[str]) -> None:
        cursor: str | None = ""
        while cursor is not None:
            page = await self._inner.entries(wanted, _PAGE, cursor or None)
            for entry in page.entries:
                writer = _writer(entry.id)
                is_ours = writer in writers or writer[:8] == self._writer[:8]
                if is_ours and writer != self._writer and entry.id not in known:
                    known.add(entry.id)
                    self._export.put_nowait(entry)
            cursor = page.next_cursor
            # At most as many at once as the queue holds.
            await run_sync(self._export.flush, _FLUSH_SECONDS)


def _writer(entry_id: str) -> str:
    """The 16 digits of the process that gave the id."""
    return entry_id.rpartition("-")[0].rpartition("-")[2]
