"""Services for the fault tests: real processes, none of which outlives its test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.faults.service import Services
from tests.faults.uploads import Connections


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with Services(tmp_path) as started:
        yield started


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    async with Connections() as opened:
        yield opened
