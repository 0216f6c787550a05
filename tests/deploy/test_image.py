"""The image: built from what is there and locked; and the keys that it is given."""

import os
import re
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
from manifests import DEPLOY, ROOT, containers, dockerfile, redis_server, services, workloads

from app import __version__
from app.http.edge.api_keys import load_keys


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


def make_key(folder: Path, **of: str) -> int:
    asked = [f"{name.upper()}={value}" for name, value in of.items()]
    # Not to be built again: the tests run in this environment.
    make = ["make", "--assume-old", ".venv/.run", "key", f"SECRETS={folder / 'secrets'}"]
    done = subprocess.run([*make, *asked], cwd=ROOT, capture_output=True)
    return done.returncode


def test_make_key_makes_keys_with_role_name_and_end_closed_to_others(tmp_path: Path) -> None:
    assert make_key(tmp_path) == 0
    assert make_key(tmp_path, tenant="ops", role="metrics", name="prometheus", expires="2099-12-31") == 0
    made = tmp_path / "secrets"
    first, second = sorted(load_keys(made / "keys").keys.values())
    assert (first.tenant, first.role, first.expires) == ("default", "agent", None)
    assert (second.tenant, second.role, second.name) == ("ops", "metrics", "prometheus")
    assert second.expires == 4_102_358_400
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.iterdir()}
    assert modes == {"keys": 0o644, "default.key": 0o600, "prometheus.key": 0o600}
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    # A key is not overwritten, and no other line is added.
    assert make_key(tmp_path) != 0
    assert len(load_keys(made / "keys").keys) == 2
