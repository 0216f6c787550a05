"""`spillgate hook install`, then the agent: large results are replaced, and the model asks about them."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest

from beside.hooks.status import _identities
from domain.references import UNRESOLVED
from policies.outcomes.store import TOO_LARGE
from tests.faults.service_process import Service, Services
from tests.interop.agents.model import Asked, Call, ScriptedModel
from tests.interop.agents.programs import ROOT, Agent, ClaudeCode, Codex, CopilotCli, OpenCode
from tests.keys import by, key_file
from tests.replay.replaying import report

pytestmark = pytest.mark.anyio

DEMO = [sys.executable, str(Path(__file__).with_name("demo_server.py"))]
LARGE = f"{TOO_LARGE} ("
FACT = "The tulip is kept in drawer 4711."

FILE = "".join(f"{n}: a line of the file\n" for n in range(1500)) + FACT + "\n"
COMMAND = f"seq 1 60000 && echo '{FACT}'"
# OpenCode 1.18 stops reading when the command exits, also without a plugin: the rest of the pipe is lost. It
# shows the last of the pieces that it read, at most 100 KB: without the second part that could be a piece of
# 5 KB, which the plugin leaves as it is.
WAIT = "until grep -qrs '{}' ~/.local/share/opencode/tool-output; do sleep 0.01; done"
OPENCODE_COMMAND = (
    f"{COMMAND} && {WAIT.format(FACT)} && seq 60001 64000 && echo 'The end.' && {WAIT.format('The end.')}"
)


class Case(NamedTuple):
    """How the model calls the tools of an agent, `ask`s a stored result, and reads and edits a file."""

    client: str
    agent: type[Agent]
    calls: list[Call]
    ask: str
    first: tuple[Call, ...] = ()
    options: tuple[str, ...] = ()
    edit: tuple[Call, ...] = ()


EDIT = (
    Call("Read", {"file_path": "{project}/large.txt"}),
    Call("Edit", {"file_path": "{project}/large.txt", "old_string": FACT, "new_string": "Gone."}),
)

CASES = [
    Case(
        "claude-code",
        ClaudeCode,
        [
            Call("Bash", {"command": COMMAND, "description": "Counts"}),
            Call("mcp__demo__blob", {"n": 200_000}),
        ],
        "mcp__spillgate__tool_output",
        edit=EDIT,
    ),
    Case(
        "codex",
        Codex,
        [Call("blob", {"n": 600}), Call("blob", {"n": 200_000})],
        "tool_output",
        (Call("tool_search", {"query": "blob tool_output", "limit": 9}),),
        ("--dangerously-bypass-hook-trust",),
    ),
    Case(
        "opencode",
        OpenCode,
        [
            Call("bash", {"command": OPENCODE_COMMAND, "description": "Counts"}),
            Call("demo_blob", {"n": 600}),
            Call("demo_blob", {"n": 200_000}),
        ],
        "spillgate_tool_output",
        edit=(
            Call("read", {"filePath": "{project}/large.txt"}),
            Call("edit", {"filePath": "{project}/large.txt", "oldString": FACT, "newString": "Gone."}),
        ),
    ),
    Case(
        "copilot",
        CopilotCli,
        [
            Call("bash", {"command": COMMAND, "description": "Counts"}),
            Call("demo-blob", {"n": 600}),
            Call("demo-blob", {"n": 200_000}),
        ],
        "spillgate-tool_output",
    ),
    # The folder integrations/claude-code, with nothing installed.
    Case(
        "claude-code-plugin",
        ClaudeCode,
        [
            Call("Bash", {"command": COMMAND, "description": "Counts"}),
            Call("mcp__demo__blob", {"n": 600}),
        ],
        "mcp__plugin_spillgate_spillgate__tool_output",
        options=("--plugin-dir", str(ROOT / "integrations" / "claude-code")),
        edit=EDIT,
    ),
]


def placed(call: Call, project: Path) -> Call:
    """With the path of the project in its arguments."""
    given = {
        name: value.replace("{project}", str(project)) if isinstance(value, str) else value
        for name, value in call.arguments.items()
    }
    return Call(call.name, given)


async def spillgate(home: Path, url: str, *arguments: str, **more: str) -> str:
    """With "" for the URL, the user's own service is asked. `more` are variables."""
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]} | ({"SPILLGATE_URL": url} if url else {}) | more
    program = Path(sys.executable).with_name("spillgate")
    process = await asyncio.create_subprocess_exec(
        program, *arguments, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


async def set_up(case: Case, agent: Agent, url: str, **more: str) -> None:
    """Writes the agent's own settings, and has `spillgate hook install` add to them."""
    agent.add_mcp("demo", DEMO)
    (agent.project / "large.txt").write_text(FILE)
    # The plugin reads the first; with the second, no busy machine makes a hook give up.
    agent.environ |= ({"SPILLGATE_URL": url} if url else {}) | more
    agent.environ |= {"SPILLGATE_HOOK_TIMEOUT_MS": "20000"}
    # What the model is and asks is known before the run, which then writes no settings.
    arguments = [one for one in agent._command("Count.") if one != "--strict-mcp-config"]
    agent._command = lambda prompt: arguments  # type: ignore[method-assign]
    if case.client == "claude-code-plugin":
        agent.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    else:
        await spillgate(agent.home, url, "hook", "install", case.client, **more)
        if case.client != "codex":  # It is not trusted yet.
            await spillgate(agent.home, url, "hook", "status", case.client, **more)


@asynccontextmanager
async def governed(
    case: Case, place: Path, service: Service
) -> AsyncIterator[tuple[ScriptedModel, Agent, httpx.AsyncClient]]:
    """The agent below `place`, with hooks of the service."""
    with ScriptedModel() as model:
        agent = case.agent(place / "agent", model)
        async with service.client() as client:
            await set_up(case, agent, str(client.base_url).rstrip("/"))
            yield model, agent, client


async def run(agent: Agent, case: Case) -> None:
    ran = await agent.run("Count.", *case.options)
    assert "All done." in ran.stdout, ran.stderr


def asking(case: Case) -> Callable[[Asked], Call]:
    """A step of the script: the model asks about the last result."""

    def step(asked: Asked) -> Call:
        handle = asked.results[-1].partition('(handle = "')[2].partition('"')[0]
        return Call(case.ask, {"handle": handle, "extract": "Where is the tulip kept?"})

    return step


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.client)
async def test_large_results_are_replaced_and_the_model_asks_about_them(
    case: Case, service: Service, tmp_path: Path
) -> None:
    async with governed(case, tmp_path, service) as (model, agent, client):
        steps: list[Any] = [*case.first]
        for call in case.calls:
            steps += [placed(call, agent.project), asking(case)]
        model.script(*steps, "All done.")
        await run(agent, case)
        entries = (await client.get("/accounting/entries")).json()["entries"]
    read = model.asked[-1].results
    for call, message, answer in zip(case.calls, read[::2], read[1::2], strict=True):
        assert LARGE in message[:100], (call.name, message[:300])
        assert f"{case.ask}(handle" in message or case.first
        assert "ABSTRACT FROM TOOL OUTPUT" in answer, (call.name, answer[:300])
    assert [entry["status"] for entry in entries if entry["type"] == "extract"] == ["ok"] * len(case.calls)
    # The whole output was kept where the agent itself had cut it.
    if case.client != "codex":
        assert FACT in read[1]


