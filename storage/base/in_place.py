"""What is open compared with what is at its path: a person may delete or replace a file that is in use."""

import os
from pathlib import Path

from domain.errors import StoreUnavailable


class InPlace:
    """A file or directory as it is at its path now. `name` is what messages call it."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = str(path)
        self._name = name
        self._opened = _identity(self._path)

    def check(self) -> None:
        """Raises StoreUnavailable if the path names something else by now, or nothing. Costs one `stat`."""
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
