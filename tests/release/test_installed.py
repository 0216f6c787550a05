"""The packages as a newcomer has them: installed in an empty place, by the installers that the docs name."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from domain import __version__
from tests.release.conftest import EXTRAS, ROOT, TOOLS, Place, pythons
from tests.release.figures import report
from tests.started_services import end_services

HANDLE = re.compile(r"session-[^/ ]+/file-[0-9a-f-]{36}")
LARGE = "".join(f"{number}: a line of the output\n" for number in range(20_000))
SCRIPTED = ROOT / "tests" / "beside" / "scripted_mcp.py"
WHEEL = f"spillgate-{__version__}-py3-none-any.whl"


SENT = {
    "session_id": "s",
    "hook_event_name": "PostToolUse",
    "tool_name": "Bash",
    "tool_use_id": "one",
    "tool_input": {"command": "make"},
    "tool_response": {"stdout": LARGE, "stderr": "", "interrupted": False, "isImage": False},
}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def served(place: Place, *command: object) -> float:
    """Seconds of processor time until `serve` is ready; it then ends at SIGTERM with status 0."""
    port = free_port()
    words = [*map(str, command), "serve", "--port", str(port)]
    with subprocess.Popen(words, env=place.environment, cwd=place.project, stderr=subprocess.PIPE) as process:
        for _ in range(3000):
            time.sleep(0.02)
            assert process.poll() is None, process.stderr and process.stderr.read()
            try:
                if httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                continue
        else:
            raise AssertionError("it is not ready after a minute")
        seconds = processor_seconds(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    return seconds


def processor_seconds(process: int) -> float:
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def govern(place: Place, spillgate: object) -> None:
    """A governed Claude Code: its settings, the hook as Claude Code calls it, and a question."""
    place.run(spillgate, "hook", "install", "claude-code")
    settings = json.loads((place.home / ".claude" / "settings.json").read_text())
    [hook] = settings["hooks"]["PostToolUse"][0]["hooks"]
    shown = place.run("sh", "-c", hook["command"], stdin=json.dumps(SENT), hook_timeout_ms="60000")
    handle = HANDLE.search(shown)
    assert handle is not None, shown
    assert len(shown) < 2000
    assert "19999: a line" in place.run(spillgate, "grep", handle[0], "^19999:")
    assert "Results are governed now" in place.run(spillgate, "hook", "status", "claude-code")


def relay(place: Place, spillgate: object, python: str) -> None:
    """A relay before an MCP server."""
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    messages = [
        {"id": 1, "method": "initialize", "params": start},
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": "do", "arguments": {"what": "text", "size": 50_000}},
        },
    ]
    stdin = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    said = place.run(spillgate, "mcp", "--", python, SCRIPTED, place.project / "received", stdin=stdin)
    assert HANDLE.search(said), said


def processor_seconds_of(run: Callable[[], object]) -> float:
    """Of the processes that `run` starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bare_start(place: Place, python: object) -> float:
    """Seconds of processor time in which an interpreter starts."""
    return min(processor_seconds_of(lambda: place.run(python, "-I", "-c", "pass")) for _ in range(7))


def compiling_start(place: Place, python: object) -> float:
    """Seconds of processor time in which an interpreter compiles and imports a part of its own library, as an
    installed command does at its first start: what slows one slows the other."""
    nothing = f"pycache_prefix={place.home / 'nothing-compiled'}"
    library = (
        "import asyncio, argparse, concurrent.futures, email.message, http.client, logging.config, unittest"
    )
    return min(
        processor_seconds_of(lambda: place.run(python, "-IBX", nothing, "-c", library)) for _ in range(3)
    )


def test_a_hook_that_starts_the_service_is_fast(dist: Path, place: Place) -> None:
    """In what a slow or busy machine delays alike: starts of an interpreter for later calls; for the first
    call, which compiles the modules and starts the service, `compiling_start` (5.5 times on an idle
    machine)."""
    place.run(TOOLS / "uv", "tool", "install", "--quiet", "--python", sys.executable, dist / WHEEL)
    hook = (place.bin / "spillgate", "hook", "claude-code")

    # A busy machine may take longer for the start than a hook waits for it.
    def call() -> None:
        assert HANDLE.search(place.run(*hook, stdin=json.dumps(SENT), hook_timeout_ms="60000"))

    first = processor_seconds_of(call)
    lock = place.home / ".local/state/spillgate/embedded/lock"
    first += processor_seconds(int(lock.read_text().split()[0]))
    later = min(processor_seconds_of(call) for _ in range(7))
    bare = bare_start(place, sys.executable)
    report("hook that starts the service, processor time", first, 1.5, "s")
    report("later hooks, processor time", later * 1000, 100, "ms")
    assert first <= 9 * compiling_start(place, sys.executable)
    assert later <= 11 * bare


@pytest.mark.parametrize("version", pythons())
def test_uv_installs_the_tool(version: str, dist: Path, place: Place) -> None:
    wheel = dist / WHEEL
    place.run(TOOLS / "uv", "tool", "install", "--quiet", "--python", pythons()[version], wheel)
    spillgate = place.bin / "spillgate"
    assert place.run(spillgate, "--version") == f"spillgate {__version__}\n"
    started = served(place, spillgate)
    report(f"serve is ready, Python {version}, processor time", started, 1, "s")
    # 3 times on an idle machine; all modules are compiled.
    assert started <= 6 * compiling_start(place, pythons()[version])
    govern(place, spillgate)
    relay(place, spillgate, sys.executable)