@pytest.mark.parametrize("case", [case for case in CASES if case.edit], ids=lambda case: case.client)
async def test_a_file_of_36_kb_is_read_whole_and_edited(case: Case, service: Service, tmp_path: Path) -> None:
    async with governed(case, tmp_path, service) as (model, agent, _):
        read, edit = (placed(call, agent.project) for call in case.edit)
        model.script(*case.first, read, edit, read, "All done.")
        await run(agent, case)
    assert FACT in model.asked[-1].results[0]
    assert LARGE not in "".join(model.asked[-1].results)
    assert (agent.project / "large.txt").read_text() == FILE.replace(FACT, "Gone.")


SOURCE = "".join(
    f"def step_{n}(state):  # the next of the steps that the state goes through\n" for n in range(9000)
)
CLAUDE_CODE, CODEX = CASES[:2]


@pytest.mark.parametrize("kilobytes", [16, 60, 400])
async def test_claude_code_edits_what_it_has_read(service: Service, tmp_path: Path, kilobytes: int) -> None:
    """Past Claude Code's own limit, which it says itself, the model reads a part, or all of it on purpose."""
    source = SOURCE[: kilobytes << 10]
    async with governed(CLAUDE_CODE, tmp_path, service) as (model, agent, client):
        path = agent.project / "large.txt"
        path.write_text(f"{source}\n{FACT}\n")
        read, edit = (placed(call, agent.project) for call in EDIT)
        part = Call("Read", {**read.arguments, "offset": source.count("\n"), "limit": 100})
        large = Call("Read", {**read.arguments, "allow_large": True})
        model.script(read, read if kilobytes < 400 else large, part, edit, part, "All done.")
        await run(agent, CLAUDE_CODE)
        entries = (await client.get("/accounting/entries")).json()["entries"]
    first, again, *parts = model.asked[-1].results
    whole = [first, again] if kilobytes < 400 else [again]
    assert [len(text) > len(source) and FACT in text for text in whole] == [True] * len(whole)
    assert kilobytes < 400 or "Read again with allow_large" in first
    assert FACT in parts[0]
    assert "Gone." in parts[2]
    assert path.read_text() == f"{source}\nGone.\n"
    assert {entry["outcome"] for entry in entries} == {"pass"}
    assert "Wasted call" not in "".join(model.asked[-1].results)


