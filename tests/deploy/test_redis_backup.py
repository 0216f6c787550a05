"""Backup and restore of Redis as docs/operations.md has them, command by command."""

from pathlib import Path

import pytest

from tests.deploy.documented import blocks, run
from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.service_process import PATIENT, Services
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

BACKUP, RESTORE = blocks("operations.md", "### Redis")


async def test_a_redis_is_backed_up_while_it_serves_and_restored_with_an_append_only_file(
    services: Services, tmp_path: Path
) -> None:
    kept = []
    with RedisServer(tmp_path / "old", aof="always") as old:
        service = await services.start(tmp_path, PATIENT, storage_url=old.url)
        async with service.client() as client:
            for number, size in enumerate((13_000, 50_000, 1_500_000)):
                call = Call("backup", text_of(f"call-{number}", size), f"call-{number}")
                kept.append(Kept.of(call, await call.send(client)))
            run(BACKUP, tmp_path, old.port)
            entries = await audit.tool_entries(client)
            late = Call("backup", text_of("late", 13_000), "late")
            assert (await late.send(client)).status_code == 201
        await service.stop()
    run(RESTORE, tmp_path, old.port)
    with RedisServer(tmp_path / "restored", aof="always") as restored:
        for _ in range(2):
            service = await services.start(tmp_path, PATIENT, storage_url=restored.url)
            async with service.client() as client:
                assert [fault for one in kept for fault in await read_back(client, one)] == []
                assert await audit.tool_entries(client) == entries
            await service.stop()
            # What was restored is in the append-only file now.
            restored.kill()
            restored.start()


async def test_a_user_with_the_documented_permissions_takes_the_snapshot(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "old", aof="always") as old:
        for rights in ("+sync +replconf", ""):
            asked = ["ACL", "SETUSER", "backup", "reset", "on", ">secret", "+ping", *rights.split()]
            assert old.ask(*asked) == b"+OK\r\n"
            command = BACKUP.replace("redis-cli -p", "redis-cli --user backup -p")
            if rights:
                run(command, tmp_path, old.port, REDISCLI_AUTH="secret")
                continue
            with pytest.raises(AssertionError, match="no permissions"):
                run(command, tmp_path, old.port, REDISCLI_AUTH="secret")
