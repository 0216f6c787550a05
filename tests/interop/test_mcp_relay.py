"""`spillgate mcp` between parts of others: the Python SDK's client and server, servers that people use, and
coding agents. What passes through the relay is compared with what the client gets without it."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policies.outcomes.store import TOO_LARGE
from tests.beside.relay_client import HANDLE
from tests.interop.agents.model import Asked, Call, ScriptedModel
from tests.interop.agents.programs import Agent, ClaudeCode, Codex, CopilotCli, GeminiCli, OpenCode

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
SDK = ROOT / "tests" / "interop" / "mcp"
PYTHON = ROOT / ".mcp" / "bin" / "python"
RELAY = [sys.executable, str(ROOT / "beside" / "main.py"), "mcp"]
OUR_TOOLS = ["tool_output"]
SERVER = [str(PYTHON), str(SDK / "sdk_server.py")]
# A row of the structured list is a block of its own: all of them are one text, and one message.
LARGE = {"log", "rows", "git_show {'revision': 'HEAD'}"}

Got = dict[str, Any]


@pytest.fixture(autouse=True)
def installed() -> None:
    if not PYTHON.is_file():
        pytest.skip("the MCP SDK is not installed: run `make interop`")


@pytest.fixture(scope="module")
def http_server() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*SERVER, str(port)], stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """One commit of 5,000 lines."""
    path = tmp_path / "repository"
    path.mkdir()
    (path / "log").write_text("".join(f"line {n}\n" for n in range(5000)))
    git = ["git", "-C", str(path), "-c", "user.name=x", "-c", "user.email=x@localhost"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "All of it"]):
        subprocess.run([*git, *arguments], check=True)
    return str(path)


def use(mode: str, what: list[str], target: str | list[str], state: Path) -> Got:
    """What the SDK's client got."""
    home = state.with_name(f"{state.name}-home")
    env = {"SPILLGATE_STORAGE_URL": f"disk://{state}", "XDG_STATE_HOME": str(home)}
    env |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    arguments = [json.dumps(one) for one in (what, target, env if target[0] == RELAY[0] else {})]
    ran = subprocess.run(
        [PYTHON, SDK / "sdk_use.py", mode, *arguments], capture_output=True, env=dict(os.environ), timeout=120
    )
    assert ran.returncode == 0, ran.stderr.decode()
    got: Got = json.loads(ran.stdout)
    return got


def check_same(direct: Got, relayed: Got) -> None:
    """All but the three kinds of message that the relay changes is the same."""
    theirs, ours = relayed["tools"][: len(direct["tools"])], relayed["tools"][len(direct["tools"]) :]
    assert [tool["name"] for tool in ours] == OUR_TOOLS
    for tool in direct["tools"]:
        tool.pop("outputSchema", None)
        tool["_meta"] = {**(tool.get("_meta") or {}), "anthropic/maxResultSizeChars": 500_000}
    assert theirs == direct["tools"]
    questions = relayed["questions"]
    for name, found in direct.items():
        if name in ("tools", "questions"):
            continue
        if name not in LARGE:
            assert relayed[name] == found, name
            continue
        kept = {key: one for key, one in found.items() if key not in ("content", "structuredContent")}
        assert {key: one for key, one in relayed[name].items() if key != "content"} == kept
        [block] = relayed[name]["content"]
        assert block["text"].startswith(f"{TOO_LARGE} ("), name
        lines = "\n".join(block["text"] for block in found["content"]).split("\n")
        assert questions.pop(0)["content"][0]["text"].startswith(f"2: {lines[1]}\n")
    assert questions == []


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("what", ["sdk", "git", "time"])
def test_a_server_on_stdio(mode: str, what: str, repository: str, tmp_path: Path) -> None:
    """Two of them are in the registry; the newcomer's line before them is all that changes."""
    used, server = {
        "sdk": (["sdk"], SERVER),
        "git": (["git", repository], [str(PYTHON), "-m", "mcp_server_git"]),
        "time": (["time"], [str(PYTHON), "-m", "mcp_server_time", "--local-timezone", "UTC"]),
    }[what]
    direct = use(mode, used, server, tmp_path / "state")
    relayed = use(mode, used, [*RELAY, "--", *server], tmp_path / "state")
    check_same(direct, relayed)
    assert direct["version"] == ("2025-11-25" if mode == "legacy" else "2026-07-28")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_server_over_http(mode: str, http_server: str, tmp_path: Path) -> None:
    direct = use(mode, ["sdk"], http_server, tmp_path / "state")
    relayed = use(mode, ["sdk"], [*RELAY, "--url", http_server], tmp_path / "state")
    check_same(direct, relayed)


