"""Disk space that is kept free for deleting: on a full disk a session can be ended and entries can expire."""

import errno
import os
from pathlib import Path

SPARE_BYTES = 512 << 10
_STEP = 64 << 10
"""What a transaction that ends sessions may append to the -wal file."""
_ZEROS = bytes(_STEP)


class SpareSpace:
    """A file that takes SPARE_BYTES of the ledger's disk, and as much as the -wal file: to be emptied, that
    may have to be copied behind the end of the database. While a part of it is spent, only changes that
    delete may be written."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Under any umask.
        os.fchmod(self._fd, 0o600)
        self._left = os.fstat(self._fd).st_size // _STEP * _STEP
        self.fill()

    def fill(self, wal_bytes: int = 0) -> bool:
        """Takes what is missing, as far as the disk has room. Returns whether all of it is taken."""
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
        """Gives a part of it back to the disk. False if nothing is left."""
        had, self._left = self._left, max(0, self._left - _STEP)
        os.ftruncate(self._fd, self._left)
        return had > 0

    def close(self) -> None:
        os.close(self._fd)
