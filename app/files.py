"""Files that settings and options name: their text, and keys that are read again once their file changed."""

import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from domain.errors import ConfigError

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0

Stamp = tuple[int, int, int]
ReadLines = TypeVar("ReadLines", bound=tuple[dict[str, Any], list[str]])
"""The keys of a file, and for each line that is not in force its number and why."""

_WHY = {
    errno.ENOENT: "there is no file {path}",
    errno.ENOTDIR: "there is no file {path}",
    errno.EISDIR: "{path} is a directory, not a file",
    errno.EACCES: "this user may not read {path}",
    errno.EPERM: "this user may not read {path}",
}


def stamp_of(path: Path) -> Stamp | None:
    """Changes with the file and who may read it, a file renamed over it, and a link that leads elsewhere.
    None: no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ctime_ns, status.st_size, status.st_ino


class ReloadedKeys(Generic[ReadLines]):
    """The keys of a file, which is looked at when they are asked for, at most once a second, and read again
    once it has changed. A file that `read` refuses leaves the keys before it in force."""

    def __init__(
        self, path: Path, setting: str, read: Callable[[Path], ReadLines], monotonic: Callable[[], float]
    ) -> None:
        """Raises what `read` does: ConfigError."""
        self._path = path
        self._setting = setting
        self._read = read
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._stamp = stamp_of(path)
        self._lines = read(path)
        self._refused: tuple[str, ...] = ()

    @property
    def lines(self) -> ReadLines:
        now = self._monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            before, self._stamp = self._stamp, stamp_of(self._path)
            if self._stamp != before:
                self._reload()
        return self._lines

    @property
    def warnings(self) -> list[str]:
        """A file that is not in force, and the lines that are not."""
        _, faults = self.lines
        return [*self._refused, *(f"{self._setting}, {fault}" for fault in faults)]

    def _reload(self) -> None:
        try:
            self._lines = self._read(self._path)
        except ConfigError as error:
            self._refused = (f"{error} The keys before stay in force.",)
            log.warning(self._refused[0])
        else:
            self._refused = ()
            log.info("%s was reloaded.", self._setting, extra={"fields": {"keys": len(self._lines[0])}})


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


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Waits until no other process changes a file of the directory this way. Does not wait where the
    directory cannot be locked."""
    with ExitStack() as held:
        with suppress(OSError):
            name = os.path.dirname(os.path.realpath(path))
            directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, directory)
            fcntl.flock(directory, fcntl.LOCK_EX)
        yield
