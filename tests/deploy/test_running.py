"""The commands of the manifests and the Makefile, run: the sidecar's probes, Redis' options."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from manifests import ROOT, environment, option, redis_server, services, sidecar, size

from tests.faults.forking import start_process
from tests.redis_server import free_port, redis_binary

START_SECONDS = 30


@pytest.fixture
def listening() -> Iterator[str]:
    """The socket of a service that runs as the sidecar does."""
    folder = Path(tempfile.mkdtemp(prefix="spillgate"))
    uds = folder / "private" / "s.sock"
    given = {"SPILLGATE_UDS": str(uds), "XDG_STATE_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    service = start_process(("-m", "beside.main", "serve"), given, folder / "log")
    try:
        deadline = time.monotonic() + START_SECONDS
        while not uds.exists():
            assert service.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield str(uds)
    finally:
        service.terminate()
        service.join(START_SECONDS)
        shutil.rmtree(folder)


def run_probe(command: tuple[str, ...], uds: str) -> int:
    given = environment(sidecar)["SPILLGATE_UDS"]
    first, *rest = [part.replace(given, uds) for part in command]
    start = {"spillgate": [sys.executable, "-m", "beside.main"], "python": [sys.executable]}[first]
    return subprocess.run([*start, *rest], cwd=ROOT, stderr=subprocess.DEVNULL, timeout=30).returncode


def test_the_probes_of_the_sidecar_tell_a_running_one_from_none(listening: str) -> None:
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    for command in {tuple(sidecar[name]["exec"]["command"]) for name in probes}:
        assert run_probe(command, listening) == 0
        assert run_probe(command, f"{listening}.none") == 1


@pytest.mark.parametrize(
    "command", [services["redis"]["command"], redis_server["args"]], ids=["compose", "kubernetes"]
)
def test_redis_takes_its_options_and_keeps_what_it_acknowledged(command: list[str], tmp_path: Path) -> None:
    binary, port = redis_binary(), free_port()
    given = [part.replace("$(REDISCLI_AUTH)", "secret").replace("/data", str(tmp_path)) for part in command]
    client = redis.Redis(port=port, password="secret" if "secret" in given else None, decode_responses=True)
    start = [binary, *given, "--bind", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(start, stdout=subprocess.DEVNULL) as server, client:
        try:
            wait_for(client)
            in_force: Any = client.config_get("append*", "maxmemory*", "save", "dir")
            client.set("kept", "yes")
        finally:
            server.kill()
    assert (in_force["appendonly"], in_force["appendfsync"]) == ("yes", "always")
    asked = size(option(command, "--maxmemory"))
    assert (in_force["maxmemory"], in_force["maxmemory-policy"]) == (str(asked), "noeviction")
    assert (in_force["save"], in_force["dir"]) == ("", str(tmp_path))
    assert any(b"kept" in path.read_bytes() for path in (tmp_path / "appendonlydir").iterdir())


def wait_for(client: "redis.Redis[Any]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            client.ping()
        except redis.ConnectionError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError
