"""Services for the fault tests: real processes, none of which outlives its test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.service import Services


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with Services(tmp_path) as started:
        yield started
