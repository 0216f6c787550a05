"""The service as a process over S3: the whole life of a result, and kills during uploads."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from storage.objects.layout import read_info
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.network import Network, silence, swallow
from tests.faults.service_process import Service, Services

pytestmark = pytest.mark.anyio
Url = Callable[[int], str]
METHODS = (b"GET ", b"PUT ", b"POST ", b"DELETE ", b"HEAD ")


async def _start(services: Services, url: str, place: Path) -> Service:
    return await services.start(place, storage_url=url, ledger_url=f"sqlite://{place}/ledger.db")


def _infos(bucket: S3Store) -> list[str]:
    found = [one["path"] for one in obstore.list(bucket, "tool_output").collect()]
    return [path for path in found if path.endswith(".json")]


async def test_a_result_of_20_mb_lives_through_all_of_it(
    services: Services, url: Url, s3_port: int, bucket: S3Store, tmp_path: Path
) -> None:
    lines = [f"{number}: step {number % 977} of the build" for number in range(700_000)]
    lines[654_321] = "654321: error E4711 in module parser"
    body = "\n".join(lines).encode()
    assert len(body) > 20_000_000
    service = await _start(services, url(s3_port), tmp_path)
    for _ in range(2):
        async with service.client() as client:
            answer = await Call("run-1", body, "call-1", is_streamed=True).send(client)
            handle, told = answer.json()["handle"], answer.json()
            assert (answer.status_code, told["measure"]["lines"]) == (201, 700_000)
            path = f"/results/{handle}"
            found = (await client.get(f"{path}/grep", params={"pattern": "E[0-9]{4} in"})).json()
            assert [match["line"] for match in found["matches"]] == [654_322]
            page = await client.get(f"{path}/lines", params={"offset": 654_321, "limit": 2})
            assert "error E4711" in page.text
            asked = {"handle": handle, "extract": "error E4711", "mode": "retrieve"}
            assert "module parser" in (await client.post("/extract", json=asked)).text
            part = await client.get(f"{path}/content", headers={"Range": "bytes=4194300-4194310"})
            assert part.content == body[4_194_300:4_194_311]
            whole = await client.get(f"{path}/content")
            assert hashlib.sha256(whole.content).digest() == hashlib.sha256(body).digest()
        assert await service.stop() == 0
        service = await _start(services, url(s3_port), tmp_path)
    async with service.client() as client:
        assert (await client.delete(path)).status_code == 204
        assert (await client.get(path)).status_code == 404
    assert await service.stop() == 0
    # A stop does not wait for the minute that readers of a deleted body have.
    assert [one["path"] for one in obstore.list(bucket).collect()] == ["probe", "schema"]
    assert service.failures() == []


async def test_killed_at_any_request_of_an_upload_it_shows_nothing_that_is_half_written(
    services: Services, url: Url, s3_port: int, bucket: S3Store, tmp_path: Path
) -> None:
    kept: list[Kept] = []
    faults = [
        (swallow, rb"^POST .*uploads"),
        (swallow, rb"^PUT .*partNumber=2"),
        (swallow, rb"^POST .*uploadId="),
        (swallow, rb"^PUT .*\.json "),
        (silence, rb"^PUT .*\.json "),
        (silence, b" never "),
    ]
    calls = [Call("run-1", text_of(str(number), 6_000_000), str(number)) for number in range(len(faults))]
    async with Network(s3_port, begins=METHODS) as network:
        place = url(network.port) + "&timeout=60"
        for call, (fault, request) in zip(calls, faults, strict=True):
            service = await _start(services, place, tmp_path)
            async with service.client() as client:
                # This request does not arrive, or its reply does not.
                network.spoil(fault, 0, request)
                sent = asyncio.create_task(call.send(client))
                while not network.spoilt and not sent.done():
                    await asyncio.sleep(0.01)
                if sent.done():
                    kept.append(Kept.of(call, sent.result()))
                service.kill()
                await asyncio.gather(sent, return_exceptions=True)
            await network.heal()
            for path in _infos(bucket):
                info = read_info(bytes(obstore.get(bucket, path).bytes()), path)
                assert obstore.head(bucket, info.body_path)["size"] == info.size
        service = await _start(services, place, tmp_path)
        async with service.client() as client:
            assert [await read_back(client, one) for one in kept] == [[]] * len(kept)
            kept = [Kept.of(call, await call.send(client)) for call in calls]
            assert [await read_back(client, one) for one in kept] == [[]] * len(calls)
        assert service.failures() == []


async def test_a_model_reads_a_result_by_each_argument_of_its_tool(
    services: Services, url: Url, s3_port: int, tmp_path: Path
) -> None:
    rows = "".join(f'{n},"city, {n % 3}",{n * 2}\n' for n in range(200_000))
    body = f"id,city,amount\n{rows}".encode()
    service = await _start(services, url(s3_port), tmp_path)
    async with service.client(timeout=120) as client:
        handle = (await Call("run-1", body, "call-1", is_streamed=True).send(client)).json()["handle"]

        async def asked(**arguments: str) -> str:
            call = {"name": "tool_output", "session_id": "run-1", "arguments": {"handle": handle} | arguments}
            return str((await client.post("/tools/call", json=call)).json()["text"])

        sql = "SELECT city, count(*) n, sum(amount) s FROM data GROUP BY city ORDER BY city"
        sums = [
            f"city, {k} | {len(range(k, 200_000, 3))} | {2 * sum(range(k, 200_000, 3))}" for k in range(3)
        ]
        assert (await asked(query=sql)).splitlines()[:4] == ["city | n | s", *sums]
        assert (await asked(query="SELECT text FROM lines WHERE line = 77")) == '75,"city, 0",150'
        assert '\n199999: 199997,"city, 2",399994\n' in f"\n{await asked(pattern='^199997,')}"
        assert (await asked(lines="3,-1")).splitlines() == [
            '3: 1,"city, 1",2',
            '[Lines 3 to 3 of 200,001. Go on with lines = "4-43".]',
            '200001: 199999,"city, 1",399998',
            "[Lines 200,001 to 200,001 of 200,001.]",
        ]
        assert '"city, 1"' in await asked(extract="id 199999")
    assert await service.stop() == 0
