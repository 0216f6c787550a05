"""What the tests share: a clock that stands still until told, the service in this process over HTTP."""

import atexit
import functools
import gc
import io
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis.internal.conjecture import providers
from pydantic import BaseModel

from app.main import create_app
from app.runtime import Runtime, open_runtime
from app.settings import PREFIX, Settings
from content.tables import quoted
from domain.errors import BadQuery
from domain.ports import Clock
from extraction import queries, query_child, query_tables, query_terms
from extraction.query_tables import connect
from tests.counts import FULL, count
from tests.faults.service_process import Service, Services
from tests.postgres_server import postgres_server, postgres_url  # noqa: F401
from tests.redis_server import (  # noqa: F401
    patient_redis,
    redis_cluster,
    redis_cluster_url,
    redis_server,
    redis_time,
    redis_url,
)
from tests.small_disk import small_disk, small_ext4  # noqa: F401

Serve = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

# No check of how long an example takes: that depends on the machine, and bench/ measures speed.
hypothesis_settings.register_profile(
    "house",
    deadline=None,
    max_examples=count(10, 200),
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
hypothesis_settings.load_profile("house")
if not FULL:
    # Hypothesis tries the constants of our source, too. To read it takes each worker a second.
    providers.is_local_module_file = lambda path: False  # type: ignore[attr-defined, assignment]


# The certificates of the machine are read once, and not for each client: that takes 30 ms.
httpx.create_ssl_context = functools.cache(httpx.create_ssl_context)
httpx2.create_ssl_context = functools.cache(httpx2.create_ssl_context)

# The client of the tests runs in the process of the service, whose log they read.
logging.getLogger("httpx").setLevel(logging.WARNING)

# Tests of what finds no service start none, but those of that start.
os.environ["SPILLGATE_AUTO_START"] = "false"

# A service that a test starts is not to be found by the hooks of the person who runs the tests.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="sg-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# In memory where there is room for it: a disk takes milliseconds for each fsync, and most tests write.
_MEMORY = Path("/dev/shm")
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where CI is set, a skipped test fails: what a test needs is to be there."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome, report.longrepr = "failed", f"skipped where CI is set: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector leaves alone what is imported and collected, and runs less often than by default:
    otherwise it takes a tenth of the processor time of the suite."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 100)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Properties are repeated tests, too: `make faults` chooses by the mark."""
    for item in items:
        if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.repeated)
    # Tests of faults wait more than they compute. Their files are spread among the others, and are among the
    # first of each worker, so that the cores have work until the end.
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    places: dict[Path, float] = {}
    for share in (0.7, 1):
        chosen = [item for item in items if ("faults" in item.path.parts) is (share < 1)]
        for number, item in enumerate(chosen):
            worker, place = divmod(number / len(chosen) * workers, 1)
            places.setdefault(item.path, worker + place * share)
    items.sort(key=lambda item: places[item.path])


