"""Services for the fault tests: real processes, none of which outlives its test."""

from collections.abc import AsyncIterator

import pytest

from tests.faults.uploads import Connections


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    async with Connections() as opened:
        yield opened
