"""A result of 40 MB of JSON lines: stored, queried and searched, in the memory that is promised."""

import json
from pathlib import Path

import psutil
import pytest

from extraction.query_child import MEMORY_BYTES
from tests.counts import count
from tests.faults.calls import Call
from tests.faults.service_process import Services, service_with

pytestmark = pytest.mark.anyio

ROWS, REPEATED = count(70_000, 280_000), count(7, 1)
CITIES = ("Lima", "Oslo", "Rome")
NOTE = "is what was left at the door, with a bell beside it, and is asked for by no one, " * REPEATED
PATIENT = service_with("RUN_SECONDS=300")
STREAMED_BYTES = 64 << 20
"""What a text that is streamed may take of the service's memory (bench/README.md)."""


@pytest.mark.repeated
async def test_40_mb_of_json_lines_are_queried_and_searched(services: Services, tmp_path: Path) -> None:
    lines = (
        f'{{"id": {n}, "city": "{CITIES[n % 3]}", "of": {{"n": {n % 7}}}, "note": "{n} {NOTE}"}}'
        for n in range(ROWS)
    )
    body = "\n".join(lines).encode()
    assert len(body) > 40_000_000
    service = await services.start(tmp_path / "state", PATIENT)
    process = psutil.Process(service.pid)
    async with service.client(timeout=300) as client:
        # The tokenizer and the formats are in memory from the first large result on.
        await Call("run-1", body[:2_000_000], "call-0", is_streamed=True).send(client)
        before = process.memory_info().rss
        told = (await Call("run-1", body, "call-1", is_streamed=True).send(client)).json()
        assert process.memory_info().rss - before < STREAMED_BYTES
        assert told["measure"]["lines"] == ROWS
        assert "\nJSON lines: {id: 0, city: " in told["content"]

        async def asked(**arguments: str) -> str:
            call = {"name": "tool_output", "session_id": "run-1"}
            sent = call | {"arguments": {"handle": told["handle"], **arguments}}
            return str((await client.post("/tools/call", json=sent)).json()["text"])

        sql = 'SELECT city, count(*) n, sum("of".n) s FROM data WHERE id < 300 GROUP BY city ORDER BY city'
        cities = [[n % 7 for n in range(at, 300, 3)] for at in range(3)]
        rows = [f"{name} | 100 | {sum(of)}" for name, of in zip(CITIES, cities, strict=True)]
        assert (await asked(query=sql)).splitlines()[:4] == ["city | n | s", *rows]
        [child] = process.children()
        assert child.memory_info().rss < MEMORY_BYTES
        assert (await asked(query="SELECT count(*) FROM data")) == f"{ROWS}"
        line = await asked(query="SELECT text FROM lines WHERE line = 7")
        assert json.loads(line) == json.loads(body.split(b"\n", 7)[6])
        found = await asked(pattern=rf'"id": {ROWS // 10 - 1}\d,')
        assert [one.partition(":")[0] for one in found.splitlines()[:10]] == [
            str(number) for number in range(ROWS - 9, ROWS + 1)
        ]
        assert (await asked(lines="-1")).startswith(f'{ROWS}: {{"id": {ROWS - 1}, ')
        assert process.memory_info().rss - before < 2 * STREAMED_BYTES
    assert await service.stop() == 0
