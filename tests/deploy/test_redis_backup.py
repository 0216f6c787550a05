"""Backup and restore of Redis as docs/operations.md has them, command by command."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT
from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.service_process import PATIENT, Services
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

_SECTION = (ROOT / "docs" / "operations.md").read_text().partition("### Redis\n")[2]
BACKUP, RESTORE = re.findall(r"```sh\n(.*?)```", _SECTION, re.DOTALL)[:2]


def run(commands: str, port: int, folder: Path) -> None:
    """On the port of a server of the test."""
    given = {"PATH": "/usr/local/bin:/usr/bin:/bin", "REDISCLI_HISTFILE": "/dev/null"}
    asked = commands.replace("6379", str(port))
    done = subprocess.run(["sh", "-eux", "-c", asked], cwd=folder, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
            run(BACKUP, old.port, tmp_path)
            entries = await audit.tool_entries(client)
            late = Call("backup", text_of("late", 13_000), "late")
            assert (await late.send(client)).status_code == 201
        await service.stop()
    run(RESTORE, old.port, tmp_path)
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
