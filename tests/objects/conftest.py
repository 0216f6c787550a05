"""A server of the S3 protocol, moto, and the fixtures of the contract suite over it."""

import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from obstore.store import S3Store

from domain.quotas import TenantQuota
from domain.results import Durability
from storage.objects.bucket import Bucket
from storage.objects.store import ObjectStore
from storage.objects.url import make_ready

ROOT = Path(__file__).parents[2]
BUCKET = "results"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIAHUNTER1", "AWS_SECRET_ACCESS_KEY": "hunter2-hunter2"}

# The contract suite is imported from its folder, where its samples are, too.
sys.path.insert(0, str(ROOT / "tests" / "contract"))

from samples import RETENTION, FakeClock, OpenStore  # noqa: E402


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    python = ROOT / ".objects/bin/python"
    command = [python, ROOT / "tests/objects/moto_server.py"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as moto:
        assert moto.stdout is not None
        port = int(moto.stdout.readline())
        httpx.put(f"http://127.0.0.1:{port}/{BUCKET}", trust_env=False).raise_for_status()
        yield port
        moto.kill()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def prefix() -> str:
    """The bucket of this test alone."""
    return uuid.uuid4().hex


def bucket_at(port: int, prefix: str) -> S3Store:
    """What a test looks into the bucket with."""
    endpoint, options = f"http://127.0.0.1:{port}", {"allow_http": True}
    return S3Store(BUCKET, prefix=prefix, endpoint=endpoint, region="us-east-1", client_options=options)  # type: ignore[arg-type]


@pytest.fixture
def bucket(s3_port: int, prefix: str) -> S3Store:
    return bucket_at(s3_port, prefix)


@pytest.fixture
def url(prefix: str) -> Callable[[int], str]:
    """The URL of this test's place, by the port of the server."""
    return lambda port: f"s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{port}&region=us-east-1"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def durability() -> Durability:
    return Durability.OBJECT


@pytest.fixture
def held() -> Callable[[int], int]:
    """The bytes that a body of so many bytes takes."""
    return lambda size: size


@pytest.fixture
async def open_lasting_store(bucket: S3Store, clock: FakeClock) -> AsyncIterator[OpenStore]:
    """Opens one more process's view of the same bucket at each call."""
    async with AsyncExitStack() as stack:

        async def open_it(max_bytes: int = 0) -> ObjectStore:
            store = ObjectStore(
                Bucket(bucket, timeout=60),
                clock=clock,
                retention_seconds=RETENTION,
                max_bytes=max_bytes,
                quota_of=lambda tenant: TenantQuota(storage_max_bytes=1_000_000 * (tenant == "small")),
            )
            stack.push_async_callback(store.close)
            await make_ready(store)
            # The service sweeps as it starts.
            await store.sweep()
            return store

        yield open_it


@pytest.fixture
async def store(open_lasting_store: OpenStore) -> ObjectStore:
    return await open_lasting_store(3_000_000)  # type: ignore[call-arg,return-value]
