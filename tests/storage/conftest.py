"""What the tests of single backends share with the contract suites."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "contract"))

from redis_server import redis_cluster, redis_cluster_url, redis_may_be_slow, redis_server, redis_url  # noqa: F401
from samples import FakeClock


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