@pytest.mark.parametrize("tokens", [0, 10_000])
async def test_what_codex_has_cut_is_replaced_only_where_that_pays(
    service: Service, tmp_path: Path, tokens: int
) -> None:
    """Codex shows 10,000 bytes to a model that it does not know, and 10,000 tokens to those that it knows. It
    leaves no file of the rest."""
    with ScriptedModel() as model:
        agent = Codex(tmp_path / "agent", model)
        agent.config = [f"tool_output_token_limit = {tokens}"] if tokens else []
        async with service.client() as client:
            await set_up(CODEX, agent, str(client.base_url).rstrip("/"))
            lines = (f"{COMMAND}; exit 3", "seq 1 500", "cat large.txt")
            model.script(*[Call("exec_command", {"cmd": line}) for line in lines], "All done.")
            await run(agent, CODEX)
            entries = (await client.get("/accounting/entries")).json()["entries"]
    cut, small, file = model.asked[-1].results
    assert "499\n500\n" in small
    # Codex has no tool that reads a file.
    assert FACT in file
    assert LARGE not in file
    outcomes = [entry["outcome"] for entry in entries]
    if tokens:
        assert cut.startswith(f"Process exited with code 3\n{LARGE}")
        assert outcomes == ["store", "pass", "pass"]
    else:
        assert ("truncated output" in cut, cut.endswith(f"{FACT}\n"), outcomes) == (True, True, ["pass"])


async def test_claude_code_without_its_reading_tools_edits_what_cat_showed(
    service: Service, tmp_path: Path
) -> None:
    """A set-up with neither Read nor Grep, which no hook is told."""
    async with governed(CLAUDE_CODE, tmp_path, service) as (model, agent, _):
        path = agent.project / "large.txt"
        path.write_text(f"{SOURCE[:16_000]}\n{FACT}\n")
        shell = Call("Bash", {"command": "cat large.txt", "description": "Reads"})
        edit = {"file_path": str(path), "old_string": FACT, "new_string": "Gone."}
        model.script(shell, Call("Edit", edit), "All done.")
        ran = await agent.run("Count.", "--tools", "Bash,Edit")
    assert "All done." in ran.stdout
    assert not {"Read", "Grep"} & set(model.asked[-1].tools)
    assert FACT in model.asked[-1].results[0]
    assert path.read_text() == f"{SOURCE[:16_000]}\nGone.\n"


async def test_replay_replaces_what_codex_then_replaces(service: Service, tmp_path: Path) -> None:
    """The same commands in a recorded run without hooks, and live."""
    lines = [
        "seq 1 900",
        "seq 1 1700",
        "seq 1 1900; exit 3",
        "seq 1 2600",
        "seq 1 60000",
        "cat large.txt",
        "sed -n 1,400p large.txt",
        "cat large.txt large.txt",
    ]
    calls = [Call("exec_command", {"cmd": line}) for line in lines]
    with ScriptedModel() as model:
        agent = Codex(tmp_path / "recorded", model)
        (agent.project / "large.txt").write_text(FILE[:9000])
        model.script(*calls, "All done.")
        await run(agent, CODEX)
    told = await asyncio.to_thread(report, tmp_path, agent.home / ".codex" / "sessions")
    counted = told["total"]["policies"]["policy in force"]
    async with governed(CODEX, tmp_path, service) as (model, agent, _):
        (agent.project / "large.txt").write_text(FILE[:9000])
        model.script(*calls, "All done.")
        await run(agent, CODEX)
    live = [LARGE in text for text in model.asked[-1].results]
    assert counted["replaced"] == sum(live) == 2


