"""What the tests of single backends share with the contract suites."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "contract"))

from samples import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