NAMES = {
    ClaudeCode: ("mcp__everything__log", "mcp__everything__tool_output"),
    Codex: ("log", "tool_output"),
    OpenCode: ("everything_log", "everything_tool_output"),
    CopilotCli: ("everything-log", "everything-tool_output"),
    GeminiCli: ("mcp_everything_log", "mcp_everything_tool_output"),
}


LATE = (ClaudeCode, OpenCode, CopilotCli)


@pytest.mark.parametrize("kind", NAMES)
async def test_a_coding_agents_model_reads_the_message_and_asks(kind: type[Agent], tmp_path: Path) -> None:
    """Without a service, and with no other change than the words before the server's command. In clients that
    ask for the tools again, the tool is there once something is stored, else from the start."""
    log, tool_output = NAMES[kind]

    def ask(asked: Asked) -> Call:
        handle = HANDLE.search(asked.results[-1])
        assert handle is not None, asked.results
        return Call(tool_output, {"handle": handle[0], "extract": "request 4711"})

    with ScriptedModel() as model:
        agent = kind(tmp_path, model)
        agent.environ["PYTHONPATH"] = str(ROOT)
        agent.add_mcp("everything", [*RELAY, "--name", "everything", "--embedded", "--", *SERVER])
        if kind is Codex:
            # Else its first turn begins without a server that takes more than a second to start.
            agent.servers["everything"]["required"] = True
        model.script(Call(log, {"lines": 5000}), ask, "All done.")
        ran = await agent.run("Read the log.")
    assert ran.exit_code == 0, ran.stderr
    message, answer = model.asked[-1].results
    assert f"{TOO_LARGE} (" in message
    assert f"{tool_output}(handle = " in message
    assert len(message) < 1000
    offered = [tool_output in asked.tools for asked in model.asked]
    # Codex shows the tools of MCP servers by name only once its model has searched for them.
    if kind is not Codex:
        assert offered == [kind not in LATE, True, True]
    assert "4711 INFO request 4711 was served" in answer


# Copilot CLI begins without servers that take more than a moment to start: five do.
@pytest.mark.parametrize("kind", [ClaudeCode, OpenCode, GeminiCli])
async def test_with_five_relays_the_model_sees_one_tool_that_answers_for_all(
    kind: type[Agent], tmp_path: Path
) -> None:
    log, tool_output = (name.replace("everything", "{}") for name in NAMES[kind])
    own = tool_output.format("s1") if kind in LATE else "tool_output"

    def offered(asked: Asked) -> list[str]:
        return [name for name in asked.tools if name.endswith("tool_output")]

    def ask(asked: Asked) -> Call:
        handle = HANDLE.search(asked.results[-1])
        assert handle is not None, asked.results
        return Call(offered(asked)[0], {"handle": handle[0], "pattern": "request 4711 "})

    with ScriptedModel() as model:
        agent = kind(tmp_path, model)
        agent.environ["PYTHONPATH"] = str(ROOT)
        for name in ("s0", "s1", "s2", "s3", "s4"):
            agent.add_mcp(name, [*RELAY, "--name", name, "--embedded", "--", *SERVER])
        calls = [Call(log.format(name), {"lines": 5000}) for name in ("s1", "s3")]
        model.script(calls[0], ask, calls[1], ask, "All done.")
        ran = await agent.run("Read the logs.")
    assert ran.exit_code == 0, ran.stderr
    last = model.asked[-1]
    assert len(offered(last)) == 1
    assert own in offered(last)[0]
    for message in last.results[::2]:
        assert f"{offered(last)[0]}(handle = " in message
    for answer in last.results[1::2]:
        assert "4712: 4711 INFO request 4711 was served" in answer
