"""Clients that do not read their answers, that end their side early, and requests that are refused."""

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil  # type: ignore[import-untyped]
import pytest

from tests.faults.service_process import Service, Services

pytestmark = pytest.mark.anyio

READERS = int(os.environ.get("READERS", "150"))
"""`READERS=4000` is the full count. Growth is bounded for each."""

BYTES_EACH = 90_000
BYTES_SHARED = 30 << 20
CONTENT = b"a line of forty bytes, over and over ..\n" * 130_000


@pytest.fixture
def open_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = READERS + 500
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
    )
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def stalled(service: Service, path: str) -> socket.socket:
    """A connection that asks for the path and reads nothing."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, service.address)
    await loop.sock_sendall(sock, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return sock


async def test_clients_that_do_not_read_take_little_memory_and_others_are_served(
    services: Services, tmp_path: Path, open_files: None
) -> None:
    service = await services.start(tmp_path / "state", storage_max_bytes="0")
    stalled_ones: list[socket.socket] = []
    async with service.client() as client:
        headers = {"Content-Type": "text/plain"}
        answer = await client.post("/results?tool_name=t", content=CONTENT, headers=headers)
        path = f"/results/{answer.json()['handle']}/content"
        assert (await client.get(path)).content == CONTENT
        process = psutil.Process(service.pid)
        before = process.memory_info().rss
        try:
            for _ in range(READERS):
                stalled_ones.append(await stalled(service, path))
            # A client that got the head of its answer had its first chunk read.
            for sock in stalled_ones:
                await asyncio.get_running_loop().sock_recv(sock, 16)
            for _ in range(3):
                assert (await client.get(path)).content == CONTENT
                assert (await client.post("/results", json={"tool_name": "t", "content": "x"})).is_success
            growth = process.memory_info().rss - before
            print(f"{READERS} readers: {growth / 1e6:.1f} MB, {growth / READERS / 1e3:.1f} kB each")
            assert growth < READERS * BYTES_EACH + BYTES_SHARED
            async with asyncio.timeout(30):
                while len(process.open_files()) > 50:
                    await asyncio.sleep(0.1)
        finally:
            for sock in stalled_ones:
                sock.close()
    assert service.failures() == []


async def test_a_download_whose_result_is_deleted_ends_and_is_no_error_of_the_service(
    services: Services, tmp_path: Path
) -> None:
    service = await services.start(tmp_path / "state")
    async with service.client() as client:
        headers = {"Content-Type": "text/plain"}
        answer = await client.post("/results?tool_name=t", content=CONTENT * 4, headers=headers)
        path = f"/results/{answer.json()['handle']}"
        async with client.stream("GET", f"{path}/content") as download:
            assert (await client.delete(path)).status_code == 204
            with pytest.raises(httpx.RemoteProtocolError):
                await download.aread()
    assert await service.stop() == 0
    assert service.failures() == []
    refused = [(line["route"], line["code"]) for line in service.lines() if line["event"] == "refused"]
    assert refused == [("GET /results/{handle}/content", "result_expired")]


async def test_each_refused_request_is_one_line_of_the_log(services: Services, tmp_path: Path) -> None:
    service = await services.start(tmp_path / "state")
    marker = "S3cretMarker"
    as_json = {"Content-Type": "application/json"}

    async with service.client() as client:

        async def ask(method: str, path: str, **more: object) -> httpx.Response:
            return await client.request(method, path, **more)  # type: ignore[arg-type]

        answers = {
            "POST /results 415": await ask(
                "POST", "/results", content=marker, headers={"Content-Type": "image/png"}
            ),
            "POST /results 422": await ask("POST", "/results", json={"tool_name": "t", marker: 1}),
            "POST /results 400": await ask("POST", "/results", content="{" + marker, headers=as_json),
            "POST /check 422": await ask("POST", "/check", json={"tool_name": marker, "bytes": -1}),
            "GET /results/{handle} 404": await ask("GET", f"/results/session-{marker}/file-1"),
            "POST /check 413": await ask("POST", "/check", content=marker * 100_000, headers=as_json),
            "DELETE /check 405": await ask("DELETE", "/check"),
            "GET 404": await ask("GET", f"/{marker}"),
            "GET /livez 400": await ask("GET", "/livez", headers={"Host": "evil.test"}),
        }
        expected = [
            (name.rpartition(" ")[0], answer.status_code, answer.json()["code"])
            for name, answer in answers.items()
        ]
        assert [str(status) for _, status, _ in expected] == [name[-3:] for name in answers]
    for sent, code in ((b"NONSENSE\r\n\r\n", "malformed"), (b"GET /" + b"x" * 9000, "headers_too_large")):
        reader, writer = await asyncio.open_connection(*service.address)
        writer.write(sent + b" HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(20):
            status = int((await reader.read())[9:12])
        writer.close()
        expected.append((None, status, code))  # type: ignore[arg-type]
    assert await service.stop() == 0
    lines = [line for line in service.lines() if line["event"] == "refused"]
    assert [(line["route"], line["status"], line["code"]) for line in lines] == expected
    assert marker not in service.log.read_text()
