"""The root directory of a disk store: opened, locked, cleaned up."""

import contextlib
import os
from pathlib import Path

from domain.errors import ConfigError
from domain.quotas import QuotaOf, unbounded
from storage.base.places import InPlace, make_directories, take_lock
from storage.base.quota import Quota
from storage.disk.published import PublishedBodies
from storage.disk.syscalls import Files, open_dir, remove

_NAMES = ("tool_output", "drafts", "lock")


class Root:
    """Opening walks the whole tree: call it from a worker thread. Raises ConfigError."""

    def __init__(
        self, path: Path, max_bytes: int, files: Files | None = None, quota_of: QuotaOf = unbounded
    ) -> None:
        files = files or Files()
        self._fds: list[int] = []
        try:
            make_directories(path)
            self._fds.append(take_lock(path / "lock", path))
            root = self._hold(open_dir(str(path.resolve()), None))
            top = self._hold(_own_dir(files, "tool_output", root))
            drafts = self._hold(_own_dir(files, "drafts", root))
            files.sync(root)
            outer = InPlace(path, "The storage directory")
            inner = {name: InPlace(path / name, f"{name} in the storage directory") for name in _NAMES}
            self._places = [outer, *inner.values()]
            quota = Quota(max_bytes, quota_of)
            self.published = PublishedBodies(files, top, inner["tool_output"], drafts, quota)
            self._tidy()
        except OSError as error:
            self.close()
            at = path if error.filename is None else path / os.fsdecode(error.filename)
            raise ConfigError(f"{at} cannot be used to store results: {error.strerror}.") from error
        except ConfigError:
            self.close()
            raise

    def _hold(self, fd: int) -> int:
        self._fds.append(fd)
        return fd

    def _tidy(self) -> None:
        """Deletes drafts and incomplete results of a crash. The first sweep deletes expired ones."""
        for name in os.listdir(self.published.drafts):
            self._remove_draft(name)
        quota = self.published.quota
        for key in self.published.dirs.all():
            kept = self.published.tidy(key, expired_ns=-1)[1]
            quota.set(key.tenant, quota.used_by(key.tenant) + kept)

    def _remove_draft(self, name: str) -> None:
        """A warning names a path that cannot be deleted. New drafts have other names."""
        path, reason = f"drafts/{name}", "is a directory that is not empty"
        try:
            if remove(name, self.published.drafts):
                return
        except OSError as error:
            reason = f"cannot be deleted: {error.strerror}"
        self.published.notices.warn(path, f"{reason}. Delete it by hand.")

    def check_places(self) -> None:
        """Raises StoreUnavailable if an open directory was deleted or replaced."""
        for place in self._places:
            place.check()

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


def _own_dir(files: Files, name: str, parent: int) -> int:
    with contextlib.suppress(FileExistsError):
        files.make_dir(name, parent)
    return open_dir(name, parent)
