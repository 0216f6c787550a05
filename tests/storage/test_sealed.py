"""The sealed store over one that others write to, or that is away at first; texts of the sealed ledger."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from redis import Redis
from samples import KEY, RETENTION, FakeClock, Ring, charge, handle, joined, put, stored_result

from domain.errors import ConfigError, InvalidField, StoreUnavailable
from domain.handles import Handle, SessionKey
from domain.ports import ResultStore
from domain.results import StoredResult
from storage import open_sealed_store, open_store, sealed_ledger
from storage.memory import MemoryLedger, MemoryStore
from storage.sealed.keys import CHECKS, StorageKey

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]

ONE, OTHER = StorageKey("one", bytes(32)), StorageKey("one", bytes(range(32)))


def memory(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock=clock, retention_seconds=RETENTION, max_bytes=0)


@pytest.mark.parametrize("size", [100_000, 2_500_000])
async def test_a_body_that_is_stored_again_under_its_handle_is_sealed_then(
    redis_url: str, clock: FakeClock, size: int
) -> None:
    """A retry whose first try was before encryption. Redis keeps a body of the same SHA-256."""
    plain = await open_store(redis_url, clock=clock, retention_seconds=RETENTION, max_bytes=0)
    sealed = await open_sealed_store(plain, Ring(), clock)
    body, where = os.urandom(size), handle()
    for store in (plain, sealed, sealed):
        kept = await put(store, body, clock(), where=where)
        assert await joined(sealed.read(kept)) == body
        assert await joined(sealed.read(kept, size - 5)) == body[-5:]
    assert await joined(plain.read(kept)) != body
    await sealed.close()


async def test_of_two_replicas_with_two_keys_of_one_id_the_second_writes_nothing_and_is_not_ready(
    clock: FakeClock,
) -> None:
    inner = memory(clock)
    first, second = [await open_sealed_store(inner, Ring(key), clock) for key in (ONE, OTHER)]
    kept = await put(first, b"body", clock())
    await second.check()
    with pytest.raises(StoreUnavailable, match="another key of the id one"):
        await put(second, b"other", clock())
    with pytest.raises(StoreUnavailable, match="another key of the id one"):
        await second.check()
    await first.check()
    assert await joined(first.read(kept)) == b"body"
    assert await inner.count_results([kept.key]) == [1]
    with pytest.raises(ConfigError, match="another key of the id one"):
        await open_sealed_store(inner, Ring(OTHER), clock)


async def test_a_key_that_is_taken_out_of_the_file_while_its_check_is_read_is_no_other_key_of_its_id(
    clock: FakeClock,
) -> None:
    class Changing(MemoryStore):
        changes = False

        async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
            found = await super().find(tenant, handle)
            if self.changes and tenant == CHECKS.tenant:
                ring.in_force = {two.id: two}
            return found

    two = StorageKey("two", bytes(32))
    ring = Ring(ONE, two)
    inner = Changing(clock=clock, retention_seconds=RETENTION, max_bytes=0)
    sealed = await open_sealed_store(inner, ring, clock)
    await put(sealed, b"body", clock())
    await sealed.check()
    await sealed.sweep()
    inner.changes = True
    await put(sealed, b"other", clock())
    inner.changes = False
    # The warning, as for any key that is still needed.
    await sealed.check()
    assert "key ids that the file does not have" in sealed.warnings[-1]


async def test_a_check_that_is_missing_is_made_again_by_the_next_use(clock: FakeClock) -> None:
    inner = memory(clock)
    sealed = await open_sealed_store(inner, Ring(), clock)
    ledger = MemoryLedger(clock=clock, session_retention_seconds=60, entry_retention_seconds=60)
    texts = sealed_ledger(ledger, sealed)
    kept = await put(sealed, b"body", clock())
    await texts.settle(charge(10, "call-0"))
    await texts.keep_finding(KEY, 0, "mine", "a finding")
    uses: list[Callable[[], Awaitable[object]]] = [
        lambda: sealed.find(kept.tenant, kept.handle),
        lambda: put(sealed, b"body", clock()),
        lambda: texts.finding(KEY, 0, "mine"),
        lambda: texts.keep_finding(KEY, 0, "other", "a finding"),
        lambda: texts.settle(charge(10, "call-1", text="a text")),
        lambda: texts.settle(charge(10, "call-1", text="a text")),
    ]
    for use in uses:
        await inner.delete_tenant(CHECKS.tenant)
        # What was noted is forgotten.
        await sealed.sweep()
        await use()
        assert await inner.count_results([CHECKS]) == [1]


async def test_a_check_that_is_damaged_is_no_key_that_is_missing(redis_url: str, clock: FakeClock) -> None:
    plain = await open_store(redis_url, clock=clock, retention_seconds=RETENTION, max_bytes=0)
    kept = await put(await open_sealed_store(plain, Ring(ONE), clock), b"body", clock())
    with Redis.from_url(redis_url) as client:
        (check,) = client.keys(f"*{CHECKS.tenant}*:result:*")
        client.hset(check, "info", b"damaged")
    again = await open_sealed_store(plain, Ring(ONE), clock)
    assert await again.find(kept.tenant, kept.handle) is not None
    # It was made again, and needs its key.
    with pytest.raises(ConfigError, match="key ids that the file does not have"):
        await open_sealed_store(plain, Ring(StorageKey("two", bytes(32))), clock)
    await plain.close()


async def test_a_body_that_is_published_again_between_two_reads_is_read_whole(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Two first sends of one call at the same time: each seals the body under a key of its own."""
    body, where = os.urandom(2_500_000), handle()

    class Racing(MemoryStore):
        left = 0

        async def read(
            self, stored: StoredResult, start: int = 0, end: int | None = None
        ) -> AsyncIterator[bytes]:
            async for piece in super().read(stored, start, end):
                yield piece
            self.left -= 1
            if not self.left:
                await put(sealed, body, clock(), where=where)

    inner = Racing(clock=clock, retention_seconds=RETENTION, max_bytes=0)
    sealed = await open_sealed_store(inner, Ring(), clock)
    kept = await put(sealed, body, clock(), where=where)
    for start in (0, 1_234_567):
        inner.left = 1
        assert await joined(sealed.read(kept, start)) == body[start:]
        assert inner.left < 0
    assert not caplog.records


