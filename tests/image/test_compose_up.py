"""docker-compose.yml, run by podman-compose: both services, what is between them, and an outage of Redis."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from podman import ROOT, environment, eventually, is_ready, podman

from tests.redis_server import free_port

COMPOSE = str(ROOT / ".podman" / "bin" / "podman-compose")
SERVICE, REDIS = "spillgate_spillgate_1", "spillgate_redis_1"
TEXT = "".join(f"line {number}\n" for number in range(20_000))
Compose = Callable[..., None]


@pytest.fixture
def compose(tmp_path: Path) -> Iterator[Compose]:
    """Runs commands on a copy of docker-compose.yml, published at the port that the file `port` says."""
    port = free_port()
    published = (ROOT / "docker-compose.yml").read_text()
    assert "127.0.0.1:8377:8377" in published
    (tmp_path / "docker-compose.yml").write_text(published.replace("1:8377:8377", f"1:{port}:8377"))
    (tmp_path / "port").write_text(str(port))
    secrets = tmp_path / "deploy" / "secrets"
    made = ["keys", "new", "default", "--file", str(secrets / "keys"), "--out", str(secrets / "default.key")]
    subprocess.run([sys.executable, "-m", "beside.main", *made], cwd=ROOT, check=True, capture_output=True)
    (secrets / "keys").chmod(0o644)
    shutil.copytree(ROOT / "deploy" / "policy", tmp_path / "deploy" / "policy")

    def run(*command: str) -> None:
        done = subprocess.run(
            [COMPOSE, *command], cwd=tmp_path, env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]

    try:
        yield run
    finally:
        run("down", "--volumes")


@pytest.fixture
def client(compose: Compose, tmp_path: Path) -> Iterator[httpx.Client]:
    """With the key that `make key` makes, as docs/deploy.md does it."""
    compose("up", "--no-build", "--detach")
    key = (tmp_path / "deploy" / "secrets" / "default.key").read_text().strip()
    address = f"http://127.0.0.1:{(tmp_path / 'port').read_text()}"
    with httpx.Client(
        base_url=address, headers={"Authorization": f"Bearer {key}"}, trust_env=False
    ) as client:
        eventually(lambda: is_ready(client), lambda: podman("logs", SERVICE).stdout)
        yield client


def store(client: httpx.Client, call: str) -> dict[str, object]:
    fields = {"tool_name": "execute_shell", "tool_call_id": call, "content": f"{call}\n{TEXT}"}
    answer = client.post("/results", json=fields)
    assert answer.status_code == 201, answer.text
    found: dict[str, object] = answer.json()
    return found


def read(client: httpx.Client, handle: object) -> httpx.Response:
    return client.get(f"/results/{handle}/content")


def warnings(client: httpx.Client) -> list[str]:
    found: list[str] = client.get("/readyz").json()["warnings"]
    return found


def test_both_services_run_and_outlive_outage_stop_and_new_containers(
    compose: Compose, client: httpx.Client
) -> None:
    for name in (SERVICE, REDIS):
        assert podman("healthcheck", "run", name).returncode == 0
        assert "Read-only file system" in podman("exec", name, "touch", "/x", check=False).stdout
    assert httpx.get(f"{client.base_url}/sessions", trust_env=False).status_code == 401
    first = store(client, "first")
    assert first["durability"] == "aof"

    # Only spillgate reaches Redis: its network is internal, and no port is published.
    assert podman("port", REDIS).stdout == ""
    asked = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}"
    assert podman("inspect", "--format", asked, REDIS).stdout.split() == ["spillgate_storage"]
    assert podman("network", "inspect", "--format", "{{.Internal}}", "spillgate_storage").stdout == "true\n"

    podman("stop", REDIS)
    refused = client.post("/results", json={"tool_name": "t", "content": TEXT})
    assert (refused.status_code, refused.json()["stored"]) == (503, False)
    podman("start", REDIS)
    eventually(lambda: is_ready(client), lambda: podman("logs", SERVICE).stdout)
    assert store(client, "first")["handle"] == first["handle"]

    podman("stop", SERVICE)
    assert podman("inspect", "--format", "{{.State.ExitCode}}", SERVICE).stdout.strip() == "0"
    compose("down")
    compose("up", "--no-build", "--detach")
    eventually(lambda: is_ready(client), lambda: podman("logs", SERVICE).stdout)
    assert read(client, first["handle"]).text == f"first\n{TEXT}"
    entries = client.get("/accounting/entries").json()["entries"]
    assert [entry["tool_call_id"] for entry in entries if entry["type"] == "tool"] == ["first"]
