"""Bodies that are published at the same time: their order on the disk, and that none harms another."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from power_cut import RecordingFiles
from samples import KEY, RETENTION, TENANT, FakeClock, handle, joined, put

from domain.errors import StoreFull
from domain.handles import Handle
from domain.results import StoredResult
from storage.disk.draft import SPILL
from storage.disk.store import DiskStore, Root

pytestmark = pytest.mark.anyio
BODY = b"body"


class HeldFiles(RecordingFiles):
    """Syncs in place wait until `let_go`, of `body` or `.json`, as `holds` says. The body `bad` does not
    fit on the disk."""

    holds = "body"

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()
        self.let_go.set()
        self.is_held = threading.Event()
        self.removes: Path | None = None

    def create(self, name: str, parent: int) -> int:
        if self.removes is not None:
            self.removes.rmdir()
            self.removes = None
        return super().create(name, parent)

    def write(self, fd: int, data: memoryview) -> int:
        if bytes(data) == b"bad":
            super().write(fd, data[:1])
            raise OSError(errno.ENOSPC, "no space")
        return super().write(fd, data)

    def sync_data(self, fd: int) -> None:
        if self.holds == "body" and "/session-" in os.readlink(f"/proc/self/fd/{fd}"):
            self._hold()
        super().sync_data(fd)

    def sync(self, fd: int) -> None:
        name = os.readlink(f"/proc/self/fd/{fd}")
        if self.holds == ".json" and "/session-" in name and name.endswith(".json"):
            self._hold()
        super().sync(fd)

    def _hold(self) -> None:
        self.is_held.set()
        assert self.let_go.wait(20)


@pytest.fixture
def files() -> HeldFiles:
    return HeldFiles()


@pytest.fixture
async def store(tmp_path: Path, files: HeldFiles, clock: FakeClock) -> AsyncIterator[DiskStore]:
    store = DiskStore(Root(tmp_path, 0, files), clock=clock, retention_seconds=RETENTION)
    yield store
    files.let_go.set()
    await store.close()


async def held(
    store: DiskStore, files: HeldFiles, clock: FakeClock, where: Handle
) -> asyncio.Task[StoredResult]:
    """A result whose body, or info, is written and not synced."""
    files.let_go.clear()
    files.is_held.clear()
    files.done.clear()
    task = asyncio.create_task(put(store, BODY, clock(), where=where))
    assert await asyncio.to_thread(files.is_held.wait, 20)
    return task


async def waits_for_its_name(store: DiskStore, files: HeldFiles) -> None:
    """Returns when a draft waits for the name of a body that is being written, or has taken it."""
    waiting = vars(vars(store)["_published"])["_names"]
    async with asyncio.timeout(20):
        while not waiting._waiters and not any(done[0] == "rename" for done in files.done):
            await asyncio.sleep(0.001)


def left(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "tool_output").rglob("*file-*"))


@pytest.mark.parametrize("holds", ["body", ".json"])
async def test_what_is_being_written_is_not_found_not_swept_not_deleted_and_not_ended(
    store: DiskStore, files: HeldFiles, tmp_path: Path, clock: FakeClock, holds: str
) -> None:
    where = handle()
    files.holds = holds
    task = await held(store, files, clock, where)
    assert await store.find(TENANT, where) is None
    assert await store.sweep() == 0
    assert not await store.delete(TENANT, where)
    assert await store.delete_session(KEY, 1) == 0
    files.let_go.set()
    kept = await task
    assert await joined(store.read(kept)) == BODY
    assert await store.find(TENANT, where) is not None
    assert len(left(tmp_path)) == 2
    assert await store.delete(TENANT, where)
    assert await store.stored_bytes() == 0


async def test_what_was_stored_before_is_found_while_it_is_sent_again_with_others(
    store: DiskStore, files: HeldFiles, clock: FakeClock
) -> None:
    kept = await put(store, BODY, clock())
    again = asyncio.create_task(put(store, BODY, clock(), where=kept.handle))
    task = await held(store, files, clock, handle())
    assert await store.find(TENANT, kept.handle) is not None
    assert await store.delete(TENANT, kept.handle)
    files.let_go.set()
    await asyncio.gather(again, task)
    assert await store.stored_bytes() == 2 * len(BODY)


@pytest.mark.parametrize("size", [9, SPILL], ids=["small", "spilled"])
async def test_another_body_of_the_same_handle_replaces_it_and_counts_once(
    store: DiskStore, files: HeldFiles, clock: FakeClock, size: int
) -> None:
    where = handle()
    first = await held(store, files, clock, where)
    second = asyncio.create_task(put(store, b"x" * size, clock(), where=where))
    if size >= SPILL:
        await waits_for_its_name(store, files)
    files.let_go.set()
    await first
    kept = await second
    assert await joined(store.read(kept)) == b"x" * size
    assert await store.stored_bytes() == size


async def test_a_body_that_does_not_fit_takes_no_other_down(
    store: DiskStore, tmp_path: Path, clock: FakeClock
) -> None:
    outcomes = await asyncio.gather(
        *(put(store, body, clock()) for body in (b"one", b"bad", b"two")), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StoredResult, StoreFull, StoredResult]
    assert await store.stored_bytes() == 6
    assert len(left(tmp_path)) == 4
    for outcome, body in zip(outcomes, (b"one", b"bad", b"two"), strict=True):
        if isinstance(outcome, StoredResult):
            assert await joined(store.read(outcome)) == body


@pytest.mark.parametrize("exists", [False, True])
async def test_the_bytes_of_a_cancelled_caller_count_as_what_is_on_the_disk(
    store: DiskStore, files: HeldFiles, tmp_path: Path, clock: FakeClock, exists: bool
) -> None:
    where = handle()
    if exists:
        await put(store, BODY, clock(), where=where)
        other = await held(store, files, clock, handle())
        task = asyncio.create_task(put(store, BODY, clock(), where=where))
        await asyncio.sleep(0)
    else:
        task = other = await held(store, files, clock, where)
    task.cancel()
    await asyncio.sleep(0)
    files.let_go.set()
    await asyncio.wait((task, other))
    await put(store, BODY, clock())
    on_disk = sum(path.stat().st_size for path in (tmp_path / "tool_output").rglob("file-*"))
    assert await store.stored_bytes() == on_disk


async def test_a_directory_that_a_sweep_deletes_after_it_was_opened_is_made_again(
    store: DiskStore, files: HeldFiles, tmp_path: Path, clock: FakeClock
) -> None:
    kept = await put(store, BODY, clock())
    directory = (tmp_path / "tool_output" / TENANT / str(kept.handle)).parent
    for path in directory.iterdir():
        path.unlink()
    files.removes = directory
    again = await put(store, BODY, clock())
    assert await joined(store.read(again)) == BODY


@pytest.mark.parametrize(
    ("written", "is_deleted"),
    [
        (lambda info: b"", True),
        (lambda info: info[: len(info) // 2], True),
        (lambda info: bytes(len(info)), True),
        (lambda info: info, False),
    ],
    ids=["empty", "half", "blank", "whole"],
)
async def test_the_next_start_deletes_what_a_power_cut_left_incomplete(
    tmp_path: Path, clock: FakeClock, written: object, is_deleted: bool
) -> None:
    store = DiskStore(Root(tmp_path, 0), clock=clock, retention_seconds=RETENTION)
    kept = await put(store, BODY, clock())
    await store.close()
    body = tmp_path / "tool_output" / TENANT / str(kept.handle)
    info = body.with_name(f".{body.name}.json")
    times = os.stat(info)
    assert callable(written)
    info.write_bytes(written(info.read_bytes()))
    os.utime(info, ns=(times.st_atime_ns, times.st_mtime_ns))
    store = DiskStore(Root(tmp_path, 0), clock=clock, retention_seconds=RETENTION)
    assert left(tmp_path) == ([] if is_deleted else [info.name, body.name])
    assert await store.stored_bytes() == (0 if is_deleted else len(BODY))
    await store.close()


async def test_an_unexpected_error_leaves_nothing_of_its_batch(
    store: DiskStore, files: HeldFiles, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(files, "sync", broken)
        outcomes = await asyncio.gather(
            *(put(store, body, clock()) for body in (b"one", b"bad", b"two")), return_exceptions=True
        )
    assert {type(outcome) for outcome in outcomes} == {ZeroDivisionError}
    assert (await store.stored_bytes(), left(tmp_path)) == (0, [])
