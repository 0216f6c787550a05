"""What every ResultStore keeps to."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import KEY, RETENTION, TENANT, FakeClock, OpenStore, handle, joined, put, stored_result

from domain.errors import ResultExpired, StoreFull, TenantFull
from domain.handles import SessionKey
from domain.ports import ResultStore
from domain.results import Durability, StoredResult
from tests.counts import count

pytestmark = pytest.mark.anyio
Held = Callable[[int], int]
RACES = count(10, 30)
SIZES = (10, 2_500_000)
"""Bytes of a draft that is one segment, and of one that is several."""


async def test_what_is_published_is_found_and_read_back(store: ResultStore, clock: FakeClock) -> None:
    kept = await put(store, b"first\nsecond", clock())
    found = await store.find(TENANT, kept.handle)
    assert found is not None
    assert found.expires_at == clock() + RETENTION * 1000
    assert (found.handle, found.tool_arguments, found.measure) == (
        kept.handle,
        kept.tool_arguments,
        kept.measure,
    )
    assert await joined(store.read(found)) == b"first\nsecond"
    assert await store.count_results([KEY]) == [1]


async def test_publishing_says_how_durable_it_is_and_an_empty_body_is_a_body(
    store: ResultStore, clock: FakeClock, durability: Durability
) -> None:
    body = b"x" * 1_500_000
    for size in (0, 10, len(body)):
        async with store.draft(TENANT) as draft:
            await draft.write(body[:size])
            stored = stored_result(body[:size], clock())
            assert await draft.publish(stored) is durability
        assert await store.find(TENANT, stored.handle) is not None
        assert await joined(store.read(stored)) == body[:size]
    assert await joined(store.read(await put(store, b"", clock()))) == b""


async def test_unknown_is_not_found(store: ResultStore, clock: FakeClock) -> None:
    assert await store.find(TENANT, handle()) is None
    assert await store.delete(TENANT, handle()) is False
    assert await store.delete_session(KEY, 1) == 0
    assert await store.count_results([KEY]) == [0]
    with pytest.raises(ResultExpired):
        await joined(store.read(stored_result(b"", clock())))


async def test_half_written_is_absent(store: ResultStore, clock: FakeClock) -> None:
    stored = stored_result(b"whole", clock())
    async with store.draft(TENANT) as draft:
        await draft.write(b"who" * 100_000)
        assert await store.find(TENANT, stored.handle) is None
        assert await store.count_results([KEY]) == [0]
        # A part may wait in memory, outside of the store.
        assert 200_000 < await store.stored_bytes() <= 300_000
    assert await store.find(TENANT, stored.handle) is None
    assert await store.stored_bytes() == 0


async def test_a_draft_that_fails_leaves_nothing_behind(store: ResultStore) -> None:
    async def fail(size: int) -> None:
        async with store.draft(TENANT) as draft:
            await draft.write(b"x" * size)
            raise RuntimeError

    for size in SIZES:
        with pytest.raises(RuntimeError):
            await fail(size)
        assert await store.stored_bytes() == 0


async def test_a_draft_whose_writer_is_cancelled_leaves_nothing_behind(store: ResultStore) -> None:
    async def write(size: int, has_begun: asyncio.Event) -> None:
        async with store.draft(TENANT) as draft:
            await draft.write(b"x" * size)
            has_begun.set()
            for _ in range(1000):
                await draft.write(b"y")
                await asyncio.sleep(0.001)

    for size in SIZES:
        task = asyncio.create_task(write(size, has_begun := asyncio.Event()))
        await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.stored_bytes() == 0


async def test_cancelled_while_publishing_it_is_there_whole_or_not_at_all(
    store: ResultStore, clock: FakeClock, held: Held
) -> None:
    body = b"z" * 1_500_000

    async def publish(stored: StoredResult) -> None:
        async with store.draft(TENANT) as draft:
            await draft.write(body[:700_000])
            await draft.write(body[700_000:])
            await draft.publish(stored)

    for after in (0.0, 0.0003, 0.001, 0.003):
        stored = stored_result(body, clock())
        task = asyncio.create_task(publish(stored))
        await asyncio.sleep(after)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        found = await store.find(TENANT, stored.handle)
        assert await store.stored_bytes() == (0 if found is None else held(len(body)))
        if found is not None:
            assert await joined(store.read(found)) == body
            await store.delete(TENANT, stored.handle)


async def test_a_draft_can_be_read_before_it_is_published(store: ResultStore, clock: FakeClock) -> None:
    for size in (100, 1_048_576, 2_200_000):
        body = bytes(range(256)) * (size // 256 + 1)
        async with store.draft(TENANT) as draft:
            for start in range(0, len(body), 300_000):
                await draft.write(body[start : start + 300_000])
            assert await joined(draft.read()) == body
            stored = stored_result(body, clock())
            await draft.publish(stored)
        assert await joined(store.read(stored)) == body
        await store.delete(TENANT, stored.handle)


LONG = bytes(range(251)) * 10_000


@pytest.fixture
async def long(store: ResultStore, clock: FakeClock) -> StoredResult:
    return await put(store, LONG, clock())


@given(start=st.integers(-5, 2_700_000), length=st.none() | st.integers(-5, 2_700_000))
async def test_a_range_is_that_slice_of_the_body(
    store: ResultStore, long: StoredResult, start: int, length: int | None
) -> None:
    begin = max(0, start)
    end = None if length is None else begin + length
    chunks = [chunk async for chunk in store.read(long, start, end)]
    assert b"".join(chunks) == (LONG[begin:] if end is None else LONG[begin : max(begin, end)])
    assert all(0 < len(chunk) <= 1 << 20 for chunk in chunks)


async def test_the_same_handle_published_by_many_at_once_is_one_whole_result(
    store: ResultStore, clock: FakeClock, held: Held
) -> None:
    where = handle()
    kept = await asyncio.gather(*[put(store, b"0123456789", clock(), where=where) for _ in range(20)])
    await put(store, b"0123456789", clock(), where=where)
    assert await store.count_results([KEY]) == [1]
    assert await store.stored_bytes() == held(10)
    assert await joined(store.read(kept[0])) == b"0123456789"


async def test_tenants_never_see_each_other(store: ResultStore, clock: FakeClock) -> None:
    mine = await put(store, b"mine", clock())
    theirs = await put(store, b"not yours", clock(), where=mine.handle, tenant="other")
    assert await joined(store.read(mine)) == b"mine"
    assert await joined(store.read(theirs)) == b"not yours"
    assert await store.find("third", mine.handle) is None
    assert await store.delete("third", mine.handle) is False
    assert await store.delete_session(SessionKey("other", KEY.session_id), 1) == 1
    assert await store.find("other", mine.handle) is None
    assert await store.find(TENANT, mine.handle) is not None


async def test_deleted_is_gone(store: ResultStore, clock: FakeClock, held: Held) -> None:
    kept = await put(store, b"body", clock())
    other = await put(store, b"other", clock())
    assert await store.delete(TENANT, kept.handle) is True
    assert await store.delete(TENANT, kept.handle) is False
    assert await store.find(TENANT, kept.handle) is None
    with pytest.raises(ResultExpired):
        await joined(store.read(kept))
    assert await store.touch(kept) == kept
    assert await store.find(TENANT, kept.handle) is None
    assert await store.find(TENANT, other.handle) is not None
    assert await store.stored_bytes() == held(5)


async def test_a_reader_that_has_begun_finishes_though_it_is_deleted(
    store: ResultStore, clock: FakeClock
) -> None:
    body = b"0123456789" * 250_000
    kept = await put(store, body, clock())
    chunks = store.read(kept)
    first = await anext(chunks)
    await store.delete(TENANT, kept.handle)
    assert first + await joined(chunks) == body


async def test_deleting_a_session_deletes_all_of_it_and_nothing_else(
    store: ResultStore, clock: FakeClock, held: Held
) -> None:
    for _ in range(3):
        await put(store, b"body", clock())
    other = await put(store, b"other", clock(), where=handle("run-10"))
    run_10, unused = KEY._replace(session_id="run-10"), KEY._replace(session_id="run-11")
    assert await store.count_results([unused, KEY, run_10]) == [0, 3, 1]
    assert await store.count_results([]) == []
    assert await store.delete_session(KEY, 1) == 3
    assert await store.count_results([KEY]) == [0]
    assert await store.find(TENANT, other.handle) is not None
    assert await store.stored_bytes() == held(5)


async def test_deleting_a_session_spares_what_a_later_life_published(
    store: ResultStore, clock: FakeClock, held: Held
) -> None:
    earlier = [await put(store, b"old", clock(), epoch=epoch) for epoch in (0, 3, clock() - 1)]
    later = [await put(store, b"newer", clock(), epoch=epoch) for epoch in (clock(), clock() + 9)]
    found = await store.find(TENANT, later[0].handle)
    assert found is not None
    assert found.epoch == clock()
    assert await store.delete_session(KEY, clock()) == len(earlier)
    assert [await store.find(TENANT, one.handle) for one in earlier] == [None] * len(earlier)
    assert None not in [await store.find(TENANT, one.handle) for one in later]
    assert await store.count_results([KEY]) == [len(later)]
    assert await store.stored_bytes() == held(5) * len(later)
    assert await store.delete_session(KEY, clock()) == 0


@pytest.mark.repeated
async def test_a_delete_of_a_session_never_meets_what_is_published_meanwhile(
    store: ResultStore, clock: FakeClock
) -> None:
    async def publish(epoch: int) -> list[StoredResult]:
        return [await put(store, b"body", clock(), epoch=epoch) for _ in range(RACES)]

    async def delete() -> None:
        for _ in range(RACES):
            await store.delete_session(KEY, 1)

    *published, _ = await asyncio.gather(publish(1), publish(0), publish(2), delete())
    await store.delete_session(KEY, 1)
    found = [[await store.find(TENANT, one.handle) for one in life] for life in published if life]
    assert [life.count(None) for life in found] == [0, RACES, 0]
    assert await store.count_results([KEY]) == [2 * RACES]


async def test_it_expires_after_its_last_use(store: ResultStore, clock: FakeClock) -> None:
    kept = await put(store, b"body", clock())
    clock.advance(RETENTION - 1)
    touched = await store.touch(kept)
    assert touched.expires_at == clock() + RETENTION * 1000
    clock.advance(RETENTION - 1)
    found = await store.find(TENANT, kept.handle)
    assert found is not None
    assert found.expires_at == touched.expires_at
    clock.advance(1)
    assert await store.find(TENANT, kept.handle) is None
    assert await store.count_results([KEY]) == [0]
    assert await store.delete(TENANT, kept.handle) is False


async def test_a_sweep_deletes_what_has_expired_and_only_that(
    store: ResultStore, clock: FakeClock, held: Held
) -> None:
    await put(store, b"old", clock())
    await put(store, b"old too", clock(), where=handle("run-2"))
    clock.advance(RETENTION / 2)
    young = await put(store, b"young", clock())
    # An object store leaves what has expired for another sixteenth of the retention.
    clock.advance(RETENTION * 0.6)
    assert await store.sweep() == 2
    assert await store.sweep() == 0
    assert await store.find(TENANT, young.handle) is not None
    assert await store.stored_bytes() == held(5)


@pytest.mark.repeated
async def test_results_arrive_while_their_directory_is_being_swept_away(
    store: ResultStore, clock: FakeClock
) -> None:
    async def come_and_go() -> None:
        for _ in range(RACES):
            kept = await put(store, b"body", clock())
            assert await store.delete(TENANT, kept.handle)

    async def sweep() -> None:
        for _ in range(2 * RACES):
            await store.sweep()
            await asyncio.sleep(0)

    await asyncio.gather(come_and_go(), sweep(), come_and_go(), sweep(), come_and_go())
    assert await store.stored_bytes() == 0


@pytest.mark.parametrize("store", ["memory:", "disk://{path}/store"], ids=["memory", "disk"], indirect=True)
async def test_a_clock_that_was_set_back_shortens_no_life(store: ResultStore, clock: FakeClock) -> None:
    touched, published = [await put(store, b"body", clock()) for _ in range(2)]
    lasting = await store.touch(touched)
    clock.advance(-RETENTION / 2)
    assert (await store.touch(touched)).expires_at == lasting.expires_at
    await put(store, b"body", clock(), where=published.handle)
    for one in (touched, published):
        found = await store.find(TENANT, one.handle)
        assert found is not None
        assert found.expires_at == lasting.expires_at
    clock.advance(RETENTION)
    assert await store.sweep() == 0
    assert (await store.touch(touched)).expires_at == clock() + RETENTION * 1000


async def test_past_the_quota_a_write_is_refused_and_reads_go_on(
    store: ResultStore, clock: FakeClock, held: Held
) -> None:
    kept = await put(store, b"x" * 2_000_000, clock())
    await store.check()
    with pytest.raises(StoreFull):
        await put(store, b"y" * 1_000_001, clock())
    assert await store.stored_bytes() == held(2_000_000)
    assert len(await joined(store.read(kept))) == 2_000_000
    await put(store, b"z" * 1_000_000, clock())
    with pytest.raises(StoreFull):
        await store.check()
    assert await store.delete(TENANT, kept.handle)
    await put(store, b"y" * 1_000_001, clock())


async def test_a_full_tenant_is_refused_and_others_are_not(
    store: ResultStore, clock: FakeClock, held: Held
) -> None:
    kept = await put(store, b"x" * 900_000, clock(), tenant="small")
    with pytest.raises(TenantFull, match="`storage_max_bytes` of 1,000,000"):
        await put(store, b"y" * 110_000, clock(), tenant="small")
    async with store.draft("small") as draft:
        await draft.write(b"x" * 80_000)
        with pytest.raises(TenantFull):
            await draft.write(b"x" * 150_000)
        await put(store, b"z" * 1_100_000, clock())
    assert await store.usage() == {"small": held(900_000), TENANT: held(1_100_000)}
    await store.check()
    assert len(await joined(store.read(kept))) == 900_000
    assert await store.delete("small", kept.handle)
    assert await store.usage() == {TENANT: held(1_100_000)}
    await put(store, b"y" * 990_000, clock(), tenant="small")


@pytest.mark.usefixtures("small_steps")
async def test_a_deleted_tenant_leaves_nothing_and_others_stay(
    store: ResultStore, clock: FakeClock, held: Held
) -> None:
    # One has a body of several segments; sessions and results are more than one step deletes.
    large = await put(store, b"x" * 1_200_000, clock())
    many = [await put(store, b"many", clock(), where=handle(f"run-{n % 12}")) for n in range(60)]
    other = await put(store, b"stays", clock(), tenant="other", where=handle("run-1"))
    steps = [await store.delete_tenant(TENANT)]
    while steps[-1]:
        steps.append(await store.delete_tenant(TENANT))
    assert (sum(steps), len(steps) > 2) == (61, True)
    assert await store.delete_tenant(TENANT) == 0
    for gone in (large, many[0], many[-1]):
        assert await store.find(TENANT, gone.handle) is None
    assert await store.count_results([SessionKey(TENANT, f"run-{n}") for n in range(12)]) == [0] * 12
    assert await store.usage() == {"other": held(5)}
    assert await joined(store.read(other)) == b"stays"
    again = await put(store, b"again", clock(), where=many[0].handle)
    assert await store.find(TENANT, again.handle) is not None
    assert await store.usage() == {"other": held(5), TENANT: held(5)}


async def test_drafts_count_into_the_quota_together(store: ResultStore) -> None:
    async with store.draft(TENANT) as one, store.draft(TENANT) as two:
        await one.write(b"x" * 2_000_000)
        with pytest.raises(StoreFull):
            await two.write(b"x" * 1_200_000)
        await two.write(b"x" * 1_000_000)
    assert await store.stored_bytes() == 0


async def test_results_survive_a_restart(open_lasting_store: OpenStore, clock: FakeClock, held: Held) -> None:
    store = await open_lasting_store()
    kept = await put(store, b"body", clock())
    gone = await put(store, b"gone", clock())
    clock.advance(RETENTION / 2)
    touched = await store.touch(kept)
    await store.close()
    store = await open_lasting_store()
    assert await store.find(TENANT, kept.handle) == touched
    assert await joined(store.read(kept)) == b"body"
    assert await store.stored_bytes() == 2 * held(4)
    clock.advance(RETENTION * 0.6)
    assert await store.find(TENANT, gone.handle) is None
    assert await store.sweep() == 1
    assert await store.stored_bytes() == held(4)
