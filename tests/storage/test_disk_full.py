"""A full or failing disk: refused, said so, and nothing left behind."""

import errno
import os
from pathlib import Path

import pytest
from samples import KEY, RETENTION, TENANT, FakeClock, handle, joined, put

from domain.errors import StorageError, StoreFull, StoreUnavailable
from storage.disk import draft
from storage.disk.store import DiskStore, Root
from storage.disk.syscalls import Files

pytestmark = pytest.mark.anyio


class FailingFiles(Files):
    """After `room` bytes writes fall short, then fail; `failing` names a call that fails with `code`."""

    def __init__(self) -> None:
        super().__init__()
        self.room = 1 << 40
        self.failing = ""
        self.code = errno.EIO

    def _maybe(self, call: str) -> None:
        if self.failing == call:
            raise OSError(self.code, "made to fail")

    def create(self, name: str, parent: int) -> int:
        self._maybe("create")
        return super().create(name, parent)

    def write(self, fd: int, data: memoryview) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "no space")
        size = super().write(fd, data[: self.room])
        self.room -= size
        return size

    def start_write_back(self, fd: int) -> None:
        self._maybe("start_write_back")
        super().start_write_back(fd)

    def sync_data(self, fd: int) -> None:
        self._maybe("sync_data")
        super().sync_data(fd)

    def sync(self, fd: int) -> None:
        self._maybe("sync")
        super().sync(fd)

    def make_dir(self, name: str, parent: int) -> None:
        self._maybe("make_dir")
        super().make_dir(name, parent)

    def rename(self, name: str, parent: int, new_name: str, new_parent: int) -> None:
        self._maybe("rename info" if name.endswith(".json") else "rename body")
        super().rename(name, parent, new_name, new_parent)


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


def open_at(root: Path, clock: FakeClock, files: Files | None = None) -> DiskStore:
    return DiskStore(Root(root, 0, files), clock=clock, retention_seconds=RETENTION)


def on_disk(root: Path) -> int:
    return sum(path.stat().st_size for path in (root / "tool_output" / TENANT).rglob("file-*"))


def left_in(root: Path) -> list[str]:
    return [path.name for path in root.rglob("*file-*")] + [path.name for path in (root / "drafts").iterdir()]


@pytest.mark.parametrize("room", [0, 3, 200, 1_100_000])
@pytest.mark.parametrize("size", [100, 3_000_000])
async def test_a_short_write_and_then_no_space_is_full(
    tmp_path: Path, clock: FakeClock, files: FailingFiles, room: int, size: int
) -> None:
    store = open_at(tmp_path, clock, files)
    files.room = room
    if room < size + 400:
        with pytest.raises(StoreFull):
            await put(store, b"x" * size, clock())
        assert left_in(tmp_path) == []
        assert await store.stored_bytes() == 0
    files.room = 1 << 40
    kept = await put(store, b"x" * size, clock())
    assert len(await joined(store.read(kept))) == size
    await store.close()


@pytest.mark.parametrize(
    ("call", "size"),
    [
        *((call, size) for call in ("create", "sync_data", "sync", "make_dir") for size in (100, 2_000_000)),
        ("start_write_back", 100),
        ("rename info", 2_000_000),
    ],
)
@pytest.mark.parametrize(
    ("code", "error"),
    [(errno.EIO, StoreUnavailable), (errno.EDQUOT, StoreFull), (errno.EROFS, StoreUnavailable)],
)
async def test_whatever_call_fails_the_draft_is_gone_and_the_next_one_works(
    tmp_path: Path,
    clock: FakeClock,
    files: FailingFiles,
    call: str,
    code: int,
    error: type[StorageError],
    size: int,
) -> None:
    store = open_at(tmp_path, clock, files)
    files.failing, files.code = call, code
    with pytest.raises(error):
        await put(store, b"x" * size, clock())
    assert left_in(tmp_path) == []
    assert await store.stored_bytes() == 0
    assert await store.count_results([KEY]) == [0]
    files.failing = ""
    await put(store, b"x" * size, clock())
    assert await store.stored_bytes() == size
    await store.close()


async def test_after_a_failed_directory_sync_the_bytes_still_count(
    tmp_path: Path, clock: FakeClock, files: FailingFiles
) -> None:
    store = open_at(tmp_path, clock, files)
    first = await put(store, b"first", clock())

    class FailOnce(FailingFiles):
        def sync(self, fd: int) -> None:
            if "/session-" in os.readlink(f"/proc/self/fd/{fd}"):
                raise OSError(errno.EIO, "made to fail")
            super().sync(fd)

    files.__class__ = FailOnce
    with pytest.raises(StoreUnavailable):
        await put(store, b"second", clock())
    files.__class__ = FailingFiles
    assert await store.stored_bytes() == on_disk(tmp_path)
    assert await store.find(TENANT, first.handle) is not None
    await store.close()


@pytest.mark.parametrize("is_stored", [False, True], ids=["new", "stored before"])
async def test_of_a_body_that_cannot_be_renamed_no_byte_counts(
    tmp_path: Path, clock: FakeClock, files: FailingFiles, is_stored: bool
) -> None:
    store, where, body = open_at(tmp_path, clock, files), handle(), b"x" * 2_000_000
    kept = await put(store, b"kept", clock())
    if is_stored:
        await put(store, body, clock(), where=where)
    files.failing = "rename body"
    with pytest.raises(StoreUnavailable):
        await put(store, body, clock(), where=where)
    files.failing = ""
    assert await store.stored_bytes() == on_disk(tmp_path)
    assert (await store.find(TENANT, where) is not None) is is_stored
    await store.sweep()
    assert await store.stored_bytes() == on_disk(tmp_path)
    assert await store.find(TENANT, kept.handle) is not None
    again = await put(store, body, clock(), where=where)
    assert await joined(store.read(again)) == body
    await store.close()


async def test_a_draft_that_cannot_be_deleted_is_closed_and_counts_no_byte(
    tmp_path: Path, clock: FakeClock, files: FailingFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(name: str, parent: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    store = open_at(tmp_path, clock, files)
    files.failing = "sync_data"
    with monkeypatch.context() as patched:
        patched.setattr(draft, "unlink", refused)
        with pytest.raises(StoreUnavailable):
            await put(store, b"x" * 2_000_000, clock())
    opened = {os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()}
    assert not [path for path in opened if path.startswith(f"{tmp_path}/drafts/")]
    assert await store.stored_bytes() == 0
    await store.close()


async def test_a_store_that_cannot_write_says_so_when_checked(
    tmp_path: Path, clock: FakeClock, files: FailingFiles
) -> None:
    store = open_at(tmp_path, clock, files)
    await store.check()
    files.room = 0
    with pytest.raises(StoreFull):
        await store.check()
    files.room = 1 << 40
    await store.check()
    await store.close()


async def test_a_disk_that_is_really_full(small_disk: Path, clock: FakeClock) -> None:
    store = open_at(small_disk / "root", clock)
    kept = await put(store, b"x" * 2_000_000, clock())
    with pytest.raises(StoreFull):
        await put(store, b"y" * 1_500_000, clock())
    assert await store.stored_bytes() == 2_000_000
    assert await joined(store.read(kept)) == b"x" * 2_000_000
    assert await store.delete(TENANT, kept.handle)
    await put(store, b"y" * 1_500_000, clock())
    await store.close()
