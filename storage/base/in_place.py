"""Detects that an open file or directory was deleted or replaced at its path."""

import os
from pathlib import Path

from domain.errors import StoreUnavailable


class InPlace:
    """Remembers what is at `path` now. Error messages call it `name`."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = str(path)
        self._name = name
        self._opened = _identity(self._path)

    def check(self) -> None:
        """Raises StoreUnavailable if the path names another file now, or none. Costs one `stat`."""
        if _identity(self._path) != self._opened:
            raise StoreUnavailable(
                f"{self._name} was deleted or replaced while the service was using it. Nothing is written "
                "until it is back in its place, or the service has restarted."
            )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
