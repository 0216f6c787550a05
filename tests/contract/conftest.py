"""Every backend of a port, by name: a new one joins its suite with one line."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from zlib import crc32

import pytest
from obstore.store import MemoryStore
from samples import ENTRY_RETENTION, RETENTION, FakeClock, OpenBounded, OpenLedger, OpenStore, Ring

from domain.ports import Ledger, ResultStore
from domain.quotas import QuotaOf, TenantQuota, unbounded
from domain.results import Durability
from storage import open_ledger, open_store, sealed_ledger, sealed_store
from storage.objects.bucket import Bucket
from storage.objects.store import ObjectStore
from storage.objects.url import make_ready
from storage.sealed.store import sealed_size
from tests.counts import FULL

SEALED = "sealed+"
STORES = {
    "memory": ("memory:", Durability.MEMORY),
    "disk": ("disk://{path}/store", Durability.DISK),
    "redis": ("{redis}", Durability.AOF),
    "cluster": ("{cluster}", Durability.AOF),
    "objects": ("objects:{path}", Durability.OBJECT),
}
# Encryption wraps any store: in memory, on a disk, and of objects. That of Redis is tested over HTTP.
STORES |= {
    f"sealed-{name}": (SEALED + url, kept)
    for name, (url, kept) in STORES.items()
    if name not in ("redis", "cluster")
}
URLS = {name: url for name, (url, _) in STORES.items()}
# By URL: an object store in the memory of this process, which lasts as long as the tests.
_buckets: dict[str, MemoryStore] = {}
LASTING_URLS = [url for url, durability in STORES.values() if durability is not Durability.MEMORY]
QUOTAS = {"small": TenantQuota(storage_max_bytes=1_000_000)}
"""The quota of the stores; other tenants have none."""

LEDGERS = {
    "memory": "memory:",
    "sqlite": "sqlite://{path}/ledger/ledger.db",
    "sealed-sqlite": SEALED + "sqlite://{path}/ledger/ledger.db",
    "redis": "{redis}",
    "cluster": "{cluster}",
    "postgres": "{postgres}",
    "sealed-postgres": SEALED + "{postgres}",
}
# A text takes more bytes than it has where it is encrypted.
BOUNDED = {name: url for name, url in LEDGERS.items() if not url.startswith(SEALED)}

BY_TURNS = (("{redis}", "{cluster}"), ("{postgres}", SEALED + "{postgres}"))
"""One code each, on a server and on a cluster, in plain and encrypted."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each promise is proved on Redis and on PostgreSQL: on one of the two forms, and on both with the full
    counts. Which of them depends on the name of the test alone."""
    late = [item for item in items if isinstance(item, pytest.Function) and not _is_its_turn(item)]
    for item in late:
        item.add_marker(pytest.mark.repeated)
    if late and not FULL:
        config.hook.pytest_deselected(items=late)
        items[:] = [item for item in items if item not in set(late)]


def _is_its_turn(item: pytest.Function) -> bool:
    values = item.callspec.params if hasattr(item, "callspec") else {}
    for pair in BY_TURNS:
        backend = next((name for name, value in values.items() if value in pair), None)
        # A bound is tested in plain alone.
        if backend is None or (backend == "open_bounded_ledger" and pair[1] not in BOUNDED.values()):
            continue
        others = [str(value) for name, value in values.items() if name != backend]
        in_turn = crc32(" ".join([item.originalname, *others]).encode()) % 2
        return pair.index(values[backend]) == in_turn
    return True


@pytest.fixture(autouse=True)
def patient(patient_redis: None, redis_time: None) -> None:
    """The promises do not depend on the speed of a backend, and time is that of the test."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def _url(request: pytest.FixtureRequest, path: Path) -> str:
    places = {"redis": "redis_url", "cluster": "redis_cluster_url", "postgres": "postgres_url"}
    opened = {
        name: request.getfixturevalue(fixture)
        for name, fixture in places.items()
        if f"{{{name}}}" in request.param
    }
    return str(request.param.format(path=path, **opened))


@pytest.fixture(params=URLS.values(), ids=URLS)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock, held: Callable[[int], int]
) -> AsyncIterator[ResultStore]:
    store = await _open_store(_url(request, tmp_path), clock, held(2_000_000) + held(1_000_000))
    yield store
    await store.close()


@pytest.fixture
def held(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """The bytes that a body of so many bytes takes in the store of this test."""
    params = request.node.callspec.params
    url = params.get("store") or params["open_lasting_store"]
    return sealed_size if url.startswith(SEALED) else lambda size: size


@pytest.fixture
def durability(request: pytest.FixtureRequest) -> Durability:
    """What the store of this test promises."""
    return dict(STORES.values())[request.node.callspec.params["store"]]


@pytest.fixture(params=LASTING_URLS)
async def open_lasting_store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[OpenStore]:
    """Opens the same place at each call. The test may close it, more than once."""
    url = _url(request, tmp_path)
    async with AsyncExitStack() as stack:

        async def open_it() -> ResultStore:
            store = await _open_store(url, clock, 0)
            stack.push_async_callback(store.close)
            return store

        yield open_it


@pytest.fixture(params=BOUNDED.values(), ids=BOUNDED)
async def open_bounded_ledger(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[OpenBounded]:
    """Opens the same place under another quota of every tenant each time."""
    url = _url(request, tmp_path)
    async with AsyncExitStack() as stack:

        async def open_it(max_bytes: int = 0, **quota: int) -> Ledger:
            ledger = await _open_ledger(url, clock, lambda tenant: TenantQuota(**quota), max_bytes)
            stack.push_async_callback(ledger.close)
            return ledger

        yield open_it


@pytest.fixture(params=LEDGERS.values(), ids=LEDGERS)
async def ledger(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Ledger]:
    ledger = await _open_ledger(_url(request, tmp_path), clock)
    yield ledger
    await ledger.close()


@pytest.fixture(params=[url for url in LEDGERS.values() if url != "memory:"])
async def open_lasting_ledger(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[OpenLedger]:
    url = _url(request, tmp_path)
    async with AsyncExitStack() as stack:

        async def open_it() -> Ledger:
            ledger = await _open_ledger(url, clock)
            stack.push_async_callback(ledger.close)
            return ledger

        yield open_it


async def _open_store(url: str, clock: FakeClock, max_bytes: int) -> ResultStore:
    is_sealed = url.startswith(SEALED)
    url = url.removeprefix(SEALED)
    options = {
        "clock": clock,
        "retention_seconds": RETENTION,
        "max_bytes": max_bytes,
        "quota_of": lambda tenant: QUOTAS.get(tenant, TenantQuota()),
    }
    if url.startswith("objects:"):
        bucket = Bucket(_buckets.setdefault(url, MemoryStore()), timeout=60)
        objects = ObjectStore(bucket, **options)
        await make_ready(objects)
        # The service sweeps as it starts.
        await objects.sweep()
        store: ResultStore = objects
    else:
        store = await open_store(url, **options)
    return sealed_store(store, Ring()) if is_sealed else store


async def _open_ledger(
    url: str, clock: FakeClock, quota_of: QuotaOf = unbounded, max_bytes: int = 0
) -> Ledger:
    is_sealed = url.startswith(SEALED)
    url = url.removeprefix(SEALED)
    options = {
        "clock": clock,
        "session_retention_seconds": RETENTION,
        "entry_retention_seconds": ENTRY_RETENTION,
        "max_bytes": max_bytes,
    }
    ledger = await open_ledger(url, quota_of=quota_of, **options)
    return sealed_ledger(ledger, Ring()) if is_sealed else ledger
