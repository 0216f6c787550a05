"""When the disk of PostgreSQL is full, results that pass go on, and it is told what has no entry."""

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.calls import Call, text_of
from tests.faults.readings import exported, sums_say_that_they_lack_some, until_told
from tests.faults.service_process import PATIENCE, Services, service_with
from tests.faults.test_full_disk import SMALL
from tests.postgres_server import PostgresServer, give_away

pytestmark = pytest.mark.anyio

# Segments that were written are used again: with room for a new one, its log would fill the disk and end it.
SETTINGS = ("max_wal_size = 64MB", "min_wal_size = 64MB", "checkpoint_timeout = 1h")
DISK_BYTES = 260 << 20


@pytest.fixture
def disk() -> Iterator[Path]:
    """A tmpfs that its server has alone. Skips the test where mounting is not allowed."""
    place = Path(tempfile.mkdtemp(prefix="spillgate-full-"))
    place.chmod(0o755)
    options = f"size={DISK_BYTES},mode=755"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        place.rmdir()


def fill(disk: Path) -> Path:
    """A file that takes all that is left."""
    balloon = disk / "balloon"
    with balloon.open("wb", buffering=0) as file:
        give_away(balloon)
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return balloon


async def test_on_a_full_disk_results_pass_and_are_told_once_there_is_room(
    services: Services, tmp_path: Path, disk: Path
) -> None:
    export = tmp_path / "entries.ndjson"
    often = service_with(*PATIENCE, "sweeping often")
    with PostgresServer(under=str(disk), options=SETTINGS) as server:
        settings = {"ledger_url": server.url, "accounting_export": str(export)}
        service = await services.start(tmp_path, often, **settings)
        async with service.client() as client:
            for number in range(200):
                assert (await Call("full", text_of(f"{number}", 100)).send(client)).status_code == 200
            server.sql("SELECT pg_switch_wal()")
            server.sql("CHECKPOINT")
            balloon = fill(disk)
            unrecorded = 0
            while unrecorded < 20:
                answer = await Call("full", SMALL).send(client)
                assert (answer.status_code, answer.json()["outcome"]) == (200, "pass"), answer.text
                unrecorded += bool(answer.json()["warnings"])
            async with asyncio.timeout(60):
                while True:
                    ready = await client.get("/readyz")
                    assert ready.status_code == 200
                    if "The disk of PostgreSQL is full" in " ".join(ready.json()["warnings"]):
                        break
                    # The server may have found a page for the check.
                    answer = await Call("full", SMALL).send(client)
                    assert (answer.status_code, answer.json()["outcome"]) == (200, "pass"), answer.text
                    unrecorded += bool(answer.json()["warnings"])
                    await asyncio.sleep(0.05)
            await sums_say_that_they_lack_some(client)
            assert (await client.get("/sessions/full")).status_code == 200
            assert (await client.get("/accounting/entries")).status_code == 200
            balloon.unlink()
            async with asyncio.timeout(60):
                # More than one entry tells it if there was room in between.
                while (
                    sum(one["details"]["unrecorded"]["results"] for one in await until_told(client))
                    < unrecorded
                ):
                    await asyncio.sleep(0.05)
            told = await until_told(client)
            assert sum(one["details"]["unrecorded"]["results"] for one in told) == unrecorded
            lines = exported(export)
            total = (await client.get("/accounting/summary")).json()["total"]
            assert total["tokens_out"] == sum(line["tokens_out"] for line in lines)
            async with asyncio.timeout(60):
                while (await client.get("/readyz")).json()["warnings"]:
                    await asyncio.sleep(0.1)
            assert not (await Call("full", SMALL).send(client)).json()["warnings"]
        assert service.failures() == []
