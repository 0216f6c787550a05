"""The sealed store over one that others write to, keys that do not open, texts of the sealed ledger."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from samples import KEY, RETENTION, FakeClock, Ring, charge, handle, joined, put, stored_result

from domain.errors import InvalidField, StoreUnavailable
from domain.results import StoredResult
from storage import open_store, sealed_ledger, sealed_store
from storage.memory import MemoryStore
from storage.sealed.keys import StorageKey, UnknownKey
from storage.sqlite.ledger import MemoryLedger

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
    sealed = sealed_store(plain, Ring())
    body, where = os.urandom(size), handle()
    for store in (plain, sealed, sealed):
        kept = await put(store, body, clock(), where=where)
        assert await joined(sealed.read(kept)) == body
        assert await joined(sealed.read(kept, size - 5)) == body[-5:]
    assert await joined(plain.read(kept)) != body
    await sealed.close()


async def test_of_another_key_of_the_same_id_each_use_says_so(clock: FakeClock) -> None:
    inner = memory(clock)
    texts = MemoryLedger(clock=clock, session_retention_seconds=60, entry_retention_seconds=60)
    kept = await put(sealed_store(inner, Ring(ONE)), b"body", clock())
    await sealed_ledger(texts, Ring(ONE)).settle(charge(10, "call-1", text="a text"))
    await sealed_ledger(texts, Ring(ONE)).keep_finding(KEY, 0, "mine", "a finding")
    for ring, cause in (
        (Ring(OTHER), "key id one, of which the file has another key"),
        (Ring(StorageKey("two", bytes(32))), "key id one"),
    ):
        store, ledger = sealed_store(inner, ring), sealed_ledger(texts, ring)
        uses: list[Callable[[], Awaitable[object]]] = [
            lambda store=store: store.find(kept.tenant, kept.handle),
            lambda store=store: joined(store.read(kept)),
            lambda ledger=ledger: ledger.settle(charge(10, "call-1", text="a text")),
            lambda ledger=ledger: ledger.finding(KEY, 0, "mine"),
        ]
        for use in uses:
            with pytest.raises(UnknownKey) as refused:
                await use()
            assert refused.value.cause == cause


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
    sealed = sealed_store(inner, Ring())
    kept = await put(sealed, body, clock(), where=where)
    for start in (0, 1_234_567):
        inner.left = 1
        assert await joined(sealed.read(kept, start)) == body[start:]
        assert inner.left < 0
    assert not caplog.records


async def test_a_text_of_the_ledger_that_is_damaged_or_of_another_place_is_an_error(clock: FakeClock) -> None:
    inner = MemoryLedger(clock=clock, session_retention_seconds=60, entry_retention_seconds=60)
    ledger = sealed_ledger(inner, Ring())
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
    sealed = sealed_store(memory(clock), Ring())
    stored = replace(stored_result(b"", clock()), tool_arguments="\ud800")
    async with sealed.draft(stored.tenant) as draft:
        with pytest.raises(InvalidField):
            await draft.publish(stored)
