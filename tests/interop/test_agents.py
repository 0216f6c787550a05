"""Coding agents from the registry against the scripted model: that the model reads what a tool returned."""

from pathlib import Path

import pytest

from tests.interop.agents.model import Call, ScriptedModel
from tests.interop.agents.programs import Agent, ClaudeCode, Codex, CopilotCli, GeminiCli, OpenCode

pytestmark = pytest.mark.anyio

SHELLS = {
    ClaudeCode: Call("Bash", {"command": "echo tulip", "description": "Says it"}),
    Codex: Call("exec_command", {"cmd": "echo tulip"}),
    OpenCode: Call("bash", {"command": "echo tulip", "description": "Says it"}),
    CopilotCli: Call("bash", {"command": "echo tulip", "description": "Says it"}),
    GeminiCli: Call("run_shell_command", {"command": "echo tulip", "description": "Says it"}),
}


@pytest.mark.parametrize("kind", SHELLS)
async def test_an_agent_runs_a_command_for_the_model(kind: type[Agent], tmp_path: Path) -> None:
    with ScriptedModel() as model:
        agent = kind(tmp_path, model)
        model.script(SHELLS[kind], "All done.")
        ran = await agent.run("Say it.")
    assert ran.exit_code == 0, ran.stderr
    assert "All done." in ran.stdout
    assert [len(asked.results) for asked in model.asked] == [0, 1]
    assert "tulip" in model.asked[1].results[0]
