"""Backends are chosen by URL."""

import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from domain.errors import ConfigError
from domain.ports import Ledger, ResultStore
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
    with pytest.raises(ConfigError, match=r"^SPILLGATE_STORAGE_URL: disk: needs an absolute path"):
        await open_store(url, clock=lambda: 0, retention_seconds=1, max_bytes=0)


@pytest.mark.parametrize(
    ("url", "example"),
    [("sqlite:relative", "sqlite:///var/lib/spillgate/ledger.db"), ("redis://", "redis://127.0.0.1:6379/0")],
)
async def test_a_ledgers_url_that_cannot_be_used_is_named_by_its_setting(url: str, example: str) -> None:
    with pytest.raises(ConfigError, match=rf"^SPILLGATE_LEDGER_URL: .*, as in {example}\.$"):
        await open_ledger(url, clock=lambda: 0, session_retention_seconds=1, entry_retention_seconds=1)


def open_disk(root: Path) -> Awaitable[ResultStore]:
    return open_store(f"disk://{root}", clock=lambda: 0, retention_seconds=1, max_bytes=0)


def open_sqlite(root: Path) -> Awaitable[Ledger]:
    url = f"sqlite://{root}/ledger.db"
    return open_ledger(url, clock=lambda: 0, session_retention_seconds=1, entry_retention_seconds=1)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(("opened", "lock"), [(open_disk, "lock"), (open_sqlite, "ledger.db.lock")])
async def test_a_link_in_place_of_the_lock_is_refused_and_not_followed(
    tmp_path: Path, opened: Callable[[Path], Awaitable[ResultStore | Ledger]], lock: str, is_there: bool
) -> None:
    root, link = tmp_path / "root", tmp_path / "root" / lock
    elsewhere = tmp_path / "elsewhere"
    if is_there:
        elsewhere.write_text("somebody's notes")
        elsewhere.chmod(0o644)
    root.mkdir()
    link.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=rf"{link} is a link\. Remove it"):
        await opened(root)
    assert elsewhere.exists() == is_there
    if is_there:
        assert (elsewhere.read_text(), elsewhere.stat().st_mode & 0o777) == ("somebody's notes", 0o644)
    link.unlink()
    await (await opened(root)).close()


OPEN_BOTH = """
import asyncio, sys
from storage import open_ledger, open_store

async def main(root, file):
    store = open_store(f"disk://{root}", clock=lambda: 0, retention_seconds=1, max_bytes=0)
    kept = {"session_retention_seconds": 1, "entry_retention_seconds": 1}
    ledger = open_ledger(f"sqlite://{file}", clock=lambda: 0, **kept)
    print(*await asyncio.gather(store, ledger, return_exceptions=True), sep="\\n")

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_root_and_a_ledger_belong_to_one_process(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "root" / "ledger.db"
    store, ledger = await open_disk(root), await open_sqlite(root)
    command = [sys.executable, "-c", OPEN_BOTH, root, file]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.partition(". ")[0] for line in said] == [
        f"SPILLGATE_STORAGE_URL: {root} is in use by another Spillgate process",
        f"SPILLGATE_LEDGER_URL: {file} is in use by another Spillgate process",
    ]
    await store.close()
    await ledger.close()
