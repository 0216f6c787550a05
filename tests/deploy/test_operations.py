"""What docs/operations.md says, done as it stands there."""

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from storage.base.schema import Schema, refusal
from storage.redis.facts import SCHEMA
from tests.app.operations.test_redis_user import documented_user
from tests.deploy.documented import blocks, run
from tests.deploy.manifests import ROOT
from tests.deploy.test_upgrade import WRITERS, Load
from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.service_process import PATIENT, SERVE, Service, Services
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

ADD, REMOVE = blocks("operations.md", "## Changing the password of Redis")
BACKUP, RESTORE = blocks("operations.md", "### Disk and SQLite")
DAY_SECONDS = 86_400


@pytest.mark.parametrize("user", ["", "spillgate"])
async def test_the_password_of_redis_is_changed_under_load_and_no_request_fails(
    services: Services, tmp_path: Path, user: str
) -> None:
    """Of the user `default`, as with `requirepass`, and of one with the documented permissions."""
    url, replicas = tmp_path / "url", list[Service]()
    name = user or "default"
    for which in ("old", "new"):
        (tmp_path / f"{which}-password").write_text(f"{which}-secret\n")
    with RedisServer(tmp_path / "redis", aof="always") as redis:
        if user:
            assert redis.ask(*documented_user(), ">old-secret") == b"+OK\r\n"
        assert redis.ask("CONFIG", "SET", "requirepass", "old-secret") == b"+OK\r\n"

        def do(command: str, password: str) -> None:
            run(
                command.replace("SETUSER default", f"SETUSER {name}"),
                tmp_path,
                redis.port,
                REDISCLI_AUTH=password,
            )

        async def started(password: str) -> Service:
            url.write_text(f"redis://{user}:{password}@{redis.host}:{redis.port}/0\n")
            url.chmod(0o600)
            replicas.append(await services.start(tmp_path, PATIENT, storage_url_file=str(url)))
            return replicas[-1]

        load = Load()
        load.replicas = [await started("old-secret"), await started("old-secret")]
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WRITERS):
                tasks.create_task(load.write())
            await load.more()
            do(ADD, "old-secret")
            await load.more()
            for leaving in list(load.replicas):
                load.replicas.insert(0, await started("new-secret"))
                await load.more()
                assert await leaving.stop() == 0
                load.replicas.remove(leaving)
            do(REMOVE, "old-secret" if user else "new-secret")
            await load.more()
            load.stop()
        await load.check()
        for replica in replicas:
            assert [line for line in replica.lines() if line["event"] == "Not ready."] == []
        late = await started("old-secret")
        async with late.client() as client:
            assert (await client.get("/readyz")).status_code == 503
        (why,) = {line["why"] for line in await late.logged("Not ready.")}
        assert "Cause: WRONGPASS, redis://" in why


async def test_a_directory_is_backed_up_while_it_serves_and_restored(
    services: Services, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    state = home / ".local/state/spillgate"
    state.parent.mkdir(parents=True)
    service = await services.start(state, SERVE)
    kept: list[Kept] = []
    stop = asyncio.Event()

    async def write() -> None:
        async with service.client() as client:
            while not stop.is_set():
                number = len(kept)
                call = Call(f"run-{number % 3}", text_of(f"call-{number}", 40_000), f"call-{number}")
                kept.append(Kept.of(call, await call.send(client)))

    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write())
        while len(kept) < 10:
            assert not writing.done()
            await asyncio.sleep(0.01)
        before = list(kept)
        await asyncio.to_thread(run, BACKUP, home, HOME=str(home))
        stop.set()
    assert await service.stop() == 0
    # As documented, but for `make`.
    (setting,) = RESTORE.split()[:1]
    restored = tmp_path / "restored"
    shutil.copytree(home / "backup", restored, copy_function=shutil.copy2)
    assert setting == "SPILLGATE_STORAGE_URL=disk://$PWD/backup"
    service = await services.start(restored, SERVE)
    async with service.client() as client:
        assert [fault for one in before for fault in await read_back(client, one)] == []
        entries = await audit.tool_entries(client)
        assert {one.entry_id for one in before} <= {entry["id"] for entry in entries}
        named = {entry["details"]["tool_output_handle"] for entry in entries}
        infos = [(await client.get(f"/results/{handle}")).status_code for handle in named]
    assert set(infos) == {200}
    assert service.failures() == []


async def test_a_backup_that_is_older_than_the_retention_needs_a_longer_one(
    services: Services, tmp_path: Path
) -> None:
    service = await services.start(tmp_path / "state", SERVE)
    call = Call("run", text_of("call", 40_000), "call")
    async with service.client() as client:
        kept = Kept.of(call, await call.send(client))
    assert await service.stop() == 0
    ago = time.time() - 2 * DAY_SECONDS
    for info in audit.infos(tmp_path / "state"):
        os.utime(info, (ago, ago))
    copies = {days: tmp_path / f"copy-{days}" for days in (1, 3)}
    for days, copy in copies.items():
        shutil.copytree(tmp_path / "state", copy, copy_function=shutil.copy2)
        service = await services.start(copy, SERVE, retention_seconds=str(days * DAY_SECONDS))
        async with service.client() as client:
            assert (await client.get(f"/results/{kept.handle}")).status_code == (200 if days == 3 else 404)


def test_the_refusal_of_another_schema_is_the_documented_one() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    assert f"spillgate: {refusal('Redis', Schema(1000, '9.0.0'), SCHEMA)}\n" in page
