"""Exports the accounting: each entry that the ledger accepts, as a line of JSON in a file or on stdout."""

import errno
import logging
import os
import queue
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from app.files import write_all
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

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_STDOUT = 1
_LINK = "it is a symbolic link. Name the file itself, or write `-` for standard output."


class ExportOutput(Protocol):
    def write(self, line: bytes) -> None:
        """Raises OSError if the line is not written."""
        ...

    def close(self) -> None: ...


class Export:
    """Writes entries in a thread of its own, in the order in which they were accepted. `lost` is called for
    each entry that could not be written: the request is still answered, and the ledger has the entry.

    The thread writes with system calls alone. A buffered file or a logging handler has a lock, which the end
    of the interpreter would wait for while a pipe that is not read holds up the thread."""

    def __init__(self, target: str, max_bytes: int, lost: Callable[[], None]) -> None:
        """Raises ConfigError if the file cannot be opened."""
        self._lost = lost
        self._waiting: queue.Queue[AccountingEntry | None] = queue.Queue(MOST_WAITING)
        self._output = _output(target, max_bytes)
        self._writer = threading.Thread(target=self._write_waiting, name="accounting export", daemon=True)
        self._writer.start()

    def write(self, entry: AccountingEntry) -> None:
        try:
            self._waiting.put_nowait(entry)
        except queue.Full:
            self._lost()

    def close(self) -> None:
        """Returns when all entries are written, or after twice CLOSE_SECONDS: the reader of a pipe may have
        stopped reading."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        self._writer.join(CLOSE_SECONDS)
        if self._writer.is_alive():
            fields = {"lost": self._waiting.qsize()}
            log.warning("The accounting export does not end.", extra={"fields": fields})
            return
        self._output.close()

    def _write_waiting(self) -> None:
        while (entry := self._waiting.get()) is not None:
            try:
                self._output.write(msgspec.json.encode(entry) + b"\n")
            except OSError:
                self._lost()


class _Stdout:
    def write(self, line: bytes) -> None:
        write_all(_STDOUT, line)

    def close(self) -> None:
        """Does nothing: the process may write to stdout later."""


class _File:
    """A file that has reached `max_bytes` becomes FILE.1, FILE.1 becomes FILE.2, up to FILE.5. It is opened
    again if it was deleted or moved away. A FIFO is opened for the first entry, which waits for a reader."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Raises OSError."""
        self._path = path
        self._max_bytes = max_bytes
        self._is_torn = False
        """True after a line of which a part was written."""
        self._descriptor = None if path.is_fifo() else self._open()

    def write(self, line: bytes) -> None:
        if self._descriptor is not None and not _is_at(self._path, self._descriptor):
            self.close()
        if self._descriptor is None:
            self._descriptor = self._open()
        status = os.fstat(self._descriptor)
        if stat.S_ISREG(status.st_mode) and 0 < status.st_size >= self._max_bytes - len(line):
            self.close()
            self._rotate()
            self._descriptor = self._open()
        line = b"\n" * self._is_torn + line
        self._is_torn = True
        try:
            write_all(self._descriptor, line)
        except BrokenPipeError:
            self.close()
            raise
        self._is_torn = False

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        try:
            descriptor = os.open(self._path, _APPEND)
        except FileNotFoundError:
            descriptor = os.open(self._path, _APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        self._is_torn = _lacks_newline(self._path)
        return descriptor

    def _rotate(self) -> None:
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, KEPT_FILES + 1))]
        for older, newer in reversed(list(zip(names[1:], names, strict=False))):
            with suppress(FileNotFoundError):
                newer.replace(older)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _output(target: str, max_bytes: int) -> ExportOutput:
    if target == STANDARD_OUTPUT:
        return _Stdout()
    try:
        return _File(Path(target).absolute(), max_bytes)
    except OSError as error:
        raise _unwritable(error.errno or 0) from None


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
    if path.is_symlink():
        raise _unwritable(errno.ELOOP)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _unwritable(errno.EACCES)


def _unwritable(why: int) -> ConfigError:
    reason = _LINK if why == errno.ELOOP else f"{os.strerror(why)}."
    return ConfigError(f"SPILLGATE_ACCOUNTING_EXPORT cannot be opened for writing: {reason}")


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
        if receipt is not None and not receipt.is_retry:
            self._export.write(receipt.entry)
        return receipt
