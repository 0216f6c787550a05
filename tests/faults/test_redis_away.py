"""Redis killed under load: 503 within a second, what each door shows then, and what is there afterwards."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from spillgate import Spillgate
from tests.beside.relay_client import SCRIPTED, RelayClient
from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.forking import ROOT
from tests.faults.service_process import Service, Services
from tests.redis_server import RedisServer
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.anyio
TEXT = text_of("shown", 20_000).decode()
WRITERS = 4


def spillgate(
    service: Service, state: Path, *command: str, given: bytes
) -> subprocess.CompletedProcess[bytes]:
    environment = {name: one for name, one in os.environ.items() if not name.startswith("SPILLGATE_")}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(state), "SPILLGATE_URL": url_of(service)}
    environment["SPILLGATE_HOOK_TIMEOUT_MS"] = "30000"
    program = (sys.executable, "-m", "beside.main", *command)
    return subprocess.run(program, input=given, env=environment, capture_output=True, timeout=60, check=True)


def url_of(service: Service) -> str:
    return "http://{}:{}".format(*service.address)


def through_python(service: Service, state: Path, text: str) -> tuple[str, str]:
    with Spillgate(base_url=url_of(service), patience=0.1) as client:
        shown = str(client.govern("read_file", None, text).content)
    return shown, shown


def through_typescript(service: Service, state: Path, text: str) -> tuple[str, str]:
    script = (
        f"import {{ Spillgate }} from {json.dumps((ROOT / 'clients/typescript/src/index.js').as_uri())};"
        f"const client = new Spillgate({{ baseUrl: {json.dumps(url_of(service))}, patience: 100 }});"
        f"console.log((await client.govern('read_file', 'call', {json.dumps(text)})).content);"
    )
    run = subprocess.run(
        ("node", "--input-type=module", "-"),
        input=script.encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    return run.stdout.decode(), run.stdout.decode()


def through_pipe(service: Service, state: Path, text: str) -> tuple[str, str]:
    run = spillgate(service, state, "pipe", given=text.encode())
    return run.stdout.decode(), run.stderr.decode()


def through_hook(service: Service, state: Path, text: str) -> tuple[str, str]:
    payload = {
        "session_id": "s",
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "make"},
        "tool_response": {"stdout": text, "stderr": "", "interrupted": False, "isImage": False},
    }
    run = spillgate(service, state, "hook", "claude-code", given=json.dumps(payload).encode())
    assert json.loads(run.stdout) == {}
    # The agent goes on with the whole result.
    return text, (state / "spillgate" / "hook.log").read_text()


def through_relay(service: Service, state: Path, text: str) -> tuple[str, str]:
    command = (sys.executable, SCRIPTED, str(state / "received"))
    with RelayClient("--", *command, state=state / "relay", url=url_of(service)) as relay:
        shown = relay.call("text", size=20_000)["content"][0]["text"]
        assert len(shown) > 12_000
        assert relay.end() == 0
        return text, relay.said().decode()


def through_litellm(service: Service, state: Path, text: str) -> tuple[str, str]:
    rows = [{"role": "user", "content": "go"}, {"role": "tool", "tool_call_id": "c", "content": text}]
    sent = {"input_type": "request", "structured_messages": rows}
    answer = httpx.post(f"{url_of(service)}/beta/litellm_basic_guardrail_api", json=sent, timeout=30)
    assert (answer.status_code, answer.json()) == (200, {"action": "NONE"})
    # The request goes on as it is. The log is written by a thread of the service.
    while not (passed := [str(line) for line in service.lines() if line["event"] == "hook passed"]):
        time.sleep(0.02)
    return text, passed[0]


DOORS: dict[str, Callable[[Service, Path, str], tuple[str, str]]] = {
    "python": through_python,
    "typescript": through_typescript,
    "pipe": through_pipe,
    "hook": through_hook,
    "relay": through_relay,
    "litellm": through_litellm,
}


@pytest.mark.parametrize("door", DOORS)
async def test_while_redis_is_dead_a_door_shows_the_result_and_says_that_it_is_not_stored(
    services: Services, tmp_path: Path, request: pytest.FixtureRequest, door: str
) -> None:
    if door == "typescript":
        request.getfixturevalue("node")
    (tmp_path / "state").mkdir()
    with RedisServer(tmp_path / "redis", aof="always") as server:
        service = await services.start(tmp_path, storage_url=server.url)
        server.kill()
        shown, message = await asyncio.to_thread(DOORS[door], service, tmp_path / "state", TEXT)
    assert shown.startswith(TEXT[:1000])
    assert "not stored" in message
    assert service.failures() == []


async def test_redis_killed_under_load_is_503_within_a_second_and_the_first_call_after_it_is_served(
    services: Services, tmp_path: Path
) -> None:
    kept: list[Kept] = []
    refused: list[float] = []
    is_dead = asyncio.Event()

    async def write(client: httpx.AsyncClient, number: int) -> None:
        sent = 0
        while len(refused) < 3 * WRITERS:
            sent += 1
            name = f"away-{number}-{sent}"
            call, watch = Call("away", text_of(name, 20_000), name), Stopwatch(service.pid)
            answer = await call.send(client)
            if answer.status_code == 201:
                kept.append(Kept.of(call, answer))
                continue
            if not is_dead.is_set():
                # On a busy machine Redis may exceed its time limit.
                continue
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (503, "store_unavailable")
            assert problem["stored"] is False
            refused.append(watch.seconds)

    with RedisServer(tmp_path / "redis", aof="always") as server:
        service = await services.start(tmp_path, storage_url=server.url)
        async with service.client() as client:
            async with asyncio.TaskGroup() as tasks:
                for number in range(WRITERS):
                    tasks.create_task(write(client, number))
                while len(kept) < 2 * WRITERS:
                    await asyncio.sleep(0.01)
                is_dead.set()
                server.kill()
            assert max(refused) < 1.0
            server.start()
            # Nothing is sent to a server that did not answer for a second: the first call after it is served.
            await asyncio.sleep(1.1)
            last = Call("away", text_of("last", 20_000), "last")
            answer = await last.send(client)
            assert answer.status_code == 201, answer.text
            kept.append(Kept.of(last, answer))
            assert [fault for one in kept for fault in await read_back(client, one)] == []
            assert audit.misbooked(kept, await audit.tool_entries(client)) == []
        assert service.failures() == []
