"""LiteLLM's proxy in a process of its own: an OpenAI-compatible server that this project did not write."""

import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("INTEROP_VENV") or ROOT / ".interop") / "bin" / "litellm"
KEY = "sk-interop"
BACKEND_KEY = "backend-key"
MODEL = "small"

CONFIG = Path(__file__).with_name("litellm.yaml")
_START_SECONDS = 120


@asynccontextmanager
async def running(
    backend_url: str, folder: Path, config: Path = CONFIG, **environment: str
) -> AsyncIterator[str]:
    """Its base URL. It asks the backend, and no other host: no price list, no telemetry, no proxy, and
    nothing of this environment's keys."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "BACKEND_URL": backend_url,
        "BACKEND_KEY": BACKEND_KEY,
        "PROXY_KEY": KEY,
        **environment,
    }
    command = [str(PROGRAM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "litellm.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*command, "--telemetry", "False"], cwd=folder, env=environ, stdout=said, stderr=said
        )
    try:
        await _wait(port, process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    async with httpx.AsyncClient(trust_env=False) as client:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                answer = await client.get(f"http://127.0.0.1:{port}/health/liveliness")
            except httpx.TransportError:
                await anyio.sleep(0.1)
                continue
            assert answer.is_success
            return
    raise AssertionError(f"LiteLLM did not start: {log.read_text()[-2000:]}")
