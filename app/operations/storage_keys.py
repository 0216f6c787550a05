"""The keys of encryption at rest as their file is now, re-read when it changes."""

import logging
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from app.files import Watched, read_text
from domain.errors import ConfigError
from storage.sealed.keys import KEY_SETTING, KeyLines, StorageKey, parse_keys

log = logging.getLogger(__name__)


class StorageKeys:
    """A KeyRing over a file. A change is seen within a second. A line with a fault is left out. A file that
    cannot be read or holds no key leaves the keys before it in force."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError if the file cannot be read, or holds no key."""
        self._path = path
        self._watched = Watched(path, monotonic)
        self._lines = load_storage_keys(path)
        self._fault: tuple[str, ...] = ()

    @property
    def in_force(self) -> dict[str, StorageKey]:
        if self._watched.has_changed():
            self._reload()
        return self._lines.keys

    @property
    def warnings(self) -> tuple[str, ...]:
        """The lines that are not in force, a file that was not reloaded, and one that others may read."""
        if self._watched.has_changed():
            self._reload()
        found = [*self._fault, *(f"{KEY_SETTING}, {fault}" for fault in self._lines.faults)]
        with suppress(OSError):
            if self._path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
                found.append(f"{KEY_SETTING}: every user of this machine may read the file. chmod 600 it.")
        return tuple(found)

    def _reload(self) -> None:
        try:
            self._lines = load_storage_keys(self._path)
        except ConfigError as error:
            self._fault = (f"{error} The keys before stay in force.",)
            log.warning("Storage keys not reloaded, the old ones stay in force.")
        else:
            self._fault = ()
            log.info("Storage keys reloaded.", extra={"fields": {"keys": len(self._lines.keys)}})


def load_storage_keys(path: Path) -> KeyLines:
    """Raises ConfigError for a file that cannot be read, or holds no key."""
    found = parse_keys(read_text(path, KEY_SETTING, secret=True))
    if found.keys:
        return found
    if found.faults:
        raise ConfigError(f"{KEY_SETTING}, {found.faults[0]}")
    raise ConfigError(
        f"{KEY_SETTING}: the file holds no key. Write a line `id:key` into it; see docs/encryption.md."
    )