async def test_codex_runs_the_hook_that_status_calls_trusted(service: Service, tmp_path: Path) -> None:
    """As /hooks of Codex writes it: here without the option that skips the question."""
    with ScriptedModel() as model:
        agent = Codex(tmp_path / "agent", model)
        async with service.client() as client:
            await set_up(CODEX, agent, str(client.base_url).rstrip("/"))
            path = agent.folder / "hooks.json"
            hooks = json.loads(path.read_text())
            with (agent.folder / "config.toml").open("a") as config:
                for event in hooks["hooks"]:
                    for name, digest in _identities(str(path), event, hooks):
                        config.write(f'\n[hooks.state."{name}"]\ntrusted_hash = "{digest}"\n')
            said = await spillgate(agent.home, "", "hook", "status", "codex")
            model.script(Call("exec_command", {"cmd": "seq 1 1900"}), "All done.")
            ran = await agent.run("Count.")
    assert "Results are governed now" in said
    assert "All done." in ran.stdout
    assert model.asked[-1].results[0].startswith(f"Process exited with code 0\n{LARGE}")


SHELLS: dict[str, Callable[[str], Call]] = {
    "claude-code": lambda line: Call("Bash", {"command": line, "description": "Asks"}),
    "codex": lambda line: Call("exec_command", {"cmd": line}),
    "opencode": lambda line: Call("bash", {"command": line, "description": "Asks"}),
    "copilot": lambda line: Call("bash", {"command": line, "description": "Asks"}),
}


@pytest.mark.parametrize("case", CASES[:4], ids=lambda case: case.client)
async def test_the_command_in_the_message_runs_in_the_shell_of_the_agent(
    case: Case, service: Service, tmp_path: Path
) -> None:
    """The program is in no PATH, and the address of the service stands in the agent's settings alone."""
    shell = SHELLS[case.client]

    def asks(asked: Asked) -> Call:
        handle = asked.results[-1].partition('(handle = "')[2].partition('"')[0]
        line = (
            asked.results[-1]
            .partition("In a shell (query, grep, lines, ask or cat): ")[2]
            .partition("\n")[0]
            .replace("HANDLE", handle)
        )
        return shell(line.replace("SELECT …", "SELECT text FROM data WHERE text LIKE '%tulip%'"))

    with ScriptedModel() as model:
        agent = case.agent(tmp_path / "agent", model)
        if isinstance(agent, Codex):
            agent.config = ["tool_output_token_limit = 10000"]
        async with service.client() as client:
            await set_up(case, agent, str(client.base_url).rstrip("/"))
            del agent.environ["SPILLGATE_URL"]
            command = shell(OPENCODE_COMMAND if case.client == "opencode" else COMMAND)
            model.script(command, asks, "All done.")
            await run(agent, case)
    message, answer = model.asked[-1].results
    assert message.startswith(LARGE) or LARGE in message[:100]
    assert FACT in answer


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.client)
async def test_without_the_service_the_agent_goes_on_with_the_original(
    case: Case, service: Service, tmp_path: Path
) -> None:
    with ScriptedModel() as model:
        agent = case.agent(tmp_path / "agent", model)
        async with service.client() as client:
            await set_up(case, agent, str(client.base_url).rstrip("/"))
        assert await service.stop() == 0
        agent.environ["SPILLGATE_AUTO_START"] = "false"
        calls = [placed(call, agent.project) for call in case.calls[:2]]
        model.script(*case.first, *calls, "All done.")
        await run(agent, case)
    read = model.asked[-1].results
    assert len(read) == len(calls)
    assert not [text for text in read if LARGE in text]
    log = agent.home / ".local" / "state" / "spillgate" / "hook.log"
    if case.client != "opencode":
        assert "No service answers" in log.read_text()


PI = """
import extension from "./spillgate.js"
import { readFileSync } from "node:fs"
const handlers = {}, tools = {}
const on = (name, handler) => (handlers[name] = handler)
extension({ on, registerTool: (tool) => (tools[tool.name] = tool) })
const ctx = { sessionManager: { getSessionId: () => "pi-1" } }
await handlers.session_start({}, ctx)
const before = Object.keys(tools)
const events = JSON.parse(readFileSync(process.argv[2], "utf8"))
const answers = []
for (const event of events) answers.push((await handlers.tool_result(event, ctx)) ?? null)
const handle = answers[0]?.content[0].text.match(/handle = "([^"]*)"/)?.[1]
const question = { handle, extract: "Where is the tulip?" }
const told = handle && (await tools.tool_output.execute("c", question, null, null, ctx))
const reference = `spillgate://${handle ?? "session-a/file-b"}`
const handed = []
for (const content of [reference, `${reference}#rows=1`, "text"]) {
  const input = { content }
  const blocked = await handlers.tool_call({ toolName: "write", toolCallId: "w", input }, ctx)
  handed.push(blocked?.reason ?? input.content)
}
console.log(JSON.stringify({ before, answers, tools: Object.keys(tools), told, handed }))
"""


