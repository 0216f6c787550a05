"""Opening the one directory under which a disk store keeps everything."""

import contextlib
import os
from pathlib import Path

from domain.errors import ConfigError
from storage.disk_files import Files, open_dir, unlink
from storage.disk_shelf import Shelf
from storage.locks import make_directories, take_lock
from storage.quota import Quota


class Root:
    """An open, locked and tidied root. Opening walks the whole tree: do it off the event loop."""

    def __init__(self, path: Path, max_bytes: int, files: Files | None = None) -> None:
        files = files or Files()
        self._fds: list[int] = []
        try:
            make_directories(path)
            self._fds.append(take_lock(path / "lock", path))
            root = self._hold(open_dir(str(path.resolve()), None))
            top = self._hold(_own_dir(files, "tool_output", root))
            drafts = self._hold(_own_dir(files, "drafts", root))
            files.sync(root)
            self.shelf = Shelf(files, top, drafts, Quota(max_bytes))
            self._tidy()
        except OSError as error:
            self.close()
            raise ConfigError(f"{path} cannot be used to store results: {error.strerror}.") from error
        except ConfigError:
            self.close()
            raise

    def _hold(self, fd: int) -> int:
        self._fds.append(fd)
        return fd

    def _tidy(self) -> None:
        """After a crash: strays go. What has expired waits for the first sweep."""
        for name in os.listdir(self.shelf.drafts):
            unlink(name, self.shelf.drafts)
        for key in self.shelf.dirs.all():
            self.shelf.quota.used += self.shelf.tidy(key, expired_ns=-1)[1]

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


def _own_dir(files: Files, name: str, parent: int) -> int:
    with contextlib.suppress(FileExistsError):
        files.make_dir(name, parent)
    return open_dir(name, parent)
