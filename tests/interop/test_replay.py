"""`spillgate replay` reads a session that a real agent wrote: each result as the model was shown it."""

from pathlib import Path
from typing import NamedTuple

import pytest

from replay.runs import Notes
from replay.sources import found_files, runs_of
from replay.uses import uses_of
from tests.interop.agents.model import Call, ScriptedModel
from tests.interop.agents.programs import Agent, ClaudeCode, Codex, CopilotCli, GeminiCli, OpenCode
from tests.interop.test_agent_hooks import DEMO, placed

pytestmark = pytest.mark.anyio

FACT = "item-4711-of-the-list"
COMMANDS = ("printf 'item-%s-of-the-list' 4711", "seq 1 60000", "cat nowhere")


class Case(NamedTuple):
    """`folder` is where the client keeps its transcripts, below its home, as a glob. `others` are
    called after the three commands, of whose output the client cuts the second. `tools` are named as its
    hooks name them."""

    client: str
    agent: type[Agent]
    folder: str
    shell: str
    others: list[Call]
    tools: list[str]
    cut: set[int]


CASES = [
    Case(
        "claude-code",
        ClaudeCode,
        ".claude/projects",
        "Bash",
        [Call("Read", {"file_path": "{project}/small.txt"}), Call("mcp__demo__blob", {"n": 600})],
        ["Bash", "Bash", "Bash", "Read", "mcp__demo__blob"],
        {1},
    ),
    Case(
        "codex",
        Codex,
        ".codex/sessions",
        "exec_command",
        [Call("tool_search", {"query": "blob", "limit": 9}), Call("blob", {"n": 400})],
        ["Bash", "Bash", "Bash", "tool_search", "mcp__demo__blob"],
        {1},
    ),
    Case(
        "opencode",
        OpenCode,
        ".local/share/opencode",
        "bash",
        [Call("read", {"filePath": "{project}/small.txt"}), Call("demo_blob", {"n": 600})],
        ["bash", "bash", "bash", "read", "demo_blob"],
        {1},
    ),
    Case(
        "gemini",
        GeminiCli,
        ".gemini/tmp",
        "run_shell_command",
        [Call("read_file", {"file_path": "{project}/small.txt"}), Call("mcp_demo_blob", {"n": 600})],
        ["run_shell_command", "run_shell_command", "run_shell_command", "read_file", "mcp_demo_blob"],
        {1},
    ),
    Case(
        "copilot",
        CopilotCli,
        ".copilot/session-state/*/events.jsonl",
        "bash",
        [Call("view", {"path": "{project}/small.txt"}), Call("demo-blob", {"n": 600})],
        ["bash", "bash", "bash", "view", "demo-blob"],
        {1},
    ),
]


def calls(case: Case, project: Path) -> list[Call]:
    command = "cmd" if case.agent is Codex else "command"
    shells = [Call(case.shell, {command: line, "description": "Says it"}) for line in COMMANDS]
    return [placed(call, project) for call in (*shells, *case.others)]


def shown(texts: list[str]) -> list[str]:
    """The blocks of one result are joined with and without newlines."""
    return [text.replace("\n", "") for text in texts]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.client)
async def test_the_transcript_of_a_real_agent_is_read_whole(case: Case, tmp_path: Path) -> None:
    with ScriptedModel() as model:
        agent = case.agent(tmp_path, model)
        agent.add_mcp("demo", DEMO)
        (agent.project / "small.txt").write_text("one line\n")
        model.script(*calls(case, agent.project), f"It is {FACT}.")
        ran = await agent.run("Find the item.")
        assert FACT in ran.stdout, ran.stderr
    notes = Notes()
    folders = sorted(agent.home.glob(case.folder))
    runs = [run for file in found_files(folders, notes) for run in runs_of(file, notes)]
    assert (notes.unknown, notes.faults) == ({}, {})
    (run,) = runs
    assert (run.format, run.client) == (case.client, case.client)
    results = list(run.results)
    assert [result.tool for result in results] == case.tools
    assert {number for number, result in enumerate(results) if result.is_cut} == case.cut
    # The scripted model does not count the answer of tool_search among the results.
    read = [result.text for result in results if result.tool != "tool_search"]
    assert shown(read) == shown(model.asked[-1].results)
    assert len(list(run.turns)) == len(model.asked)
    assert all(turn.usage is not None for turn in run.turns)
    (use,) = [use for used in uses_of(run).by_step.values() for use in used]
    assert (use.literal, use.result) == (FACT, 0)