async def test_the_extension_of_pi_plays_its_part(service: Service, tmp_path: Path) -> None:
    """pi itself needs a newer Node.js than others do: its side of the interface is played here."""
    folder = tmp_path / "pi"
    folder.mkdir()
    extension = ROOT / "integrations" / "pi" / "spillgate.js"
    (folder / "spillgate.js").write_text(extension.read_text())
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "play.js").write_text(PI)
    whole, secret = folder / "pi-bash-1.log", folder / "secret.log"
    for path in (whole, secret):
        path.write_text(FILE)
    event = {"toolName": "bash", "input": {"command": "make"}, "isError": False}
    event |= {"content": [{"type": "text", "text": "its end"}]}
    picture = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
    events = [
        {**event, "toolCallId": "c1", "details": {"fullOutputPath": str(whole)}},
        {**event, "toolCallId": "c2", "details": {"fullOutputPath": str(secret)}},
        {**event, "toolCallId": "c3", "content": [{"type": "text", "text": FILE}, picture]},
        {**event, "toolCallId": "c4"},
    ]
    (folder / "events.json").write_text(json.dumps(events))
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SPILLGATE_HOOK_TIMEOUT_MS": "20000"}

    async def played(url: str) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            "node",
            folder / "play.js",
            folder / "events.json",
            env={**environ, "SPILLGATE_URL": url},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        told: dict[str, Any] = json.loads(out)
        return told

    async with service.client() as client:
        url = str(client.base_url).rstrip("/")
    told = await played(url)
    spilled, refused, shown, small = told["answers"]
    assert told["before"] == []
    assert spilled["content"][0]["text"].startswith(f"{LARGE}{len(FILE)} bytes")
    assert (refused, small) == (None, None)
    assert [block["type"] for block in shown["content"]] == ["text", "image"]
    assert "tool_output" in told["tools"]
    assert FACT in told["told"]["content"][0]["text"]
    assert told["handed"][0] == FILE
    assert told["handed"][1].endswith(" The tool did not run.")
    assert told["handed"][2] == "text"
    assert await service.stop() == 0
    told = await played(url)
    assert told["answers"] == [None] * 4
    assert [text == UNRESOLVED for text in told["handed"]] == [True, True, False]
    log = (tmp_path / ".local" / "state" / "spillgate" / "hook.log").read_text()
    assert log.count("'pi' passed: ") == 7


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.client)
async def test_without_a_url_each_agent_has_the_users_own_service(case: Case, tmp_path: Path) -> None:
    """Nothing but the command is installed: the service is started, listens on its socket alone, and answers
    by the MCP server that the agent starts."""
    with ScriptedModel() as model:
        agent = case.agent(tmp_path / "agent", model)
        await set_up(case, agent, "")
        large = placed(case.calls[-1], agent.project)
        model.script(*case.first, large, asking(case), "All done.")
        try:
            await run(agent, case)
            process = int((agent.home / ".local/state/spillgate/embedded/lock").read_text().split()[0])
            assert psutil.Process(process).net_connections("inet") == []
        finally:
            # OpenCode and Copilot CLI have ended it: they end all that their MCP servers have started.
            await spillgate(agent.home, "", "service", "stop")
    replaced, answer = model.asked[-1].results
    assert LARGE in replaced[:100]
    assert "ABSTRACT FROM TOOL OUTPUT" in answer, answer[:300]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.client)
async def test_without_a_url_the_key_reaches_the_service_of_the_user(case: Case, tmp_path: Path) -> None:
    """Hook, plugin and MCP server find the service in a state directory that has another name, and send the
    key, which stands in no settings. Codex gives MCP servers only the variables that its settings name."""
    keys = key_file(tmp_path / "keys", "team-a:sk-a")
    with Services(tmp_path) as services, ScriptedModel() as model:
        service = await services.start(tmp_path / "state", api_keys_file=str(keys))
        agent = case.agent(tmp_path / "agent", model)
        await set_up(case, agent, "", SPILLGATE_KEY="sk-a", XDG_STATE_HOME=str(tmp_path / "user"))
        model.script(*case.first, placed(case.calls[-1], agent.project), asking(case), "All done.")
        await run(agent, case)
        async with service.client(headers=by("sk-a")) as client:
            entries = (await client.get("/accounting/entries")).json()["entries"]
    assert {"tool", "extract"} <= {entry["type"] for entry in entries if entry["tenant"] == "team-a"}
    assert "ABSTRACT FROM TOOL OUTPUT" in model.asked[-1].results[-1]
    settings = [path for path in agent.home.rglob("*") if path.suffix in (".json", ".toml", ".jsonc")]
    assert not [path for path in settings if path.is_file() and "sk-a" in path.read_text()]