class Away(MemoryStore):
    """Away until it is told otherwise."""

    is_away = False

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().count_results(keys)


async def test_a_store_that_is_away_at_the_start_is_verified_when_it_is_back(clock: FakeClock) -> None:
    inner = Away(clock=clock, retention_seconds=RETENTION, max_bytes=0)
    await put(await open_sealed_store(inner, Ring(ONE), clock), b"body", clock())
    inner.is_away = True
    late: ResultStore = await open_sealed_store(inner, Ring(StorageKey("two", bytes(32))), clock)
    await late.check()
    inner.is_away = False
    with pytest.raises(StoreUnavailable, match="key ids that the file does not have"):
        await late.check()


async def test_a_text_of_the_ledger_that_is_damaged_or_of_another_place_is_an_error(clock: FakeClock) -> None:
    inner = MemoryLedger(clock=clock, session_retention_seconds=60, entry_retention_seconds=60)
    ledger = sealed_ledger(inner, await open_sealed_store(memory(clock), Ring(), clock))
    await ledger.settle(charge(10, "call-1", text="a text"))
    await ledger.keep_finding(KEY, 0, "mine", "a finding")
    assert await ledger.finding(KEY, 0, "mine") == "a finding"
    sealed = await inner.finding(KEY, 0, "mine")
    assert sealed is not None
    assert "finding" not in sealed
    for place, text in (("moved", sealed), ("cut", sealed[:-8]), ("no base64", sealed + "?")):
        await inner.keep_finding(KEY, 0, place, text)
        with pytest.raises(StoreUnavailable, match="damaged"):
            await ledger.finding(KEY, 0, place)
    await inner.keep_finding(KEY, 0, "plain", "kept before")
    assert await ledger.finding(KEY, 0, "plain") == "kept before"


async def test_arguments_that_are_not_unicode_are_refused_as_without_encryption(clock: FakeClock) -> None:
    sealed = await open_sealed_store(memory(clock), Ring(), clock)
    stored = replace(stored_result(b"", clock()), tool_arguments="\ud800")
    async with sealed.draft(stored.tenant) as draft:
        with pytest.raises(InvalidField):
            await draft.publish(stored)
