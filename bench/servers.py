"""The servers under measurement: processes of their own, same settings, one core each."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
SERVER_CORE, LOAD_CORE = 0, 1


@dataclass
class Server:
    name: str
    port: int
    folder: Path
    process: psutil.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def rss(self) -> int:
        """Resident bytes now."""
        return int(self.process.memory_info().rss)

    @property
    def peak(self) -> int:
        """Most resident bytes so far."""
        return peak_of(self.process.pid)

    @property
    def cpu_seconds(self) -> float:
        """Processor time of all its threads, to the nanosecond, by the kernel's number for another process's
        clock (clock_getcpuclockid(3)): psutil gives hundredths of a second, more than a round may take."""
        return time.clock_gettime((~self.process.pid << 3) | 2)


def peak_of(pid: int) -> int:
    """Most resident bytes of a process so far, as the kernel counted."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def pin(pid: int, core: int) -> None:
    """Where there are two cores to share out."""
    if len(os.sched_getaffinity(0)) > 1 or pid:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(pid, {core})


def _command(name: str, port: int) -> list[str]:
    if name == "spillgate":
        return [sys.executable, "-m", "beside.main", "serve", "--port", str(port)]
    plain = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
    return [sys.executable, "-m", "uvicorn", f"bench.{name}:app", "--port", str(port), *plain]


@contextlib.contextmanager
def running(
    name: str,
    *,
    command: Sequence[str] = (),
    wait: float = 30,
    pinned: bool = True,
    tree: Path = ROOT,
    disk: Path | None = None,
    **settings: str,
) -> Iterator[Server]:
    """Starts `spillgate`, `bare`, `twin` or `unavoidable` as it is in `tree`, or another server by its
    `command`, to which the port is added; ends it and removes its folder, which is made in `disk`. Raises
    RuntimeError if it does not answer within `wait` seconds."""
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=disk))
    port = free_port()
    environ = {
        **os.environ,
        "TWIN_FOLDER": str(folder),
        # The hooks of the person who measures do not find it.
        "XDG_STATE_HOME": str(folder),
        "SPILLGATE_STORAGE_URL": f"disk://{folder}",
        "SPILLGATE_STORAGE_MAX_BYTES": "0",
        "SPILLGATE_LOG_LEVEL": "error",
        **settings,
    }
    started = [*command, "--port", str(port)] if command else _command(name, port)
    # The log of another server is not shown.
    out = subprocess.DEVNULL if command else None
    process = subprocess.Popen(started, cwd=folder if command else tree, env=environ, stdout=out, stderr=out)
    try:
        if pinned:
            pin(process.pid, SERVER_CORE)
        _wait(port, process, wait)
        yield Server(name, port, folder, psutil.Process(process.pid))
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(port: int, process: subprocess.Popen[bytes], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=1):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.01)
    raise RuntimeError("the server did not start")
