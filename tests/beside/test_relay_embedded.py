"""`spillgate mcp` where no service runs: the one that a relay starts for its user, and who shares it."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.beside.relay_client import HANDLE, SCRIPTED, RelayClient
from tests.faults.forking import run
from tests.faults.service_process import Services
from tests.redis_server import free_port


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A short path: that of a socket may have 107 bytes. A service that was started there is killed."""
    path = tmp_path_factory.mktemp("r")
    yield path
    for lock in path.glob("**/embedded/lock"):
        if not lock.is_symlink() and lock.read_text():
            kill(lock)


def kill(lock: Path) -> None:
    with suppress(ProcessLookupError):
        os.kill(int(lock.read_text().split()[0]), signal.SIGKILL)


def opened(place: Path, *options: str, **environment: Any) -> RelayClient:
    command = (sys.executable, SCRIPTED, str(place / "received"))
    environment = {"auto_start": "true", **environment}
    return RelayClient(*options, "--", *command, state=place / "state", **environment)


def stored(relay: RelayClient) -> str:
    """The handle of a result that was replaced."""
    said = relay.call("text", size=50_000)["content"][0]["text"]
    found = HANDLE.search(said)
    assert found is not None, relay.said()
    return found[0]


def lines(relay: RelayClient, handle: str) -> str:
    answer = relay.tool("tool_output_lines", handle=handle, offset=1, limit=1)
    text: str = answer["content"][0]["text"]
    return text


def test_relays_share_a_service_which_outlives_them(place: Path) -> None:
    """Its settings of ports and streams are not an operator's. A kill of it is seen by the next result."""
    settings = {"accounting_export": "-", "metrics_address": f"127.0.0.1:{free_port()}"}
    lock = place / "state" / "embedded" / "lock"
    with ExitStack() as stack:
        first, second, third = (stack.enter_context(opened(place, **settings)) for _ in range(3))
        handle = stored(first)
        service = lock.read_text()
        assert "line é of text" in lines(second, handle)
        assert first.end() == 0
        assert "line é of text" in lines(second, stored(second))
        assert lock.read_text() == service
        kill(lock)
        assert "line é of text" in lines(third, handle)
        assert lock.read_text() != service
        assert "line é of text" in lines(second, stored(third))
        assert third.said() == first.said() == b""


def test_relays_that_start_at_once_find_one_service(place: Path) -> None:
    with ExitStack() as stack:
        relays = [stack.enter_context(opened(place)) for _ in range(3)]
        for relay in relays:
            relay.send("tools/call", {"name": "do", "arguments": {"what": "text", "size": 50_000}})
        handles = [HANDLE.search(relay.read()["result"]["content"][0]["text"]) for relay in relays]
        for handle in handles:
            assert handle is not None
            assert "line é of text" in lines(relays[0], handle[0])


def test_every_tool_and_the_shell_reach_the_embedded_service(place: Path) -> None:
    with opened(place, "--embedded", url="http://192.0.2.1:9") as relay:
        rows = [{"id": number, "name": f"name {number}"} for number in range(2000)]
        said = relay.call("result", result={"content": [], "structuredContent": rows})["content"][0]["text"]
        handle = HANDLE.search(said)
        assert handle is not None
        for tool, arguments, found in (
            ("tool_output", {"extract": "name 1234"}, "name 1234"),
            ("tool_output_grep", {"pattern": "name 77\\b"}, "name 77"),
            ("tool_output_query", {"expression": "[?id == `1999`].name"}, "name 1999"),
        ):
            answer = relay.tool(tool, handle=handle[0], **arguments)
            assert found in answer["content"][0]["text"]
        environment = {**os.environ, "SPILLGATE_STORAGE_URL": f"disk://{place / 'state'}"}
        asked = run(("-m", "beside.main", "grep", handle[0], "name 1234"), environment, b"")
        assert (asked.returncode, b"name 1234" in asked.stdout) == (0, True)


def test_with_a_store_in_use_or_a_wrong_setting_the_model_gets_a_part(place: Path) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    with Services(elsewhere) as services:
        asyncio.run(services.start(place / "state", uds=str(elsewhere / "private" / "s")))
        with opened(place) as relay:
            for _ in range(2):
                said = relay.call("text", size=50_000)["content"][0]["text"]
                assert said.startswith("line é of text\n")
            assert b"is in use by another Spillgate process" in relay.said()
    long = place / ("x" * 100)
    long.mkdir()
    with opened(long) as relay:
        assert relay.call("text", size=50_000)["content"][0]["text"].startswith("line é of text\n")
        assert b"SPILLGATE_UDS is longer than 107 bytes" in relay.said()
        assert b"the one that was started ended with status 2: SPILLGATE_UDS is longer" in relay.said()


def test_a_link_in_place_of_the_lock_is_not_followed(place: Path) -> None:
    lock, target = place / "state" / "embedded" / "lock", place / "target"
    lock.parent.mkdir(parents=True)
    lock.symlink_to(target)
    with opened(place) as relay:
        assert relay.call("text", size=50_000)["content"][0]["text"].startswith("line é of text\n")
        assert b"`lock` is a link. Remove it." in relay.said()
    assert not target.exists()


NO_LOCKS = """
import fcntl
def flock(file, operation):
    raise OSError(37, 'No locks available')
fcntl.flock = flock
"""
SLOW = """
import subprocess
beside.embedded.START_SECONDS = 0.1
beside.relay.service_calls.PAUSE_SECONDS = 0
def listens_to_nobody(at_port, lock, log):
    nothing = subprocess.DEVNULL
    return subprocess.Popen(["sleep", "100"], stdin=nothing, stdout=nothing, stderr=log, pass_fds=(lock,))
beside.embedded._popen = listens_to_nobody
"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (NO_LOCKS, b"No locks available. The result is cut."),
        (SLOW, b"The service takes too long to start. The result is cut."),
    ],
    ids=["no locks", "slow"],
)
def test_without_a_service_that_starts_results_are_cut(place: Path, code: str, reason: bytes) -> None:
    program = (
        "-c",
        f"import beside.main as main, beside.relay.service_calls, beside.embedded\n{code}"
        "main.sys.exit(main.main())",
    )
    with opened(place, program=program) as relay:
        said = relay.call("text", size=50_000)["content"][0]["text"]
        assert said.startswith("line é of text\n")
        assert reason in relay.said()
        assert relay.end() == 0
