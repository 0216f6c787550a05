"""Exports the accounting: each entry that the ledger accepts, as a line of JSON in a file or on stdout."""

import errno
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

import msgspec

from domain.accounting import AccountingEntry
from domain.errors import ConfigError
from domain.ports import Charge, Ledger, Receipt
from domain.wrappers import LedgerAround

log = logging.getLogger("spillgate.export")

STANDARD_OUTPUT = "-"
KEPT_FILES = 5
CLOSE_SECONDS = 3.0
MOST_WAITING = 20_000
"""Entries in memory that are not written yet, of about 1 KB each. More are not exported, and counted."""


class Export:
    """Writes entries in a thread of its own, in the order in which they were accepted. A file that has
    reached `max_bytes` becomes FILE.1, FILE.1 becomes FILE.2, up to FILE.5. `lost` is called for each entry
    that could not be written: the request is still answered, and the ledger has the entry."""

    def __init__(self, target: str, max_bytes: int, lost: Callable[[], None]) -> None:
        """Raises ConfigError if the file cannot be opened."""
        self._lost = lost
        self._waiting: queue.Queue[AccountingEntry | None] = queue.Queue(MOST_WAITING)
        handler = _handler(target, max_bytes)
        handler.setFormatter(_Lines())
        handler.handleError = lambda record: lost()  # type: ignore[method-assign]
        self._handler = handler
        self._writer = threading.Thread(target=self._write_waiting, name="accounting export", daemon=True)
        self._writer.start()

    def write(self, entry: AccountingEntry) -> None:
        try:
            self._waiting.put_nowait(entry)
        except queue.Full:
            self._lost()

    def close(self) -> None:
        """Returns when all that was given is written, or after CLOSE_SECONDS: where standard output leads may
        no longer read."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        self._writer.join(CLOSE_SECONDS)
        if self._writer.is_alive():
            fields = {"lost": self._waiting.qsize()}
            log.warning("The accounting export does not end.", extra={"fields": fields})
            return
        # A full disk: the entries that are still in the buffer were counted as lost.
        with suppress(OSError):
            self._handler.close()

    def _write_waiting(self) -> None:
        while (entry := self._waiting.get()) is not None:
            self._handler.handle(logging.makeLogRecord({"msg": entry}))


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode(record.msg).decode()


class _File(RotatingFileHandler):
    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802
        """Opens the file again if it was deleted or moved away."""
        stream = self.stream
        if stream is not None and not _is_at(self.baseFilename, stream.fileno()):
            self.stream = None
            stream.close()
        return bool(super().shouldRollover(record))


def _is_at(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _handler(target: str, max_bytes: int) -> logging.Handler:
    if target == STANDARD_OUTPUT:
        return logging.StreamHandler(sys.stdout)
    try:
        lacks_newline = _lacks_newline(Path(target))
        handler = _File(target, maxBytes=max_bytes, backupCount=KEPT_FILES, encoding="utf-8")
    except OSError as error:
        raise _unwritable(error.errno or 0) from None
    if lacks_newline and handler.stream is not None:
        handler.stream.write("\n")
    return handler


def _lacks_newline(path: Path) -> bool:
    """Whether its last line lacks the newline, because the disk was full and the process was killed."""
    if path.is_file():
        with suppress(OSError), path.open("rb") as file:
            # Of an empty file this raises OSError.
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"
    return False


def check_target(target: str) -> None:
    """Raises ConfigError for a file that could not be opened for writing. Makes none."""
    if target == STANDARD_OUTPUT:
        return
    path = Path(target).absolute()
    try:
        os.stat(f"{path.parent}/")
        is_directory = path.is_dir()
    except OSError as error:
        raise _unwritable(error.errno or 0) from None
    if is_directory:
        raise _unwritable(errno.EISDIR)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _unwritable(errno.EACCES)


def _unwritable(why: int) -> ConfigError:
    return ConfigError(f"SPILLGATE_ACCOUNTING_EXPORT cannot be opened for writing: {os.strerror(why)}.")


def exported(ledger: Ledger, export: Export) -> Ledger:
    """The ledger, whose entries are exported once it has accepted them."""
    return _Exported(ledger, export)


class _Exported(LedgerAround):
    def __init__(self, ledger: Ledger, export: Export) -> None:
        super().__init__(ledger)
        self._export = export

    async def reserve(self, charge: Charge) -> Receipt | None:
        return self._written(await self._inner.reserve(charge))

    async def settle(self, charge: Charge) -> Receipt:
        receipt = await self._inner.settle(charge)
        self._written(receipt)
        return receipt

    async def append(self, entry: AccountingEntry) -> None:
        await self._inner.append(entry)
        self._export.write(entry)

    def _written(self, receipt: Receipt | None) -> Receipt | None:
        if receipt is not None and not receipt.replayed:
            self._export.write(receipt.entry)
        return receipt
