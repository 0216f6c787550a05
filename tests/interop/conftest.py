"""The directory of a test with real coding agents, whose home lies below it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.started_services import end_services


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Shorter than pytest's own: the service that a relay starts listens on a socket below the home, and the
    path of a socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="spillgate-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
        end_services(Path(folder))
