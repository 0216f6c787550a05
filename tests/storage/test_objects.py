"""The object store beyond its contract: several processes on one bucket, listings, damage."""

import asyncio
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from domain.errors import ConfigError, ResultExpired, StoreUnavailable
from domain.handles import SessionKey
from storage.objects.bucket import THREADS, Bucket
from storage.objects.store import GRACE_SECONDS, ORPHAN_MS, READ, ObjectStore
from storage.objects.url import make_ready
from tests.conftest import StillClock
from tests.contract.samples import KEY, TENANT, handle, joined, put

if TYPE_CHECKING:
    from obstore import ObjectMeta

pytestmark = pytest.mark.anyio

RETENTION = 1600
STEP = RETENTION / 16
LARGE = bytes(range(251)) * 22_000
"""Read in two requests."""

OpenObjects = Callable[[], Awaitable[ObjectStore]]


@pytest.fixture
def clock() -> StillClock:
    """That of the bucket is the machine's."""
    return StillClock(time.time_ns() // 1_000_000)


@pytest.fixture
def bucket() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def open_store(bucket: MemoryStore, clock: StillClock) -> AsyncIterator[OpenObjects]:
    """One more process on the same bucket, at each call."""
    opened = []

    async def open_it() -> ObjectStore:
        store = ObjectStore(
            Bucket(bucket, timeout=60),
            clock=clock,
            retention_seconds=RETENTION,
            max_bytes=0,
        )
        await make_ready(store)
        # The service sweeps as it starts.
        await store.sweep()
        opened.append(store)
        return store

    yield open_it
    for store in opened:
        await store.close()


def paths(bucket: MemoryStore | LocalStore) -> list[str]:
    return [
        path for one in obstore.list(bucket).collect() if (path := one["path"]) not in ("probe", "schema")
    ]


async def test_retries_of_one_call_at_several_processes_are_one_result(
    open_store: OpenObjects, bucket: MemoryStore, clock: StillClock
) -> None:
    stores, where = [await open_store() for _ in range(3)], handle()
    await asyncio.gather(*[put(store, LARGE, clock(), where=where) for store in stores * 5])
    found = await stores[0].find(TENANT, where)
    assert found is not None
    assert await joined(stores[1].read(found)) == LARGE
    assert len([path for path in paths(bucket) if path.endswith(".json")]) == 1
    assert len(paths(bucket)) == 1 + 1, "the bodies of those that lost the race are deleted"
    assert sum([await store.stored_bytes() for store in stores]) == len(LARGE)


async def test_what_one_process_deletes_no_other_finds_or_restores(
    open_store: OpenObjects, bucket: MemoryStore, clock: StillClock
) -> None:
    one, other = await open_store(), await open_store()
    kept = await put(one, b"body", clock())
    found = await other.find(TENANT, kept.handle)
    assert found is not None
    assert await one.delete(TENANT, kept.handle)
    clock.pass_seconds(STEP)
    assert await other.touch(found) == found
    assert await other.find(TENANT, kept.handle) is None
    assert paths(bucket) == []


async def test_an_expired_result_is_published_again_by_a_retry(
    open_store: OpenObjects, bucket: MemoryStore, clock: StillClock
) -> None:
    store, where = await open_store(), handle()
    await put(store, b"body", clock(), where=where)
    clock.pass_seconds(RETENTION)
    await put(store, b"body", clock(), where=where)
    found = await store.find(TENANT, where)
    assert found is not None
    assert await joined(store.read(found)) == b"body"
    assert (await store.stored_bytes(), len(paths(bucket))) == (4, 2)


async def test_what_a_killed_writer_left_is_deleted_after_an_hour_and_nothing_else(
    open_store: OpenObjects, bucket: MemoryStore, clock: StillClock
) -> None:
    store = await open_store()
    # It was killed between the body and the info.
    left = [f"tool_output/{TENANT}/{handle()}.{'0' * 32}" for _ in range(3)]
    for path in left:
        obstore.put(bucket, path, b"body")
    clock.pass_seconds(ORPHAN_MS / 1000 - 60)
    young = [await put(store, LARGE, clock()), await put(store, b"", clock())]
    assert await store.sweep() == 0
    assert set(left) < set(paths(bucket))
    clock.pass_seconds(120)
    assert await store.sweep() == 0
    assert set(left).isdisjoint(paths(bucket))
    for kept, body in zip(young, (LARGE, b""), strict=True):
        assert await joined((await open_store()).read(kept)) == body
    assert await store.stored_bytes() == len(LARGE)


async def test_a_listing_counts_what_other_processes_wrote_and_deleted(
    open_store: OpenObjects, clock: StillClock
) -> None:
    one, other = await open_store(), await open_store()
    kept = await put(one, LARGE, clock())
    await put(one, b"body", clock())
    async with other.draft(TENANT) as draft:
        await draft.write(b"draft")
        await other.sweep()
        assert await other.stored_bytes() == 5, "it listed the bucket a moment ago"
        clock.pass_seconds(STEP)
        await other.sweep()
        assert await other.stored_bytes() == len(LARGE) + 4 + 5
    await one.delete(TENANT, kept.handle)
    clock.pass_seconds(STEP)
    await other.sweep()
    assert await other.stored_bytes() == 4
    assert await (await open_store()).stored_bytes() == 4


async def test_a_use_is_written_down_once_in_a_sixteenth_of_the_retention(
    open_store: OpenObjects, bucket: MemoryStore, clock: StillClock
) -> None:
    store = await open_store()
    kept = await put(store, b"body", clock())
    info = next(path for path in paths(bucket) if path.endswith(".json"))
    expires, written = [], set()
    for _ in range(9):
        found = await store.find(TENANT, kept.handle)
        assert found is not None
        expires.append((await store.touch(found)).expires_at - kept.stored_at)
        # What another reader knows of it is older.
        await store.touch(kept)
        written.add(obstore.head(bucket, info)["e_tag"])
        clock.pass_seconds(STEP / 4)
    assert [one / 1000 for one in expires] == [RETENTION + STEP * n for n in (0, 0, 0, 0, 1, 1, 1, 1, 2)]
    assert len(written) == 3


async def test_a_deleted_large_body_stays_a_minute_for_its_readers(
    open_store: OpenObjects, bucket: MemoryStore, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await open_store(), await open_store()
    kept = await put(one, LARGE, clock())
    chunks = other.read(kept)
    begun = await anext(chunks)
    assert await one.delete_session(KEY, 1) == 1
    assert begun + await joined(chunks) == LARGE
    with pytest.raises(ResultExpired):
        await joined(other.read(kept))
    assert len(paths(bucket)) == 1
    later = time.monotonic() + GRACE_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    await one.sweep()
    assert paths(bucket) == []


async def test_damage_is_named_once_and_hides_its_result_alone(
    open_store: OpenObjects, bucket: MemoryStore, clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store()
    changed, cut, lost, whole = [await put(store, LARGE, clock()) for _ in range(4)]
    of = {one: [path for path in paths(bucket) if one.handle.file_id in path] for one in (changed, cut, lost)}
    body, info = sorted(of[changed])
    assert info.endswith(".json")
    obstore.put(bucket, body, LARGE[: READ + 9])
    obstore.put(bucket, next(path for path in of[cut] if path.endswith(".json")), b'{"crc32":"00')
    obstore.delete(bucket, [path for path in of[lost] if not path.endswith(".json")])
    fresh = await open_store()
    assert [await fresh.find(TENANT, one.handle) is None for one in (changed, cut, lost, whole)] == [
        False,
        True,
        False,
        False,
    ]
    for one in (changed, changed, lost):
        with pytest.raises(ResultExpired):
            await joined(fresh.read(one))
    assert await joined(fresh.read(whole)) == LARGE
    named = [record.getMessage() for record in caplog.records if "is damaged" in record.getMessage()]
    assert len(named) == 2
    assert await fresh.delete_session(KEY, 1) == 3
    assert not [path for path in paths(bucket) if path.startswith("tool_output/") and path.endswith(".json")]


class SlowBucket(Bucket):
    """Its writes begin, and wait until `gate` is set."""

    gate = threading.Event()
    begun = 0

    def put(self, path: str, data: bytes | IO[bytes]) -> None:
        self.begun += 1
        self.gate.wait()
        super().put(path, data)


@pytest.mark.parametrize("body", [b"body", LARGE], ids=["in memory", "in a file"])
async def test_what_a_silent_store_made_the_caller_lose_is_neither_queued_nor_stored_later(
    bucket: MemoryStore, clock: StillClock, body: bytes
) -> None:
    slow = SlowBucket(bucket, timeout=0.2)
    slow.gate = threading.Event()
    store = ObjectStore(slow, clock=clock, retention_seconds=RETENTION, max_bytes=0)
    answers = await asyncio.gather(
        *[put(store, body, clock()) for _ in range(THREADS + 4)], return_exceptions=True
    )
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert slow.begun == THREADS
    assert await store.stored_bytes() <= THREADS * len(body), "what has no thread is dropped at once"
    slow.gate.set()
    await store.close()
    assert slow.begun == THREADS, "no other job was waiting for a thread"
    assert paths(bucket) == []
    assert await store.stored_bytes() == 0


async def test_a_sweep_leaves_what_a_retry_publishes_over_an_expired_result(
    open_store: OpenObjects, bucket: MemoryStore, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeper, other, where = await open_store(), await open_store(), handle()
    await put(other, b"body", clock(), where=where)
    clock.pass_seconds(RETENTION)
    assert await other.find(TENANT, where) is None
    get, loop = sweeper.bucket.get, asyncio.get_running_loop()
    retried = []

    def get_then_retry(path: str) -> object:
        found = get(path)
        if path.endswith(".json") and not retried:
            retry = asyncio.run_coroutine_threadsafe(put(other, b"body", clock(), where=where), loop)
            retried.append(retry.result(timeout=60))
        return found

    monkeypatch.setattr(sweeper.bucket, "get", get_then_retry)
    assert await sweeper.sweep() == 0
    assert len(retried) == 1
    found = await other.find(TENANT, where)
    assert found is not None
    assert await joined(other.read(found)) == b"body"
    clock.pass_seconds(RETENTION + STEP)
    assert await sweeper.sweep() == 1
    assert paths(bucket) == []


@pytest.mark.parametrize("body", [b"body", LARGE], ids=["in memory", "in a file"])
async def test_a_retry_replaces_a_result_whose_body_was_lost(
    open_store: OpenObjects, bucket: MemoryStore, clock: StillClock, body: bytes
) -> None:
    store, where = await open_store(), handle()
    await put(store, body, clock(), where=where)
    lost = [path for path in paths(bucket) if path.startswith("tool_output/") and not path.endswith(".json")]
    obstore.delete(bucket, lost)
    kept = await put(store, body, clock(), where=where)
    fresh = await open_store()
    assert await joined(fresh.read(kept)) == body
    assert await store.stored_bytes() == await fresh.stored_bytes() == len(body)


async def test_a_start_lists_nothing_and_the_first_sweep_counts(
    open_store: OpenObjects, bucket: MemoryStore, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(await open_store(), LARGE, clock())
    listed = []
    pages = Bucket.pages

    def noted(self: Bucket, folder: str) -> AsyncIterator[Sequence["ObjectMeta"]]:
        listed.append(folder)
        return pages(self, folder)

    monkeypatch.setattr(Bucket, "pages", noted)
    store = ObjectStore(Bucket(bucket, timeout=60), clock=clock, retention_seconds=RETENTION, max_bytes=0)
    await make_ready(store)
    assert (listed, await store.stored_bytes()) == ([], 0)
    await store.sweep()
    assert (listed, await store.stored_bytes()) == (["tool_output"], len(LARGE))
    await store.close()


async def test_without_a_folder_for_temporary_files_the_start_is_refused(
    bucket: MemoryStore, clock: StillClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    store = ObjectStore(Bucket(bucket, timeout=60), clock=clock, retention_seconds=RETENTION, max_bytes=0)
    with pytest.raises(ConfigError, match="no folder that takes one"):
        await make_ready(store)
    with pytest.raises(StoreUnavailable, match="TMPDIR"):
        await put(store, LARGE, clock())
    assert (await store.stored_bytes(), paths(bucket)) == (0, [])
    await store.close()


async def test_deleting_what_is_partly_gone_deletes_the_rest(tmp_path: Path) -> None:
    client = LocalStore(tmp_path)
    local = Bucket(client, timeout=60)
    for name in "bd":
        local.put(name, b"x")
    local.delete(["a", "b", "c", "d"])
    assert paths(client) == []
    await local.close()


async def test_objects_of_others_below_the_prefix_are_left_alone(
    open_store: OpenObjects, bucket: MemoryStore, clock: StillClock
) -> None:
    others = [
        "tool_output/readme",
        "tool_output/acme/session-x/notes.json",
        f"tool_output/{handle()}.json",
        f"tool_output/acme/{handle('x')}.txt",
    ]
    for path in others:
        obstore.put(bucket, path, b"theirs")
    store = await open_store()
    clock.pass_seconds(2 * ORPHAN_MS / 1000)
    assert await store.sweep() == 0
    assert await store.count_results([KEY, SessionKey("acme", "x")]) == [0, 0]
    assert await store.delete_session(SessionKey("acme", "x"), 1) == 0
    assert sorted(paths(bucket)) == sorted(others)


@pytest.mark.parametrize(
    ("schema", "refused"),
    [
        (b'{"number":9,"written_by":"9.0.0"}', r"The bucket was written by Spillgate 9.0.0 \(schema 9\)"),
        (b"{", "is damaged"),
        (b'{"number":2,"written_by":"9.0.0"}', None),
    ],
)
async def test_a_bucket_of_another_schema_is_refused_and_left_alone(
    open_store: OpenObjects, bucket: MemoryStore, schema: bytes, refused: str | None
) -> None:
    obstore.put(bucket, "schema", schema)
    if refused is None:
        await open_store()
    else:
        with pytest.raises(ConfigError, match=refused):
            await open_store()
    assert bytes(obstore.get(bucket, "schema").bytes()) == schema
    assert paths(bucket) == []
