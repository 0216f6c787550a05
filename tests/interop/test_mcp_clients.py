"""/mcp with clients of others: the official Python SDK in each mode, and coding agents."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest

from tests.faults.service_process import ROOT, Service
from tests.interop.agents.model import Call, ScriptedModel
from tests.interop.agents.programs import Agent, ClaudeCode, Codex, CopilotCli, GeminiCli, OpenCode

pytestmark = pytest.mark.anyio

PYTHON = ROOT / ".mcp" / "bin" / "python"
CLIENT = Path(__file__).with_name("mcp") / "sdk_client.py"
LOG = "".join(f"line {n} of the log {'ERROR' if n == 1234 else 'fine'}\n" for n in range(5000))


@pytest.fixture
async def client(shared_service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with shared_service.client() as client:
        yield client


async def keep(client: httpx.AsyncClient, **more: str) -> dict[str, str]:
    sent = {"session_id": "run-1", "tool_name": "read_log", "content": LOG, **more}
    told: dict[str, str] = (await client.post("/results", json=sent)).json()
    return told


@pytest.mark.parametrize(
    ("mode", "version", "unknown"),
    [("auto", "2026-07-28", -32602), ("legacy", "2025-11-25", -32002), ("2026-07-28", "2026-07-28", -32602)],
)
async def test_the_sdks_client_uses_all_of_it(
    client: httpx.AsyncClient, mode: str, version: str, unknown: int
) -> None:
    if not PYTHON.is_file():
        pytest.skip("the SDK is not installed: run `make interop`")
    handle = (await keep(client))["handle"]
    command = [str(PYTHON), str(CLIENT), f"{client.base_url}/mcp", mode, handle]
    ran = await anyio.run_process(command, env={"PYTHONWARNINGS": "error"})
    told = json.loads(ran.stdout)
    assert told["version"] == version
    assert told["instructions"] is None
    assert told["tools"] == ["tool_output"]
    assert told["answer"].startswith(f"ABSTRACT FROM TOOL OUTPUT read_log WITH HANDLE {handle}, STRATEGY:")
    assert "line 1234 of the log ERROR" in told["answer"]
    assert not told["failed"]
    assert told["is_fault"]
    assert told["fault"].startswith("No stored result has this handle.")
    assert told["resources"] == []
    assert told["templates"] == ["spillgate://{session}/{file}"]
    assert told["read"].startswith("1: line 0 of the log fine\n2: ")
    assert (told["unknown resource"], told["no prompts"]) == (unknown, -32601)


CALLS = {
    ClaudeCode: ("claude-code", "mcp__spillgate__tool_output"),
    Codex: ("codex", "tool_output"),
    OpenCode: ("opencode", "spillgate_tool_output"),
    CopilotCli: ("copilot", "spillgate-tool_output"),
    GeminiCli: ("gemini", "mcp_spillgate_tool_output"),
}
"""The door of the agent, and the name by which the model calls the tool."""

READERS = {ClaudeCode: "ReadMcpResourceTool", Codex: "read_mcp_resource", OpenCode: "read_mcp_resource"}
"""The tool by which the model reads a resource, in the agents that have one."""


@pytest.mark.parametrize("kind", CALLS)
async def test_a_coding_agents_model_asks_about_a_handle(
    shared_service: Service, client: httpx.AsyncClient, kind: type[Agent], tmp_path: Path
) -> None:
    door, tool = CALLS[kind]
    told = await keep(client, door=door)
    with ScriptedModel() as model:
        agent = kind(tmp_path, model)
        agent.add_mcp("spillgate", f"{client.base_url}/mcp")
        arguments = {"handle": told["handle"], "extract": "ERROR"}
        resource = {"server": "spillgate", "uri": f"spillgate://{told['handle']}?offset=1230"}
        reads = [Call(READERS[kind], resource)] if kind in READERS else []
        model.script(Call(tool, arguments), *reads, "All done.")
        ran = await agent.run(told["content"])
    assert ran.exit_code == 0, ran.stderr
    first, *_, last = model.asked
    # The model has our tool from the start.
    assert [name for name in first.tools if "tool_output" in name] == [tool]
    assert f"ABSTRACT FROM TOOL OUTPUT read_log WITH HANDLE {told['handle']}, STRATEGY:" in last.results[0]
    assert "line 1234 of the log ERROR" in last.results[0]
    for text in last.results[1:]:
        assert "1235: line 1234 of the log ERROR" in text
    assert len(last.results) == 1 + len(reads)
    assert shared_service.failures() == []
