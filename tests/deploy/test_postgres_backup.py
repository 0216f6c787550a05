"""Backup and restore of PostgreSQL as docs/operations.md has them, command by command."""

from pathlib import Path

import pytest

from tests.deploy.documented import blocks, run
from tests.faults.postgres_load import Load
from tests.faults.service_process import Services
from tests.postgres_server import PASSWORD, USER, PostgresServer, postgres_bin
from tests.redis_server import HOST

pytestmark = pytest.mark.anyio

BACKUP, RESTORE = blocks("operations.md", "### PostgreSQL")


async def test_a_ledger_is_backed_up_while_it_serves_and_restored_into_an_empty_database(
    services: Services, tmp_path: Path, postgres_server: PostgresServer, postgres_url: str
) -> None:
    (tmp_path / "backup").mkdir()
    postgres_server.sql("DROP DATABASE IF EXISTS restored", "postgres")
    given = {"PATH": f"{postgres_bin()}:/usr/bin:/bin", "PGPASSWORD": PASSWORD}

    def follow(commands: str) -> None:
        asked = commands.replace("localhost", HOST).replace("5432", str(postgres_server.port))
        run(asked.replace("-U spillgate", f"-U {USER}"), tmp_path, **given)

    service = await services.start(tmp_path / "old", ledger_url=postgres_url)
    async with Load([service]) as load:
        async with load.writing():
            await load.until(50)
            before = dict(load.acknowledged)
            follow(BACKUP)
            await load.until(20)
        calls = dict(load.named)
    await service.stop()
    follow(RESTORE)
    restored = await services.start(tmp_path / "new", ledger_url=postgres_url.replace("/ledger", "/restored"))
    async with Load([restored], acknowledged=before) as load:
        known = {str(entry["id"]) for entry in await load.entries()}
        load.named = {call: entry for call, entry in calls.items() if entry in known}
        await load.check()
        async with load.writing():
            await load.until(20)
        assert load.acknowledged.keys() <= {str(entry["id"]) for entry in await load.entries()}
    await restored.stop()
    postgres_server.sql("DROP DATABASE restored", "postgres")
