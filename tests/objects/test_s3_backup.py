"""Backup and restore of a bucket as docs/operations.md has them, command by command."""

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import obstore
import pytest

from storage.objects.layout import read_info
from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.service_process import Services
from tests.objects.conftest import BUCKET, CREDENTIALS, ROOT, bucket_at

pytestmark = pytest.mark.anyio

_SECTION = (ROOT / "docs" / "operations.md").read_text().partition("\n### S3\n")[2]
BACKUP, RESTORE = re.findall(r"```sh\n(.*?)```", _SECTION, re.DOTALL)[:2]


def run(command: str, prefix: str, port: int) -> None:
    """In the bucket and on the server of the test."""
    aws = shutil.which("aws")
    if aws is None:
        pytest.skip("aws is missing: it is in Debian's package awscli")
    for place, of_test in (
        ("my-bucket/spillgate", f"{BUCKET}/{prefix}"),
        ("my-bucket/restored", f"{BUCKET}/{prefix}-restored"),
        ("my-backup", f"{BUCKET}/{prefix}-backup"),
    ):
        command = command.replace(place, of_test)
    command = command.replace("aws s3", f"{aws} --endpoint-url http://127.0.0.1:{port} --region us-east-1 s3")
    given = {**CREDENTIALS, "PATH": "/usr/local/bin:/usr/bin:/bin", "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run(["sh", "-eux", "-c", command], env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_a_bucket_is_backed_up_while_the_service_stores_and_restored_into_another_place(
    services: Services, url: Callable[[int], str], prefix: str, s3_port: int, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.db"
    service = await services.start(tmp_path, storage_url=url(s3_port), ledger_url=f"sqlite://{ledger}")
    infos, bodies = BACKUP.strip().split("\n")
    async with service.client() as client:
        sizes = (13_000, 400_000, 6_000_000)
        calls = [Call("run", text_of(f"call-{size}", size), f"call-{size}") for size in sizes]
        kept = [Kept.of(call, await call.send(client)) for call in calls]
        entries = await audit.tool_entries(client)
        with sqlite3.connect(ledger) as source, sqlite3.connect(tmp_path / "copy.db") as copy:
            source.backup(copy)
        run(infos, prefix, s3_port)
        late = Call("run", text_of("late", 6_000_000), "late")
        late_handle = (await late.send(client)).json()["handle"]
        run(bodies, prefix, s3_port)
    await service.stop()
    run(RESTORE, prefix, s3_port)
    there = bucket_at(s3_port, f"{prefix}-restored")
    paths = {one["path"] for one in obstore.list(there).collect()}
    assert "schema" in paths
    for path in (one for one in paths if one.endswith(".json")):
        info = read_info(bytes(obstore.get(there, path).bytes()), path)
        assert info.body_path in paths
    restored = url(s3_port).replace(prefix, f"{prefix}-restored")
    service = await services.start(tmp_path, storage_url=restored, ledger_url=f"sqlite://{tmp_path}/copy.db")
    async with service.client() as client:
        assert [fault for one in kept for fault in await read_back(client, one)] == []
        assert await audit.tool_entries(client) == entries
        assert (await client.get(f"/results/{late_handle}")).status_code == 404
        # Its retry stores it once more.
        assert await read_back(client, Kept.of(late, await late.send(client))) == []
    assert service.failures() == []
