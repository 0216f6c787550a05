"""Backends are chosen by URL."""

import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from domain.errors import ConfigError
from domain.ports import Ledger, ResultStore
from storage import open_ledger, open_store
from storage.postgres.url import parse_postgres_url

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
from storage.postgres.url import parse_postgres_url

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


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:hunter2@host", "ends with the name of a database"),
        ("postgresql:///ledger", "needs a host"),
        ("postgresql://u:hunter2@host:port/ledger", "port of a PostgreSQL URL is a number"),
        ("postgresql://u:hun#ter2@host/ledger", "ends with the name of a database|is not known here"),
        ("postgresql://host/ledger?sslmode=on", "sslmode of a PostgreSQL URL is one of disable"),
        ("postgresql://host/ledger?prepared=never", "prepared of a PostgreSQL URL is true or false"),
        ("postgresql://host/ledger?schema=Ours", "schema of a PostgreSQL URL has lowercase letters"),
        ("postgresql://host/ledger?timeout=0", "timeout of a PostgreSQL URL is a number of seconds"),
        ("postgresql://host/ledger?max_connections=0", "max_connections of a PostgreSQL URL"),
    ],
)
async def test_a_url_of_postgresql_that_cannot_be_used_says_why_without_its_password(
    url: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        await open_ledger(url, clock=lambda: 0, session_retention_seconds=1, entry_retention_seconds=1)
    assert str(refused.value).startswith("SPILLGATE_LEDGER_URL: ")
    assert "hun" not in str(refused.value)


def test_what_is_said_of_a_url_of_postgresql_in_the_log_has_no_password() -> None:
    parsed = parse_postgres_url(
        "postgresql://me:hun%40ter2@a:5432,b/ledger?timeout=2&schema=x&prepared=false"
    )
    assert parsed.address == "postgresql://a:5432,b/ledger"
    assert "hun" not in repr(parsed)
    assert (parsed.schema, parsed.timeout, parsed.is_prepared) == ("x", 2.0, False)
    assert parsed.has_several_hosts
    assert parse_postgres_url("postgresql:///ledger?host=/run/postgresql").address.endswith("/ledger")


async def test_without_its_package_a_ledger_on_postgresql_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match="asyncpg is not installed"):
        await open_ledger(
            "postgresql://host/ledger",
            clock=lambda: 0,
            session_retention_seconds=1,
            entry_retention_seconds=1,
        )
