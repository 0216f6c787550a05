"""Disk space that is reserved for deletions, so that on a full disk sessions can end and entries can
expire."""

import errno
import os
from pathlib import Path

SPARE_BYTES = 512 << 10
_STEP = 64 << 10
"""The bytes that a transaction which ends sessions may append to the -wal file."""
_ZEROS = bytes(_STEP)


class SpareSpace:
    """A file that occupies SPARE_BYTES of the ledger's disk, and as much again as the -wal file, which may
    have to be copied behind the end of the database before it can be emptied. While a part of the file is
    spent, only deletions may be written."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Sets the mode whatever the umask is.
        os.fchmod(self._fd, 0o600)
        self._left = os.fstat(self._fd).st_size // _STEP * _STEP
        self.fill()

    def fill(self, wal_bytes: int = 0) -> bool:
        """Extends the file to its full size, as far as the disk has room. Returns whether it has that
        size."""
        wanted = SPARE_BYTES + wal_bytes
        while self._left < wanted and self._fill_step():
            self._left += _STEP
        return self._left >= wanted

    def _fill_step(self) -> bool:
        written = 0
        try:
            written = os.pwrite(self._fd, _ZEROS, self._left)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        if written < _STEP:
            os.ftruncate(self._fd, self._left)
        return written == _STEP

    def spend(self) -> bool:
        """Gives a part of the file back to the disk. False if nothing is left of it."""
        had, self._left = self._left, max(0, self._left - _STEP)
        os.ftruncate(self._fd, self._left)
        return had > 0

    def close(self) -> None:
        os.close(self._fd)
