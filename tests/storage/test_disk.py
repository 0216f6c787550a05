"""The disk store's tree: what a person finds there, and what an ill-meaning one can do to it."""

import errno
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from samples import KEY, RETENTION, TENANT, FakeClock, handle, joined, put, stored_result

from domain.errors import ConfigError, InvalidField, ResultExpired, StoreUnavailable
from domain.handles import Handle, SessionKey
from domain.ports import ResultStore
from storage import open_store

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "root"


async def open_at(root: Path, clock: FakeClock) -> ResultStore:
    return await open_store(f"disk://{root}", clock=clock, retention_seconds=RETENTION, max_bytes=0)


@pytest.fixture
async def store(root: Path, clock: FakeClock) -> AsyncIterator[ResultStore]:
    store = await open_at(root, clock)
    yield store
    await store.close()


def body_path(root: Path, where: Handle) -> Path:
    return root / "tool_output" / TENANT / str(where)


def info_path(root: Path, where: Handle) -> Path:
    path = body_path(root, where)
    return path.with_name(f".{path.name}.json")


@pytest.mark.parametrize("size", [10, 1_200_000])
async def test_nobody_else_may_read_whatever_the_umask(
    umask: None, tmp_path: Path, clock: FakeClock, size: int
) -> None:
    root = tmp_path / "new" / "root"
    store = await open_at(root, clock)
    await put(store, b"x" * size, clock())
    await store.check()
    await store.close()
    found = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*")}
    assert len([path for path in found if path.is_file()]) == 4
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}


async def test_a_sweep_removes_directories_that_are_empty(
    store: ResultStore, root: Path, clock: FakeClock
) -> None:
    kept = await put(store, b"body", clock())
    await put(store, b"body", clock(), tenant="other")
    await store.delete(TENANT, kept.handle)
    await store.sweep()
    assert [path.name for path in (root / "tool_output").iterdir()] == ["other"]
    again = await put(store, b"body", clock())
    assert await store.find(TENANT, again.handle) is not None


async def test_what_a_crash_left_behind_is_cleared_away_at_the_next_start(
    root: Path, clock: FakeClock
) -> None:
    store = await open_at(root, clock)
    whole, no_info, no_body = [await put(store, b"body", clock()) for _ in range(3)]
    await store.close()
    info_path(root, no_info.handle).unlink()
    body_path(root, no_body.handle).unlink()
    (root / "drafts" / "draft-0").write_bytes(b"stray")
    notes = body_path(root, whole.handle).with_name("notes.txt")
    notes.write_text("by hand")
    store = await open_at(root, clock)
    assert await store.count_results([KEY]) == [1]
    assert await store.stored_bytes() == 4
    assert not body_path(root, no_info.handle).exists()
    assert not info_path(root, no_body.handle).exists()
    assert list((root / "drafts").iterdir()) == []
    assert notes.exists()
    await store.close()


async def test_a_body_removed_by_hand_is_gone(store: ResultStore, root: Path, clock: FakeClock) -> None:
    kept = await put(store, b"body", clock())
    body_path(root, kept.handle).unlink()
    assert await store.find(TENANT, kept.handle) is None
    with pytest.raises(ResultExpired):
        await joined(store.read(kept))


async def test_a_link_is_never_followed(
    store: ResultStore, root: Path, tmp_path: Path, clock: FakeClock
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"1234")
    kept = await put(store, b"body", clock())
    body_path(root, kept.handle).unlink()
    body_path(root, kept.handle).symlink_to(secret)
    assert await store.find(TENANT, kept.handle) is None
    with pytest.raises(ResultExpired):
        await joined(store.read(kept))
    info = await put(store, b"body", clock())
    info_path(root, info.handle).rename(tmp_path / "info.json")
    info_path(root, info.handle).symlink_to(tmp_path / "info.json")
    assert await store.find(TENANT, info.handle) is None
    await store.sweep()
    assert secret.read_bytes() == b"1234"


async def test_a_link_in_place_of_a_session_is_neither_read_nor_filled_nor_emptied(
    store: ResultStore, root: Path, tmp_path: Path, clock: FakeClock
) -> None:
    kept = await put(store, b"body", clock())
    session = body_path(root, kept.handle).parent
    session.rename(tmp_path / "elsewhere")
    session.symlink_to(tmp_path / "elsewhere")
    assert await store.find(TENANT, kept.handle) is None
    assert await store.delete_session(KEY, 1) == 0
    clock.advance(RETENTION)
    assert await store.sweep() == 0
    with pytest.raises(StoreUnavailable):
        await put(store, b"body", clock())
    assert len(list((tmp_path / "elsewhere").iterdir())) == 2
    assert await store.stored_bytes() == 4


