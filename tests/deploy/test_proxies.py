"""The examples for nginx and HAProxy, run with the real programs before two replicas."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from app.answering.extractor import GRACE_SECONDS
from tests.deploy.manifests import ROOT
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.service_process import PATIENT, Service, Services
from tests.keys import key_file
from tests.redis_server import RedisServer, free_port

pytestmark = pytest.mark.anyio

CALLER = "127.0.0.2"
EXAMPLES = ROOT / "deploy" / "proxy"
COMMANDS = {
    "nginx": ("nginx.conf", ("-g", "daemon off; pid nginx.pid; error_log stderr;", "-p", ".", "-c")),
    "haproxy": ("haproxy.cfg", ("-db", "-f")),
}


TIMEOUTS = {
    EXAMPLES / "nginx.conf": r"proxy_read_timeout (\d+)s;",
    EXAMPLES / "haproxy.cfg": r"timeout (?:client|server) (\d+)s",
    EXAMPLES / "gateway.yaml": r"request: (\d+)s",
    EXAMPLES.parent / "chart" / "values.yaml": r"requestTimeout: (\d+)s",
}


@pytest.mark.parametrize("path", TIMEOUTS, ids=lambda path: path.name)
def test_what_stands_before_the_replicas_waits_for_the_longest_question(path: Path) -> None:
    schemas = json.loads((ROOT / "openapi" / "openapi.json").read_text())["components"]["schemas"]
    deadlines = [schema.get("properties", {}).get("deadline_ms", {}) for schema in schemas.values()]
    longest = max(deadline["maximum"] for deadline in deadlines if "maximum" in deadline)
    found = re.findall(TIMEOUTS[path], path.read_text())
    assert found
    assert all(int(seconds) > longest / 1000 + GRACE_SECONDS for seconds in found)


@contextmanager
def proxy(name: str, place: Path, replicas: list[int]) -> Iterator[str]:
    """The URL of the program, with the example as it is but for the ports."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install {name}")
    example, options = COMMANDS[name]
    port = free_port()
    text = (EXAMPLES / example).read_text()
    for before, after in (("8377", replicas[0]), ("8378", replicas[1]), ("8080", port)):
        text = re.sub(rf"(?<=[: ]){before}\b", str(after), text)
    config = place / example
    config.write_text(text)
    with (place / "proxy.log").open("wb") as log:
        process = subprocess.Popen([found, *options, str(config)], cwd=place, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


async def answers(client: httpx.AsyncClient) -> None:
    with anyio.fail_after(30):
        while True:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await anyio.sleep(0.1)


async def refused_address(replicas: list[Service]) -> str:
    with anyio.fail_after(30):
        while True:
            for line in (line for one in replicas for line in one.lines()):
                if line.get("code") == "unauthorized":
                    return str(line["address"])
            await anyio.sleep(0.05)


@pytest.mark.parametrize("name", COMMANDS)
async def test_large_bodies_pass_callers_are_named_and_a_replica_may_go(
    services: Services, tmp_path: Path, name: str
) -> None:
    keys = key_file(tmp_path / "keys", "red:agent")
    settings = {"api_keys_file": str(keys), "trusted_proxies": "127.0.0.1", "log_level": "debug"}
    with RedisServer(tmp_path / "redis") as redis:
        replicas: list[Service] = [
            await services.start(tmp_path, PATIENT, storage_url=redis.url, **settings) for _ in range(2)
        ]
        with proxy(name, tmp_path, [one.address[1] for one in replicas]) as url:
            headers = {"Authorization": "Bearer agent"}
            # Another address than the proxy's own, which is trusted.
            transport = httpx.AsyncHTTPTransport(local_address=CALLER)
            async with httpx.AsyncClient(
                base_url=url, headers=headers, transport=transport, timeout=60
            ) as client:
                await answers(client)
                calls = [
                    Call("s", text_of("json", 5_000_000), "a"),
                    Call("s", text_of("streamed", 30_000_000), "b", is_streamed=True),
                ]
                kept = [Kept.of(call, await call.send(client)) for call in calls]
                assert [fault for one in kept for fault in await read_back(client, one)] == []
                try:
                    large = await Call("s", b"x" * (70 << 20), "c", is_streamed=True).send(client)
                    assert large.status_code == 413
                except httpx.TransportError:
                    # The proxy closed while the client was still sending.
                    pass
                wrong = {"Authorization": "Bearer wrong", "X-Forwarded-For": "203.0.113.7"}
                assert (await client.get("/sessions", headers=wrong)).status_code == 401
                # What the caller itself says of its address is not believed.
                assert await refused_address(replicas) == CALLER
                replicas[0].kill()
                with anyio.fail_after(30):
                    while True:
                        found = {(await client.get("/sessions")).status_code for _ in range(10)}
                        if found == {200}:
                            break
