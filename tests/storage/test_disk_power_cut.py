"""What was answered as kept is there, whole, whenever the power goes; and the check would see it if not."""

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from power_cut import RecordingFiles, disks, survive
from samples import KEY, RETENTION, TENANT, FakeClock, handle, put

from domain.handles import Handle
from storage.disk import draft
from storage.disk.layout import body_name, info_name
from storage.disk.store import DiskStore, Root

pytestmark = pytest.mark.anyio
SMALL, LARGE = b"body", b"0123456789" * 200


@pytest.fixture(autouse=True)
def large_is_spilled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "SPILL", 1000)


class NoBodySync(RecordingFiles):
    def sync_data(self, fd: int) -> None:
        pass


class NoInfoSync(RecordingFiles):
    def sync(self, fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".json"):
            return
        super().sync(fd)


class NoInfoTimes(RecordingFiles):
    def sync(self, fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".json"):
            return self.sync_data(fd)
        super().sync(fd)


def without_directory(start: str) -> type[RecordingFiles]:
    class NoDirectorySync(RecordingFiles):
        def sync(self, fd: int) -> None:
            if not os.readlink(f"/proc/self/fd/{fd}").rpartition("/")[2].startswith(start):
                super().sync(fd)

    return NoDirectorySync


class SyncTooLate(RecordingFiles):
    """The body is synced, but after the names say that it is there."""

    def __init__(self) -> None:
        super().__init__()
        # Drafts are published in several threads.
        self.late: SimpleQueue[int] = SimpleQueue()

    def sync_data(self, fd: int) -> None:
        self.late.put(os.dup(fd))

    def sync(self, fd: int) -> None:
        super().sync(fd)
        if "/session-" in os.readlink(f"/proc/self/fd/{fd}"):
            with suppress(Empty):
                while True:
                    one = self.late.get_nowait()
                    super().sync_data(one)
                    os.close(one)


async def record(files: RecordingFiles, root: Path, clock: FakeClock) -> dict[str, bytes]:
    """Publishes some results alone, one of them twice, and some together; answers the body of each."""
    store = DiskStore(Root(root, 0, files), clock=clock, retention_seconds=RETENTION)

    async def keep(where: Handle, body: bytes) -> None:
        await put(store, body, clock(), where=where)
        files.answered(str(where))

    alone = [(handle(), SMALL), (handle(), LARGE), (handle("run-2"), SMALL)]
    for where, body in [*alone, alone[0]]:
        await keep(where, body)
    together = [
        (handle(), b"one"),
        (handle("run-2"), b"two"),
        (handle("run-3"), b"three"),
        (handle(), b"four"),
    ]
    await asyncio.gather(*(keep(*one) for one in [*together, together[0], alone[0]]))
    await store.close()
    return {str(where): body for where, body in [*alone, *together]}


def losses(
    files: RecordingFiles, root: Path, bodies: dict[str, bytes], scratch: Path
) -> Iterator[tuple[int, str, str]]:
    """What a reader would miss, or find torn, after a power cut at each point."""
    inode = root.stat().st_ino
    used_at = FakeClock()() * 1_000_000
    for point, (disk, answered) in enumerate(disks(files.done, inode)):
        for attempt, luck in enumerate(("none", "blank", "mixed", "mixed")):
            path = scratch / f"{point}-{attempt}"
            path.mkdir(parents=True)
            survive(disk, inode, path, luck, used_at, random.Random(path.name))
            for loss in missing_or_torn(path, answered, bodies):
                yield point, luck, loss


def missing_or_torn(path: Path, answered: list[str], bodies: dict[str, bytes]) -> list[str]:
    root = Root(path, 0)
    try:
        lost = list[str]()
        found, size = set[str](), 0
        for name, body in bodies.items():
            session, _, file = name.partition("/")
            where = Handle(session.removeprefix("session-"), file.removeprefix("file-"))
            seen = root.published.find(TENANT, where)
            if (seen is None or seen[1] == 0) and name in answered:
                lost.append(f"{name} is missing")
            if seen is not None:
                found.update(
                    (f"{where.session_id}/{body_name(where)}", f"{where.session_id}/{info_name(where)}")
                )
                size += len(body)
                if seen[1] and (path / "tool_output" / TENANT / name).read_bytes() != body:
                    lost.append(f"{name} is torn")
        lost += [f"{name} is left over" for name in files_in(path) - found]
        return lost if root.published.quota.used == size else [*lost, "the bytes are miscounted"]
    finally:
        root.close()


def files_in(path: Path) -> set[str]:
    found = (path / "tool_output").rglob("*file-*")
    return {f"{one.parent.name.removeprefix('session-')}/{one.name}" for one in found}


async def test_no_power_cut_loses_or_tears_what_was_answered(tmp_path: Path, clock: FakeClock) -> None:
    files = RecordingFiles()
    bodies = await record(files, tmp_path / "root", clock)
    assert list(losses(files, tmp_path / "root", bodies, tmp_path / "after")) == []
    assert sum(what == "write" for what, *_ in files.done) >= 8


@pytest.mark.parametrize(
    "broken",
    [
        NoBodySync,
        NoInfoSync,
        NoInfoTimes,
        SyncTooLate,
        without_directory(f"session-{KEY.session_id}"),
        without_directory(TENANT),
        without_directory("tool_output"),
        without_directory("root"),
    ],
    ids=["body", "info", "info times", "late", "session", "tenant", "tool_output", "root"],
)
async def test_the_check_sees_a_sync_that_is_left_out(
    broken: type[RecordingFiles], tmp_path: Path, clock: FakeClock
) -> None:
    files = broken()
    bodies = await record(files, tmp_path / "root", clock)
    assert next(losses(files, tmp_path / "root", bodies, tmp_path / "after"), None) is not None
