"""The keys of encryption at rest as their file is now, re-read when it changes."""

import stat
import time
from contextlib import suppress
from pathlib import Path

from app.files import ReloadedKeys, read_text
from domain.errors import ConfigError
from storage.sealed.keys import KEY_SETTING, KeyLines, StorageKey, parse_keys


class StorageKeys(ReloadedKeys[KeyLines]):
    """A KeyRing over a file. A line with a fault is left out."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError if the file cannot be read, or holds no key."""
        super().__init__(path, KEY_SETTING, load_storage_keys, time.monotonic)

    @property
    def in_force(self) -> dict[str, StorageKey]:
        return self.lines.keys

    @property
    def warnings(self) -> list[str]:
        """And that others may read the file."""
        warnings = super().warnings
        with suppress(OSError):
            if self._path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
                warnings.append(f"{KEY_SETTING}: every user of this machine may read the file. chmod 600 it.")
        return warnings


def load_storage_keys(path: Path) -> KeyLines:
    """Raises ConfigError for a file that cannot be read, or holds no key."""
    lines = parse_keys(read_text(path, KEY_SETTING, secret=True))
    if lines.keys:
        return lines
    if lines.faults:
        raise ConfigError(f"{KEY_SETTING}, {lines.faults[0]}")
    raise ConfigError(
        f"{KEY_SETTING}: the file holds no key. Write a line `id:key` into it; see docs/encryption.md."
    )
