"""The services that hooks and relays start for their user: those of a test end with it."""

from pathlib import Path

import pytest

from beside import embedded


def end_services(below: Path) -> None:
    """Ends those whose state is in a directory below this one, and waits until they have ended."""
    for lock in below.rglob("embedded/lock"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPILLGATE_STORAGE_URL", f"disk://{lock.parents[1]}")
            embedded.stop()
