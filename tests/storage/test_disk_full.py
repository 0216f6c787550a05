"""A full or failing disk: refused, said so, and nothing left behind."""

import errno
from pathlib import Path

import pytest
from samples import RETENTION, FakeClock, joined, put

from domain.errors import StoreFull
from storage.disk.store import DiskStore, Root
from storage.disk.syscalls import Files

pytestmark = pytest.mark.anyio


class FailingFiles(Files):
    """After `room` bytes writes fall short, then fail."""

    room = 1 << 40

    def write(self, fd: int, data: memoryview) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "no space")
        size = super().write(fd, data[: self.room])
        self.room -= size
        return size


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


def open_at(root: Path, clock: FakeClock, files: Files | None = None) -> DiskStore:
    return DiskStore(Root(root, 0, files), clock=clock, retention_seconds=RETENTION)


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
        with pytest.raises(StoreFull) as full:
            await put(store, b"x" * size, clock())
        assert full.value.cause == f"ENOSPC, {tmp_path}"
        assert left_in(tmp_path) == []
        assert await store.stored_bytes() == 0
    files.room = 1 << 40
    kept = await put(store, b"x" * size, clock())
    assert len(await joined(store.read(kept))) == size
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
