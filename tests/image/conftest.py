"""The image, built once for all tests, where this machine may run containers."""

import os
import shutil
from collections.abc import Iterator

import pytest
from podman import BASE, IMAGE, build, exists, make_base, podman


@pytest.fixture(scope="session", autouse=True)
def image() -> Iterator[str]:
    """Skips the tests with the reason where there are no containers. `BASE=python:3.13-slim-trixie` takes
    that image, and Redis', from a registry."""
    missing = [name for name in ("podman", "runc", "debootstrap", "iptables") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root, and podman, runc, debootstrap, iptables; missing: {missing or 'root'}")
    base = os.environ.get("BASE", BASE)
    if base == BASE and not exists(BASE):
        make_base()
    tried = podman("run", "--rm", base, "true", check=False)
    if tried.returncode != 0:
        pytest.skip(f"this kernel does not run containers: {tried.stdout.strip()[-300:]}")
    build(base, IMAGE)
    if base == BASE:
        podman("tag", BASE, "docker.io/library/redis:8.2-bookworm")
    yield base
    podman("rm", "--all", "--force", "--volumes")


@pytest.fixture
def base(image: str) -> str:
    return image
