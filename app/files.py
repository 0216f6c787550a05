"""Files that settings and options name: their text, and whether they are still the ones that were read."""

import errno
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from domain.errors import ConfigError

LOOK_SECONDS = 1.0

Stamp = tuple[int, int, int]

_WHY = {
    errno.ENOENT: "there is no file {path}",
    errno.ENOTDIR: "there is no file {path}",
    errno.EISDIR: "{path} is a directory, not a file",
    errno.EACCES: "this user may not read {path}",
    errno.EPERM: "this user may not read {path}",
}


def stamp_of(path: Path) -> Stamp | None:
    """Changes with the file, a file renamed over it, and a link that leads elsewhere. None: no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Watched:
    """A file that is looked at, at most once a second, to see whether it has changed."""

    def __init__(self, path: Path, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._stamp = stamp_of(path)

    def has_changed(self) -> bool:
        """True once for each change that is seen."""
        now = self._monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = now
        before, self._stamp = self._stamp, stamp_of(self._path)
        return self._stamp != before


def read_text(path: Path, named_by: str, *, secret: bool = False) -> str:
    """The file's text, without a byte order mark. Raises ConfigError, which says what named the file and why
    it cannot be read. A `secret` file's path is only shown if it is absolute: anything else may be the secret
    itself, given where its file's path belongs."""
    shown = str(path) if path.is_absolute() or not secret else "of that name: give an absolute path"
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{named_by}: {why_unreadable(error, shown)}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{named_by}: {shown} is not UTF-8 text (byte {error.start}).") from None
    except ValueError:
        raise ConfigError(f"{named_by}: the path holds a null character.") from None


def why_unreadable(error: OSError, path: str) -> str:
    return _WHY.get(error.errno or 0, f"{{path}} cannot be read: {error.strerror}").format(path=path)


def replace_text(path: Path, text: str, mode: int) -> None:
    """Replaces the file in one step: who reads it sees the old text or the new one. Its mode, its owner and a
    link that leads to it stay; a new file gets `mode`. Raises OSError, and then leaves nothing behind."""
    path = path.resolve()
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(text.encode())
            with suppress(FileNotFoundError):
                was = path.stat()
                mode = was.st_mode & 0o7777
                with suppress(PermissionError):
                    os.fchown(descriptor, was.st_uid, was.st_gid)
            os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