async def test_a_pipe_in_place_of_a_file_blocks_nobody(
    store: ResultStore, root: Path, clock: FakeClock
) -> None:
    kept = await put(store, b"body", clock())
    for path in (body_path(root, kept.handle), info_path(root, kept.handle)):
        path.unlink()
        os.mkfifo(path)
        assert await store.find(TENANT, kept.handle) is None
    with pytest.raises(ResultExpired):
        await joined(store.read(kept))


@pytest.mark.parametrize(
    ("tenant", "where"),
    [
        ("..", handle()),
        ("a/b", handle()),
        ("", handle()),
        (TENANT, Handle("../x", handle().file_id)),
        (TENANT, Handle("run-1", "../../etc/passwd")),
        (TENANT, Handle("run-1\n", handle().file_id)),
    ],
)
async def test_names_that_are_not_safe_reach_no_path(
    store: ResultStore, root: Path, clock: FakeClock, tenant: str, where: Handle
) -> None:
    assert await store.find(tenant, where) is None
    assert await store.delete(tenant, where) is False
    assert await store.delete_session(SessionKey(tenant, where.session_id), 1) == 0
    with pytest.raises(InvalidField):
        await put(store, b"body", clock(), tenant=tenant, where=where)
    assert await store.stored_bytes() == 0
    assert list((root / "drafts").iterdir()) == []


async def test_text_that_is_not_unicode_is_refused(store: ResultStore, root: Path, clock: FakeClock) -> None:
    async def publish() -> None:
        async with store.draft(TENANT) as draft:
            await draft.write(b"body")
            await draft.publish(replace(stored_result(b"body", clock()), tool_arguments="\ud800"))

    with pytest.raises(InvalidField):
        await publish()
    assert await store.stored_bytes() == 0
    assert list((root / "drafts").iterdir()) == []


async def test_a_reader_left_open_does_not_hinder_closing(root: Path, clock: FakeClock) -> None:
    store = await open_at(root, clock)
    kept = await put(store, b"x" * 2_000_000, clock())
    chunks = store.read(kept)
    await anext(chunks)
    await store.close()
    await chunks.aclose()  # type: ignore[attr-defined]


async def test_a_place_that_cannot_be_used_is_named(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file/root cannot be used"):
        await open_at(tmp_path / "file" / "root", clock)


async def test_a_store_whose_root_went_away_says_that_it_is_unavailable(
    store: ResultStore, root: Path, clock: FakeClock
) -> None:
    (root / "drafts").rmdir()
    with pytest.raises(StoreUnavailable):
        await store.check()
    with pytest.raises(StoreUnavailable):
        await put(store, b"x" * 1_200_000, clock())
    assert await store.stored_bytes() == 0


async def test_a_file_that_cannot_be_deleted_does_not_stop_the_deletion_of_its_tenant(
    store: ResultStore, root: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [await put(store, b"x", clock(), where=handle(f"run-{n}")) for n in range(8)]
    first = next((root / "tool_output" / TENANT).iterdir()).name
    stays = next(one for one in kept if str(one.handle).startswith(first))
    unlink = os.unlink

    def refused(path: str, *, dir_fd: int | None = None) -> None:
        if stays.handle.file_id in path:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        unlink(path, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refused)
        with pytest.raises(StoreUnavailable):
            await store.delete_tenant(TENANT)
    assert [one for one in kept if await store.find(TENANT, one.handle)] == [stays]
    assert await store.delete_tenant(TENANT) == 1
    assert await store.stored_bytes() == 0


async def test_a_step_of_deleting_a_tenant_is_bounded_and_what_arrives_between_steps_is_deleted_too(
    store: ResultStore, root: Path, clock: FakeClock
) -> None:
    one = await put(store, b"x", clock())
    body, info = body_path(root, one.handle), info_path(root, one.handle)
    for _ in range(449):
        name = handle().file_id
        for path in (body, info):
            os.link(path, path.with_name(path.name.replace(one.handle.file_id, name)))
    steps = [await store.delete_tenant(TENANT)]
    await put(store, b"late", clock())
    while steps[-1]:
        steps.append(await store.delete_tenant(TENANT))
    assert max(steps) <= 100
    assert sum(steps) == 451
    assert not body.parent.exists()
