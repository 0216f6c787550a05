"""The image: built from what is there and locked; and the keys that it is given."""

import os
import re
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
from manifests import DEPLOY, ROOT, containers, dockerfile, redis_server, services, workloads

from app import __version__
from app.edge.api_keys import load_keys


def test_the_image_is_built_from_what_the_build_may_see() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    copied = {source for line in copies for source in line.split()}
    assert "*" in ignored
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    assert all((ROOT / source).exists() for source in copied)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert set(build["targets"]["wheel"]["packages"]) <= copied


def test_the_build_backend_is_locked_with_hashes() -> None:
    blocks = re.split(r"^(?=\S)", (DEPLOY / "build.lock").read_text(), flags=re.MULTILINE)[1:]
    assert {"editables", "hatchling"} <= {block.partition("==")[0] for block in blocks}
    assert all("==" in block and "--hash=sha256:" in block for block in blocks)


def test_every_image_has_a_tag_and_ours_is_this_version() -> None:
    images = [one["image"] for one in services.values()]
    images += [one["image"] for workload in workloads for one in containers(workload)]
    for image in images:
        name, _, tag = image.partition(":")
        assert tag not in ("", "latest")
        assert name != "spillgate" or tag == __version__
    assert services["redis"]["image"] == redis_server["image"]


@pytest.mark.parametrize(
    "base", ["python:3.13-slim-trixie", "python@sha256:123", "python:3.13@sha256:latest"]
)
def test_an_image_of_a_release_is_built_on_a_digest_alone(base: str) -> None:
    asked = ["sh", str(DEPLOY / "build-image.sh"), base, "spillgate:0.2.0"]
    refused = subprocess.run(asked, capture_output=True, text=True)
    assert refused.returncode == 2
    assert f"Name the base by its digest: {base}@sha256:..." in refused.stderr


def test_an_image_of_a_release_has_the_extras_and_is_for_two_architectures(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    docker.chmod(0o755)
    base = f"python:3.13-slim-trixie@sha256:{'0' * 64}"
    asked = ["sh", str(DEPLOY / "build-image.sh"), base, "registry.example.com/spillgate:0.2.0", "--push"]
    done = subprocess.run(
        asked, capture_output=True, text=True, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    )
    words = done.stdout.splitlines()
    assert words[:2] == ["buildx", "build"]
    assert {f"PYTHON={base}", "LOCK=requirements-extras.lock", "linux/amd64,linux/arm64", "--push"} <= set(
        words
    )
    assert {"--sbom=true", "--provenance=mode=max", "registry.example.com/spillgate:0.2.0"} <= set(words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where new-key.sh lies."""
    shutil.copy(DEPLOY / "new-key.sh", tmp_path)
    return tmp_path


def make_key(folder: Path, *tenant: str) -> int:
    return subprocess.run(["sh", str(folder / "new-key.sh"), *tenant], capture_output=True).returncode


def test_new_keys_are_those_of_their_tenants_and_closed_to_others(folder: Path) -> None:
    assert make_key(folder) == 0
    assert make_key(folder, "team-a") == 0
    made = folder / "secrets"
    assert sorted(key.tenant for key in load_keys(made / "keys").keys.values()) == ["default", "team-a"]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.iterdir()}
    assert modes == {"keys": 0o644, "default.key": 0o600, "team-a.key": 0o600}
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_a_key_is_not_overwritten(folder: Path) -> None:
    assert make_key(folder) == 0
    before = {path: path.read_bytes() for path in (folder / "secrets").iterdir()}
    assert make_key(folder) == 1
    assert {path: path.read_bytes() for path in (folder / "secrets").iterdir()} == before


@pytest.mark.parametrize("tenant", ["", "../other", "a/b", ".hidden", "a b", "ö"])
def test_a_tenant_is_no_path(folder: Path, tenant: str) -> None:
    assert make_key(folder, tenant) == 2
    assert not (folder / "secrets").exists()
