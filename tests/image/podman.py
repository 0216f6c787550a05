"""podman with its storage, networks and settings in `.image`, apart from the machine's own containers."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from app import __version__

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".image"
IMAGE = f"localhost/spillgate:{__version__}"
BASE = "localhost/spillgate-base:trixie"
START_SECONDS = 60.0

_CAP_SYS_RESOURCE = 1 << 24
_CA = "/etc/ssl/certs/ca-certificates.crt"
_SETTINGS = """
[engine]
runtime = "chosen"
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
chosen = ["{runtime}"]
[network]
network_backend = "netavark"
network_config_dir = "{place}/networks"
"""
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{place}/storage"
runroot = "{place}/run"
"""


def environment() -> dict[str, str]:
    """Writes podman's settings. Returns the environment that names them."""
    PLACE.mkdir(exist_ok=True)
    may_raise_limits = int(_status("CapEff"), 16) & _CAP_SYS_RESOURCE
    runtime = "/usr/sbin/runc" if may_raise_limits else str(Path(__file__).with_name("runc_within_limits.py"))
    named = {"CONTAINERS_CONF": _SETTINGS, "CONTAINERS_STORAGE_CONF": _STORAGE}
    for name, text in named.items():
        (PLACE / f"{name}.toml").write_text(text.format(place=PLACE, runtime=runtime))
    return os.environ | {name: str(PLACE / f"{name}.toml") for name in named}


def _status(name: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def podman(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Both streams of what a container prints are in `stdout`."""
    asked = ["podman", "--log-level", "error", *command]
    done = subprocess.run(
        asked, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0 or not check, f"{' '.join(asked)}: {done.stdout[-3000:]}"
    return done


def exists(image: str) -> bool:
    return podman("image", "exists", image, check=False).returncode == 0


def size_of(image: str) -> int:
    return int(podman("image", "inspect", "--format", "{{.Size}}", image).stdout)


def make_base() -> None:
    """A Debian with Python where the Dockerfile expects it, and redis-server: needs no registry of images."""
    rootfs = PLACE / "rootfs"
    packages = "python3,python3-venv,ca-certificates,redis-server"
    subprocess.run(["rm", "-rf", str(rootfs)], check=True)
    made = ["debootstrap", "--variant=minbase", f"--include={packages}", "trixie", str(rootfs)]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    # As in the image of Python: its own pip, and commands in /usr/local/bin.
    subprocess.run(["chroot", str(rootfs), "python3", "-m", "venv", "/usr/local"], check=True)
    subprocess.run(f"rm -rf {rootfs}/var/cache/apt/* {rootfs}/var/lib/apt/lists/*", shell=True, check=True)
    with subprocess.Popen(["tar", "-C", str(rootfs), "-cf", "-", "."], stdout=subprocess.PIPE) as tar:
        asked = ["podman", "import", "-", BASE]
        subprocess.run(asked, stdin=tar.stdout, env=environment(), check=True, capture_output=True)
    subprocess.run(["rm", "-rf", str(rootfs)], check=True)


def build(base: str, image: str) -> None:
    """Builds with the script of a release, for this machine's kind of processor. The build trusts the
    certificates that this machine trusts."""
    trusted = ["--volume", f"{_CA}:{_CA}:ro"] if Path(_CA).exists() else []
    # A list of an earlier build would get another member.
    for kind in ("manifest", "image"):
        podman(kind, "rm", image, check=False)
    digest = podman("image", "inspect", "--format", "{{.Digest}}", base).stdout.strip()
    asked = ["sh", "deploy/build-image.sh", f"{base.rpartition(':')[0]}@{digest}", image]
    chosen = {"CONTAINERS": "podman", "PLATFORMS": f"linux/{_architecture()}"}
    done = subprocess.run(
        [*asked, "--isolation", "chroot", "--network", "host", *trusted],
        env=environment() | chosen,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def _architecture() -> str:
    return podman("info", "--format", "{{.Host.Arch}}").stdout.strip()


def eventually(is_true: Callable[[], bool], logs: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, logs()
        time.sleep(0.1)


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
