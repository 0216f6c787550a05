"""When the disk of Redis' append-only file is full: with `appendfsync always` Redis ends itself."""

import random
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.faults.calls import Call, Kept, read_back
from tests.faults.service_process import PATIENT, Services
from tests.redis_server import RedisServer
from tests.small_disk import SMALL_DISK_BYTES

pytestmark = pytest.mark.anyio


async def test_redis_ends_on_a_full_disk_and_nothing_that_was_answered_is_lost(
    services: Services, tmp_path: Path, small_disk: Path
) -> None:
    source, kept = random.Random(5), list[Kept]()
    options = ("--auto-aof-rewrite-percentage", "0")
    server = RedisServer(small_disk / "redis", aof="always", options=options)
    server.start()
    # What is left is soon full.
    (small_disk / "filler").write_bytes(bytes(SMALL_DISK_BYTES * 5 // 8))
    try:
        service = await services.start(tmp_path, PATIENT, storage_url=server.url)
        async with service.client() as client:
            while True:
                call = Call("s", source.randbytes(40_000).hex().encode())
                answer = await call.send(client)
                if answer.status_code != 201:
                    break
                kept.append(Kept.of(call, answer))
            assert len(kept) > 20
            assert (answer.status_code, answer.json()["stored"]) == (503, False)
            assert not server.answers()
            assert "Exiting" in server.log()
            assert (await client.get("/livez")).status_code == 200
            assert (await client.get("/readyz")).status_code == 503
            server.stop()
            remount = ["mount", "-o", "remount,size=20m", str(small_disk)]
            subprocess.run(remount, check=True)
            server.start()
            with anyio.fail_after(30):
                while (await client.get("/readyz")).status_code != 200:
                    await anyio.sleep(0.1)
            assert [fault for one in kept for fault in await read_back(client, one)] == []
            after = Call("s", source.randbytes(40_000).hex().encode())
            Kept.of(after, await after.send(client))
    finally:
        server.stop()