def test_pipx_installs_the_tool(dist: Path, place: Place) -> None:
    place.run(TOOLS / "pipx", "install", "--quiet", "--python", sys.executable, dist / WHEEL)
    govern(place, place.bin / "spillgate")


def test_uvx_runs_it_from_the_file_and_from_the_source_distribution(dist: Path, place: Place) -> None:
    """The second of two runs from the wheel finds all that uv needs in its cache."""
    seconds = []
    for name in (WHEEL, WHEEL, f"spillgate-{__version__}.tar.gz"):
        end_services(place.home)
        command = (TOOLS / "uvx", "--quiet", "--python", sys.executable, "--from", dist / name, "spillgate")
        began = time.monotonic()
        text = place.run(*command, "pipe", stdin=LARGE)
        seconds.append(time.monotonic() - began)
        assert HANDLE.search(text)
    report("uvx from local files to the first handle message, warm cache", seconds[1], 10, "s")


def test_uvx_installs_a_hook_whose_command_stays(dist: Path, place: Place) -> None:
    """uvx itself runs from a cache, which may be emptied."""
    spillgate = place.bin / "spillgate"
    uvx = (TOOLS / "uvx", "--quiet", "--python", sys.executable, "--from", dist / WHEEL, "spillgate")
    assert f"{spillgate} hook" in place.run(*uvx, "hook", "install", "claude-code", "--dry-run")
    assert not spillgate.exists()
    assert "uv tool install" in place.run(*uvx, "hook", "install", "claude-code")
    assert "Nothing to change" in place.run(*uvx, "hook", "install", "claude-code")
    settings = (place.home / ".claude" / "settings.json").read_text()
    assert f"{spillgate} hook" in settings
    assert place.environment["UV_CACHE_DIR"] not in settings
    assert place.home in spillgate.resolve().parents
    govern(place, spillgate)


def test_the_extras_are_installed_and_used(dist: Path, place: Place) -> None:
    wheel = f"{dist / WHEEL}[{','.join(EXTRAS)}]"
    place.run(TOOLS / "uv", "tool", "install", "--quiet", "--python", sys.executable, wheel)
    python = place.home / ".local/share/uv/tools/spillgate/bin/python"
    place.run(python, "-P", "-c", "import asyncpg, cryptography, obstore, opentelemetry.sdk.trace")
    keys = place.project / "keys"
    keys.write_text(f"one:{'ab' * 32}\n")
    keys.chmod(0o600)
    checked = place.run(place.bin / "spillgate", "check-config", storage_key_file=str(keys))
    assert str(keys) in checked


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize(
    "platform", ["x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin"]
)
def test_all_it_needs_has_wheels(version: str, platform: str, dist: Path, place: Place) -> None:
    """Also for systems and interpreters that this machine lacks."""
    options = ("--python-version", version, "--python-platform", platform, "--only-binary", ":all:")
    wheel = f"{dist / WHEEL}[{','.join(EXTRAS)}]"
    target = ("--target", place.project / "packages")
    place.run(TOOLS / "uv", "pip", "install", "--quiet", "--dry-run", *target, *options, wheel)


AGENT = """
import sys
from spillgate import Spillgate
with Spillgate() as gate:
    print(gate.govern("execute_shell", "one", sys.stdin.read()))
"""


def test_a_python_agent_uses_the_client_beside_the_service(dist: Path, place: Place) -> None:
    """They are two packages in two environments: the client brings none of the service."""
    place.run(TOOLS / "uv", "tool", "install", "--quiet", "--python", sys.executable, dist / WHEEL)
    place.run(TOOLS / "uv", "venv", "--quiet", "--python", sys.executable, place.project / "venv")
    python = place.project / "venv" / "bin" / "python"
    client = dist / f"spillgate_client-{__version__}-py3-none-any.whl"
    place.run(TOOLS / "uv", "pip", "install", "--quiet", "--python", python, client)
    place.run(place.bin / "spillgate", "service", "start", port=str(free_port()))
    assert HANDLE.search(place.run(python, "-c", AGENT, stdin=LARGE))
    missing = place.run(
        python, "-c", "import importlib.util as u; print(u.find_spec('app'), u.find_spec('fastapi'))"
    )
    assert missing == "None None\n"


SCRIPT = """
import { Spillgate } from "spillgate-client";
const gate = new Spillgate();
console.log(JSON.stringify(await gate.govern("execute_shell", "one", process.argv[2])));
"""


def test_a_typescript_agent_uses_the_npm_package(dist: Path, place: Place) -> None:
    place.run(TOOLS / "uv", "tool", "install", "--quiet", "--python", sys.executable, dist / WHEEL)
    place.run(place.bin / "spillgate", "service", "start", port=str(free_port()))
    (place.project / "package.json").write_text('{"private": true, "type": "module"}')
    packed = dist / f"spillgate-client-{__version__}.tgz"
    place.run("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", packed)
    assert [path.name for path in (place.project / "node_modules").glob("[!.]*")] == ["spillgate-client"]
    (place.project / "agent.js").write_text(SCRIPT)
    assert HANDLE.search(place.run("node", "agent.js", LARGE[:100_000]))
