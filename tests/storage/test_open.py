"""Backends are chosen by URL."""

import subprocess
import sys

import pytest

from domain.errors import ConfigError
from storage import open_ledger, open_store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("url", ["ftp://user:secret@host/x", "", "disk", "/var/lib"])
async def test_an_unknown_scheme_is_refused_with_a_list_of_the_known(url: str) -> None:
    with pytest.raises(ConfigError, match="memory:, disk:") as failure:
        await open_store(url, clock=lambda: 0, retention_seconds=1, max_bytes=0)
    assert "secret" not in str(failure.value)
    with pytest.raises(ConfigError, match="memory:, sqlite:"):
        await open_ledger(url, clock=lambda: 0, session_retention_seconds=1, entry_retention_seconds=1)


@pytest.mark.parametrize("url", ["disk:", "disk:relative", "disk://host/path", "disk:///path?x=1"])
async def test_a_path_must_be_absolute(url: str) -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        await open_store(url, clock=lambda: 0, retention_seconds=1, max_bytes=0)


def test_a_service_on_disk_and_sqlite_imports_no_client_of_a_server_and_no_cipher() -> None:
    code = "import sys, app.main; sys.exit(not {'redis', 'obstore', 'cryptography'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
