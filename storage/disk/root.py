"""The root directory of a disk store: opened, locked, cleaned up."""

import contextlib
import os
from pathlib import Path

import msgspec

from domain import __version__
from domain.errors import ConfigError
from domain.quotas import QuotaOf, unbounded
from storage.base.places import InPlace, Schema, make_directories, refusal, take_lock
from storage.base.quota import Quota
from storage.disk.published import PublishedBodies
from storage.disk.syscalls import Files, open_dir, open_file, remove, unlink, write_all

SCHEMA = 1
"""The schema of the tree and of the info files."""

_NAMES = ("tool_output", "drafts", "lock")
_MAX_SCHEMA_BYTES = 1 << 12
_decode_schema = msgspec.json.Decoder(Schema).decode


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
            has_schema = _check_schema(path, root)
            top = self._hold(_own_dir(files, "tool_output", root))
            drafts = self._hold(_own_dir(files, "drafts", root))
            if not has_schema:
                _write_schema(files, root, drafts)
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
            # Before: what is deleted now was not counted, and yet is given back.
            counted = quota.used_by(key.tenant)
            quota.set(key.tenant, counted + self.published.tidy(key, expired_ns=-1, starts=True)[1])

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


def _check_schema(path: Path, root: int) -> bool:
    """Returns whether the root has a schema file. One without was written before there were others."""
    try:
        fd = open_file("schema", root)
    except FileNotFoundError:
        return False
    with open(fd, "rb") as file:
        text = file.read(_MAX_SCHEMA_BYTES)
    try:
        refused = refusal(str(path), _decode_schema(text), SCHEMA)
    except msgspec.DecodeError:
        refused = f"{path / 'schema'} is damaged. Restore it from a backup."
    if refused is not None:
        raise ConfigError(refused)
    return True


def _write_schema(files: Files, root: int, drafts: int) -> None:
    unlink("schema", drafts)
    fd = files.create("schema", drafts)
    try:
        write_all(files, fd, msgspec.json.encode(Schema(SCHEMA, __version__)))
        files.sync(fd)
    finally:
        os.close(fd)
    files.rename("schema", drafts, "schema", root)


def _own_dir(files: Files, name: str, parent: int) -> int:
    with contextlib.suppress(FileExistsError):
        files.make_dir(name, parent)
    return open_dir(name, parent)