class StillClock:
    """Unix milliseconds that move only by `pass_seconds`."""

    def __init__(self, now: int = 1_763_712_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


def settings_of(**given: Any) -> Settings:
    """As `Settings` makes them, which looks for the variables of all settings: that takes longer than to make
    the service. Here it looks only if there is one."""
    if [name for name in os.environ if name.startswith(PREFIX)] != ["SPILLGATE_AUTO_START"]:
        return Settings(**given)
    settings = Settings.__new__(Settings)
    BaseModel.__init__(settings, auto_start=os.environ["SPILLGATE_AUTO_START"], **given)
    return settings


@asynccontextmanager
async def served(
    clock: Clock | None = None, **settings: Any
) -> AsyncIterator[tuple[Runtime, httpx.AsyncClient]]:
    """The service in this process."""
    given = settings_of(**settings)
    async with open_runtime(given, clock) as runtime:
        app = create_app(given, runtime)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://localhost:8377")
        async with app.router.lifespan_context(app), client:
            yield runtime, client


@pytest.fixture(scope="module")
async def shared_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """The service in this process, for all tests of a module, which look only at what each has stored."""
    state = tmp_path_factory.mktemp("service")
    async with served(StillClock(), storage_url=f"disk://{state}") as (_, client):
        yield client


@pytest.fixture
def serve(tmp_path: Path, clock: StillClock) -> Serve:
    """Opens the service on disk and SQLite under `tmp_path`; keyword arguments are settings."""

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
        async with served(clock, **{"storage_url": f"disk://{tmp_path}/state", **settings}) as (_, client):
            yield client

    return opened


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """Processes, none of which outlives its test."""
    with Services(tmp_path) as started:
        yield started


@pytest.fixture
async def service(services: Services, tmp_path: Path) -> Service:
    """A process on disk and SQLite."""
    return await services.start(tmp_path / "state")


@pytest.fixture(scope="module")
async def shared_service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """A service for all tests of a module."""
    place = tmp_path_factory.mktemp("service")
    with Services(place) as started:
        yield await started.start(place / "state")


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed")
    return found


_kept_answerers: dict[tuple[object, ...], query_child.Answerer] = {}
_MOST_ANSWERERS = 6
_databases: list[Any] = []
"""Connections to empty databases: DuckDB takes 13 ms of processor time to make one."""


def _connected() -> Any:
    return _databases.pop() if _databases else connect()


def _empty_database(answerer: query_child.Answerer) -> None:
    """Keeps the database of an answerer without its tables, unless it is confined."""
    if answerer._queried is None:
        return
    connection = answerer._queried._queried._connection
    if connection.execute("SELECT current_setting('lock_configuration')").fetchone() != (False,):
        return
    for kind, in_use in (("VIEW", "duckdb_views()"), ("TABLE", "duckdb_tables()")):
        for (name,) in connection.execute(
            f"SELECT {kind.lower()}_name FROM {in_use} WHERE NOT internal"
        ).fetchall():
            connection.execute(f"DROP {kind} {quoted(name)}")
    _databases.append(connection)


def _answered_here(query: query_terms.DataQuery, data: bytes) -> query_terms.QueryAnswer:
    """As in a process that is kept: what SQL needs of the data is loaded once."""
    if not query_terms.is_sql(query.expression):
        return query_child.Answerer(io.BytesIO(data).read).answer(query)
    has_lines = len(data) <= query_terms.LINES_ALWAYS_BYTES or query_terms.needs_lines(query.expression)
    key = (data, query.tool_name, query.path, repr(query.several), has_lines)
    answerer = _kept_answerers.pop(key, None) or query_child.Answerer(io.BytesIO(data).read)
    try:
        answer = answerer.answer(query)
    except BadQuery:
        _kept_answerers[key] = answerer
        raise
    _kept_answerers[key] = answerer
    while len(_kept_answerers) > _MOST_ANSWERERS:
        _empty_database(_kept_answerers.pop(next(iter(_kept_answerers))))
    return answer


@pytest.fixture
def queries_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are evaluated in this process: to start an interpreter for each takes a fifth of a second.
    Their databases are loaded again, and so not confined, unless a test says so."""

    async def answer(
        self: queries.Queries,
        tenant: str,
        query: query_terms.DataQuery,
        size: int,
        read: queries.OpenBody,
        key: object,
    ) -> query_terms.QueryAnswer:
        return _answered_here(query, b"".join([chunk async for chunk in read()]))

    monkeypatch.setattr(query_child, "_bound_time", lambda seconds: None)
    monkeypatch.setattr(query_tables, "connect", _connected)
    monkeypatch.setattr(query_tables, "confine", lambda connection: None)
    monkeypatch.setattr(queries.Queries, "_answer", answer)


@pytest.fixture
async def disk_client(serve: Serve) -> AsyncIterator[httpx.AsyncClient]:
    async with serve() as client:
        yield client


@pytest.fixture
async def client(clock: StillClock) -> AsyncIterator[httpx.AsyncClient]:
    """The service in this process, in memory: on disk and SQLite it takes twice the processor time."""
    async with served(clock, storage_url="memory:") as (_, client):
        yield client


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a deletion or of a sweep has a twentieth of the usual number of items."""
    for name in (
        *("disk.published._BATCH", "memory._BATCH", "objects.store._BATCH"),
        *("postgres.ledger.MOST", "redis.ledger._BATCH", "redis.store._BATCH"),
        *("sqlite.state.KEPT_SESSIONS", "sqlite.state.MOST"),
    ):
        module, _, constant = f"storage.{name}".rpartition(".")
        usual = getattr(import_module(module), constant)
        monkeypatch.setattr(f"{module}.{constant}", usual // 20)
