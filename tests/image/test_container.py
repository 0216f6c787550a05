"""The image as docs/deploy.md runs it: any user, a read-only root, no capability; a stop loses nothing."""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest
from podman import IMAGE, ROOT, eventually, is_ready, podman, size_of

from domain import __version__
from tests.redis_server import free_port

NAME = "spillgate-tested"
TEXT = "".join(f"line {number}\n" for number in range(20_000))
GUARDED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A directory that users of any number can be given."""
    path = tmp_path / "volume"
    path.mkdir(mode=0o700)
    yield path
    podman("rm", "--force", NAME, check=False)


@contextmanager
def started(volume: Path, user: int, port: int) -> Iterator[httpx.Client]:
    """Runs the container as docs/deploy.md does, on a port of its own."""
    shutil.chown(volume, user, user)
    podman(
        *("run", "--detach", "--name", NAME, "--network", "host", "--stop-timeout", "35", *GUARDED),
        *("--user", f"{user}:{user}", "--env", f"SPILLGATE_PORT={port}"),
        *("--volume", f"{volume}:/var/lib/spillgate", IMAGE),
    )
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        eventually(lambda: is_ready(client), logs)
        yield client


def logs() -> str:
    return podman("logs", NAME).stdout


def inside(*command: str) -> str:
    return podman("exec", NAME, *command).stdout.strip()


@pytest.mark.parametrize("user", [10001, 12345])
def test_it_serves_as_any_user_with_a_read_only_root_and_keeps_what_it_stored(
    volume: Path, user: int
) -> None:
    port = free_port()
    with started(volume, user, port) as client:
        fields = {"tool_name": "execute_shell", "tool_call_id": "call-1", "content": TEXT}
        stored = client.post("/results", json=fields)
        assert stored.status_code == 201
        assert podman("exec", NAME, "spillgate", "healthcheck").returncode == 0
        assert podman("healthcheck", "run", NAME).returncode == 0
        status = dict(line.split(":\t", 1) for line in inside("cat", "/proc/1/status").splitlines())
        assert status["Uid"].split() == 4 * [str(user)]
        assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {0}
        assert status["NoNewPrivs"] == "1"
        for place in ("/x", "/venv/x", "/usr/x", "/home/x"):
            assert "Read-only file system" in podman("exec", NAME, "touch", place, check=False).stdout
        inside("touch", "/tmp/x", "/var/lib/spillgate/x")
    podman("stop", NAME)
    assert podman("inspect", "--format", "{{.State.ExitCode}}", NAME).stdout.strip() == "0"
    assert json.loads(logs().splitlines()[-1])["event"] == "stopped"
    podman("rm", NAME)
    with started(volume, user, port) as client:
        kept = client.get(f"/results/{stored.json()['handle']}/content")
        assert hashlib.sha256(kept.content).digest() == hashlib.sha256(TEXT.encode()).digest()
        again = client.post("/results", json=fields)
        assert again.json()["handle"] == stored.json()["handle"]
    podman("stop", NAME)


def test_a_volume_that_its_user_may_not_write_is_refused_by_name(volume: Path) -> None:
    shutil.chown(volume, 10001, 10001)
    mounted = ("--volume", f"{volume}:/var/lib/spillgate")
    port = ("--env", f"SPILLGATE_PORT={free_port()}")
    asked = ("run", "--name", NAME, "--network", "host", *GUARDED, "--user", "12345:12345", *port, *mounted)
    refused = podman(*asked, IMAGE, check=False)
    assert refused.returncode == 2
    assert "/var/lib/spillgate" in refused.stdout.splitlines()[-1]
    assert "Permission denied" in refused.stdout.splitlines()[-1]


def test_it_adds_what_the_docs_say_and_cannot_install(base: str) -> None:
    added = (size_of(IMAGE) - size_of(base)) // 1_000_000
    print(f"\nimage: {size_of(IMAGE) // 1_000_000} MB, {added} of them on top of its base")
    # docs/deploy.md, "One container".
    assert 150 < added <= 180
    tools = ["pip", "pip3", "hatchling", "uv", "strip"]
    looked = f"command -v {' '.join(tools)} || echo none of them"
    found = podman("run", "--rm", "--entrypoint", "sh", IMAGE, "-c", looked).stdout
    assert found.splitlines()[-1] == "none of them"
    version = podman("run", "--rm", IMAGE, "--version").stdout.split()[-1]
    assert IMAGE.endswith(f":{version}")


def test_it_has_the_extras() -> None:
    asked = ("run", "--rm", "--entrypoint", "python", IMAGE, "-c")
    assert podman(*asked, "import cryptography, obstore, opentelemetry.sdk, uvloop; print('there')").stdout


def test_its_sbom_names_each_python_and_debian_package_that_is_in_it(tmp_path: Path) -> None:
    saved, written = tmp_path / "image.tar", tmp_path / "sbom.json"
    podman("save", "--output", str(saved), IMAGE)
    subprocess.run(
        ["make", "--silent", "image-sbom", f"IMAGE=docker-archive:{saved}", f"SBOM={written}"],
        cwd=ROOT,
        check=True,
    )
    found = json.loads(written.read_text())["components"]
    named = {normal(part["purl"].partition("?")[0]) for part in found if "purl" in part}
    python = (
        "import importlib.metadata as m\nfor d in m.distributions(): print(f'pkg:pypi/{d.name}@{d.version}')"
    )
    asked = ("run", "--rm", "--entrypoint")
    pypi = {
        normal(line)
        for line in podman(*asked, "python", IMAGE, "-c", python).stdout.splitlines()
        if "pkg:" in line
    }
    assert f"pkg:pypi/spillgate@{__version__}" in pypi
    assert pypi <= named
    shown = podman(
        *asked, "dpkg-query", IMAGE, "--show", "--showformat", "deb ${Package}\n"
    ).stdout.splitlines()
    debian = {line.removeprefix("deb ") for line in shown if line.startswith("deb ")}
    assert "libc6" in debian
    assert debian <= {one.partition("@")[0].rpartition("/")[2] for one in named if one.startswith("pkg:deb/")}


def normal(package: str) -> str:
    """A URL of a package, with its name as PyPI writes it."""
    name, _, version = unquote(package).partition("@")
    return f"{re.sub('[-_.]+', '-', name).lower()}@{version}" if "pypi" in name else f"{name}@{version}"
