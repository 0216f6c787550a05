"""`spillgate hook CLIENT` as a process: it answers as POST /hooks/{client}; whatever fails, it passes."""

import json
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from beside.client import in_any_shell
from policies.outcomes.store import TOO_LARGE
from tests.app.doors.payloads import LARGE, changed, payload
from tests.app.doors.test_hooks import handle_in as handle_of
from tests.app.doors.test_hooks import message_in
from tests.faults.forking import ROOT, run
from tests.faults.service_process import Service, Services
from tests.misbehaving_server import OF_THE_SERVICE, answering, http

pytestmark = pytest.mark.anyio

SPILLED = "".join(f"{number}: the whole output\n" for number in range(8000))


def codex_sent(text: str) -> Any:
    return changed(payload("codex", "mcp"), ("tool_response", "content", 0, "text"), text)


class Answered(NamedTuple):
    status: int
    answer: Any
    stderr: str


class Shell:
    """Runs the command with a home of its own, against the service at `url`."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        self.url = url

    def hook(self, *arguments: str, stdin: bytes, **settings: str) -> Answered:
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "SPILLGATE_URL": self.url}
        # No test is about patience but those that set it.
        environ["SPILLGATE_HOOK_TIMEOUT_MS"] = "60000"
        environ |= {f"SPILLGATE_{name.upper()}": value for name, value in settings.items()}
        done = run(("-m", "beside.main", "hook", *arguments), environ, stdin)
        return Answered(done.returncode, json.loads(done.stdout), done.stderr.decode())

    def sent(self, client: str, payload: Any, **settings: str) -> Any:
        """The agent's JSON. The exit status is 0, and stderr empty."""
        status, answer, stderr = self.hook(client, stdin=json.dumps(payload).encode(), **settings)
        assert (status, stderr) == (0, "")
        return answer

    @staticmethod
    def plain(answer: Any) -> Any:
        """As the route answers, which is not told how the agent's shell calls the command."""
        own = r"env SPILLGATE_URL=\S+ \S*spillgate query"
        return json.loads(re.sub(own, "spillgate query", json.dumps(answer)))

    def log(self) -> str:
        path = self.home / ".local" / "state" / "spillgate" / "hook.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
async def client(shared_service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with shared_service.client() as client:
        yield client


@pytest.fixture
def shell(client: httpx.AsyncClient, tmp_path: Path) -> Shell:
    return Shell(tmp_path, str(client.base_url).rstrip("/"))


async def test_the_exit_status_is_0_for_an_agent_that_does_not_read_the_answer(shell: Shell) -> None:
    sent = shell.home / "sent.json"
    sent.write_text(json.dumps(codex_sent(LARGE)))
    command = shlex.join([sys.executable, "-m", "beside.main", "hook", "codex"])
    for ignored in (">&-", ">/dev/full", "| true"):
        line = f"{command} <{shlex.quote(str(sent))} {ignored}; exit ${{PIPESTATUS[0]}}"
        environ = {"PATH": os.environ["PATH"], "HOME": str(shell.home), "SPILLGATE_URL": shell.url}
        done = subprocess.run(["bash", "-c", line], env=environ, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b""), ignored


def spilled(client: str, path: Path, home: Path) -> Any:
    """A payload that names the file with the whole output."""
    sent = _spilled(client, path)
    if client.startswith("claude-code"):
        return changed(sent, ("transcript_path",), str(home / ".claude/projects/-home/s1.jsonl"))
    return sent


def _spilled(client: str, path: Path) -> Any:
    match client:
        case "claude-code":
            return changed(
                payload(client, "Bash spilled"), ("tool_response", "persistedOutputPath"), str(path)
            )
        case "claude-code mcp":
            said = (
                f"Error: result (9 characters) is too large. Output has been saved to {path}.\nFormat: text"
            )
            return changed(payload("claude-code", "mcp spilled"), ("tool_response",), said)
        case "copilot":
            said = f"Output too large to read at once (20.9 KB). Saved to: {path}\nConsider using tools"
            return changed(payload(client, "bash spilled"), ("toolResult", "textResultForLlm"), said)
        case "opencode":
            sent = payload(client, "bash spilled")
            return changed(sent, ("output", "metadata", "outputPath"), str(path))
        case _:
            return changed(payload(client, "bash spilled"), ("details", "fullOutputPath"), str(path))


FOLDERS = {
    "claude-code": ".claude/projects/-home/s1/tool-results/b2wn5n0pt.txt",
    "claude-code mcp": ".claude/projects/-home/s1/tool-results/mcp-demo-blob-1.txt",
    "copilot": "tmp/1795324549977-copilot-tool-output-11061-3e29.txt",
    "opencode": ".local/share/opencode/tool-output/tool_1ffb",
    "pi": "tmp/pi-bash-0a1b.log",
}


def handle_in(answer: Any) -> str:
    return handle_of(message_in(answer))


CASES = [
    ("claude-code", "Bash", ("tool_response", "stdout")),
    ("codex", "mcp", ("tool_response", "content", 0, "text")),
    ("copilot", "bash", ("toolResult", "textResultForLlm")),
    ("cursor", "mcp", ("tool_output",)),
    ("gemini", "shell", ("tool_response", "llmContent")),
    ("opencode", "mcp", ("output", "content", 0, "text")),
    ("pi", "bash", ("content", 0, "text")),
]


@pytest.mark.parametrize(("agent", "name", "path"), CASES, ids=[case[0] for case in CASES])
async def test_it_answers_as_the_route_does(
    agent: str, name: str, path: tuple[str | int, ...], shell: Shell, client: httpx.AsyncClient
) -> None:
    text = json.dumps({"content": [{"type": "text", "text": LARGE}]}) if agent == "cursor" else LARGE
    sent = changed(payload(agent, name), path, text)
    answer = shell.plain(shell.sent(agent, sent))
    handle = handle_in(answer)
    assert (await client.get(f"/results/{handle}/content")).text == LARGE
    direct = (await client.post(f"/hooks/{agent}", json=sent)).json()
    assert json.dumps(direct).replace(handle_in(direct), handle) == json.dumps(answer)
    if agent not in ("copilot", "gemini"):
        # An agent that names its calls gets the same handle by both ways.
        assert direct == answer
    assert "replaced a result" in shell.log()
    assert shell.sent(agent, payload("codex", "Bash")) == {}


def codex_command(shell: Shell, name: str, text: str, *records: Any) -> Any:
    """The payload of a command, with these records at the end of its transcript."""
    path = shell.home / ".codex" / "sessions" / "2026" / "rollout-1.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = {"type": "session_meta", "payload": {"id": "1"}}
    path.write_text("".join(json.dumps(one) + "\n" for one in (begun, *records)))
    sent = changed(payload("codex", name), ("transcript_path",), str(path))
    return changed(sent, ("tool_response",), text)


def ended(call_id: str, status: int) -> Any:
    """As Codex writes it before it runs the hook."""
    item = {"type": "CommandExecution", "id": call_id, "exit_code": status, "aggregated_output": "1\n"}
    return {"type": "event_msg", "payload": {"type": "item_completed", "item": item}}


@pytest.mark.parametrize("status", [0, 3])
async def test_a_replaced_command_of_codex_keeps_its_exit_status(
    shell: Shell, client: httpx.AsyncClient, status: int
) -> None:
    """It stands in no payload, and beside other calls in the transcript."""
    sent = codex_command(shell, "Bash failed", LARGE, ended("call_2", status), ended("call_9", 1 - status))
    sent["session_id"] = f"exits-{status}"
    reason = shell.sent("codex", sent)["reason"]
    assert reason.startswith(f"Process exited with code {status}\n{TOO_LARGE} (")
    known = (await client.get(f"/results/{handle_of(reason.partition(chr(10))[2])}")).json()
    assert known["is_error"] == (status != 0)


async def test_what_codex_has_cut_is_replaced_only_where_that_pays(shell: Shell) -> None:
    cut = "Warning: truncated output (original token count: 87224)\nTotal output lines: 60000\n\n" + LARGE
    for size, is_replaced in ((8500, False), (9500, False), (12_000, True), (40_000, True)):
        sent = codex_command(shell, "Bash cut", cut[:size], ended("call_1", 0))
        assert (shell.sent("codex", sent) != {}) is is_replaced, size
    # A whole output of a size at which a part passes.
    assert shell.sent("codex", codex_command(shell, "Bash", LARGE[:9000], ended("call_0", 0))) != {}


async def test_a_command_of_codex_whose_exit_status_is_not_known_passes(
    shell: Shell, client: httpx.AsyncClient
) -> None:
    others = codex_command(shell, "Bash failed", LARGE, ended("call_9", 0), {"payload": {"id": "call_2"}})
    elsewhere = shell.home / "rollout-1.jsonl"
    elsewhere.write_text(json.dumps(ended("call_2", 0)) + "\n")
    for sent in (
        others,
        changed(others, ("transcript_path",), None),
        changed(others, ("transcript_path",), str(elsewhere)),
        changed(others, ("transcript_path",), str(shell.home / ".codex/sessions/2026/rollout-2.jsonl")),
    ):
        assert shell.sent("codex", sent) == {}
    assert shell.log().count("exit status") == 3
    # The service opens no file that a request names.
    told = codex_command(shell, "Bash failed", LARGE, ended("call_2", 0))
    assert (await client.post("/hooks/codex", json=told)).json() == {}


async def test_what_gemini_shows_in_tags_is_kept_without_them(
    shell: Shell, client: httpx.AsyncClient
) -> None:
    shown = f"<untrusted_context>\n{LARGE}\n</untrusted_context>"
    sent = changed(payload("gemini", "part"), ("tool_response", "llmContent"), [{"text": shown}])
    sent["tool_name"] = "read_many_files"
    handle = handle_in(shell.sent("gemini", sent))
    assert (await client.get(f"/results/{handle}/content")).text == LARGE


@pytest.mark.parametrize("agent", FOLDERS)
async def test_the_file_with_the_whole_output_is_kept_and_not_the_agents_cut(
    agent: str, shell: Shell, client: httpx.AsyncClient
) -> None:
    path = shell.home / FOLDERS[agent]
    path.parent.mkdir(parents=True)
    sent = spilled(agent, path, shell.home)
    name = agent.split()[0]
    for data, kept in ((SPILLED.encode(), SPILLED), (b"\xff" + SPILLED.encode(), "\ufffd" + SPILLED)):
        path.write_bytes(data)
        answer = shell.sent(name, sent)
        assert "persistedOutputPath" not in json.dumps(answer)
        assert (await client.get(f"/results/{handle_in(answer)}/content")).text == kept
    # Any other file stays unread, and the result as the agent cut it.
    elsewhere = shell.home / "secret.txt"
    elsewhere.write_text(SPILLED)
    assert shell.sent(name, spilled(agent, elsewhere, shell.home)) == {}
    if name == "claude-code":
        # Of another session: a tool's text may imitate the agent's message.
        other = shell.home / ".claude/projects/-home/s2/tool-results/secret.txt"
        other.parent.mkdir(parents=True)
        other.write_text(SPILLED)
        assert shell.sent(name, spilled(agent, other, shell.home)) == {}
    path.unlink()
    assert shell.sent(name, sent) == {}
    path.symlink_to(elsewhere)
    assert shell.sent(name, sent) == {}
    path.unlink()
    os.mkfifo(path)
    assert shell.sent(name, sent) == {}
    path.unlink()
    path.mkdir()
    assert shell.sent(name, sent) == {}
    assert stat.S_ISDIR(path.stat().st_mode)
    assert len(shell.log().splitlines()) >= 6


@pytest.mark.parametrize(
    ("shown", "is_replaced"), [(1900, True), (2100, False), (10_100, False), (11_500, True), (30_000, True)]
)
async def test_what_the_agent_has_cut_is_replaced_where_that_pays_and_then_kept_whole(
    shown: int, is_replaced: bool, shell: Shell, client: httpx.AsyncClient
) -> None:
    path = shell.home / FOLDERS["claude-code"]
    path.parent.mkdir(parents=True)
    path.write_text(SPILLED)
    sent = changed(spilled("claude-code", path, shell.home), ("tool_response", "stdout"), SPILLED[:shown])
    answer = shell.sent("claude-code", sent)
    if is_replaced:
        assert (await client.get(f"/results/{handle_in(answer)}/content")).text == SPILLED
    else:
        assert answer == {}
        assert shell.log() == ""


async def test_a_part_of_another_size_than_the_agents_is_not_shown_instead_of_it(
    client: httpx.AsyncClient, shell: Shell
) -> None:
    await client.put("/sessions/capped", json={"policy": {"on_oversize": "cap"}})
    path = shell.home / FOLDERS["claude-code"]
    path.parent.mkdir(parents=True)
    path.write_text(SPILLED)
    sent = changed(spilled("claude-code", path, shell.home), ("session_id",), "capped")
    assert shell.sent("claude-code", sent) == {}
    assert "larger than a third" in shell.log()


@pytest.mark.parametrize("name", OF_THE_SERVICE)
async def test_a_service_that_answers_with_something_else_is_passed_over(name: str, shell: Shell) -> None:
    sent = codex_sent(LARGE[:5000])
    with answering(OF_THE_SERVICE[name]) as shell.url:
        assert shell.sent("codex", sent) == {}
    assert "'codex' passed: " in shell.log()


async def test_a_service_that_does_not_answer_is_not_waited_for(shell: Shell) -> None:
    sent = codex_sent(LARGE)
    with answering(None) as shell.url:
        assert shell.sent("codex", sent, hook_timeout_ms="300") == {}
    assert "timed out" in shell.log()
    with answering(http("200 OK", b" " * (1 << 20)), is_slow=True) as shell.url:
        assert shell.sent("codex", sent, hook_timeout_ms="300") == {}
    assert shell.log().count("timed out") == 2
    with socket.create_server(("127.0.0.1", 0)) as closed:
        shell.url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    assert shell.sent("codex", sent) == {}
    assert "No service answers" in shell.log()


@pytest.mark.parametrize(
    ("arguments", "stdin", "settings"),
    [
        (("codex",), b"", {}),
        (("codex",), b"\xff\x00{", {}),
        (("codex",), b"[" * 200_000, {}),
        (("codex",), b"null", {}),
        (("cursor",), b'{"tool_output": "{"}', {}),
        (("copilot",), b'{"sessionId": "\\ud800", "toolName": "x", "toolResult": 1}', {}),
        (("codex",), None, {"url": "ftp://nowhere"}),
        (("codex", "--verbose"), b"null", {}),
        (("codex",), None, {"hook_timeout_ms": "soon"}),
        (("codex",), None, {"hook_timeout_ms": "9" * 20}),
        (("codex",), None, {"key": "a\nb"}),
        (("codex",), None, {"key": "a", "key_file": "b"}),
    ],
)
async def test_nothing_makes_it_fail(
    arguments: tuple[str, ...], stdin: bytes | None, settings: dict[str, str], shell: Shell
) -> None:
    if stdin is None:
        stdin = json.dumps(codex_sent(LARGE)).encode()
    assert shell.hook(*arguments, stdin=stdin, **settings) == Answered(0, {}, "")
    assert " passed: " in shell.log()
    assert "the tulip" not in shell.log()


async def test_a_lone_surrogate_fails_nowhere(shell: Shell) -> None:
    sent = payload("claude-code", "Bash")
    sent["tool_response"] |= {"stdout": LARGE + "\ud800", "note": "\udfff"}
    answer = shell.sent("claude-code", sent)
    assert answer["hookSpecificOutput"]["updatedToolOutput"]["note"] == "\udfff"


async def test_a_hook_that_cannot_write_its_log_answers_all_the_same(shell: Shell) -> None:
    (shell.home / ".local").write_text("in the way")
    sent = codex_sent(LARGE)
    assert (shell.sent("codex", sent))["decision"] == "block"
    # As where no home directory is known: `~` is no folder of the project.
    shell.home = Path("no-home")
    assert (shell.sent("codex", sent))["decision"] == "block"
    assert not (ROOT / shell.home).exists()


async def test_a_client_that_is_not_known_is_an_error_for_a_person(shell: Shell) -> None:
    for name in ("clippy", "--help-me", "list"):
        status, answer, stderr = shell.hook(name, stdin=b"{}")
        assert (status, answer) == (1, {})
        assert "known are claude-code" in stderr
    assert " passed: no such client" in shell.log()


async def test_a_subcommand_that_a_person_mistypes_is_an_error(shell: Shell) -> None:
    for typed, meant in (("instal", "install"), ("claude-cod", "claude-code"), ("xyz", None)):
        person, terminal = os.openpty()
        command = [sys.executable, "-m", "beside.main", "hook", typed]
        environ = {"PATH": os.environ["PATH"], "HOME": str(shell.home)}
        done = subprocess.run(command, stdin=terminal, env=environ, capture_output=True, cwd=ROOT)
        for end in (person, terminal):
            os.close(end)
        assert (done.returncode, done.stdout) == (1, b"")
        assert (f"Did you mean '{meant}'?".encode() in done.stderr) == (meant is not None)
        assert b"Write install, uninstall, status and a client, one of claude-code" in done.stderr
    assert shell.log() == ""


@pytest.mark.parametrize("is_on_path", [True, False])
async def test_the_command_in_a_message_runs_in_a_login_shell_of_the_agent(
    shell: Shell, is_on_path: bool
) -> None:
    """Its profile sets PATH without the folder of the command, and the settings give the hook an address."""
    folder = Path(sys.executable).parent
    sent = json.dumps(codex_sent(LARGE)).encode()
    environ = {"PATH": f"{folder}:/usr/bin:/bin" if is_on_path else "/usr/bin:/bin", "HOME": str(shell.home)}
    hook = [folder / "spillgate", "hook", "codex"]
    hooked = subprocess.run(
        hook, input=sent, env={**environ, "SPILLGATE_URL": shell.url}, capture_output=True
    )
    message = json.loads(hooked.stdout)["reason"]
    handle = handle_of(message)
    line = (
        message.partition("In a shell (query, grep, lines, ask or cat): ")[2]
        .partition("\n")[0]
        .replace("HANDLE", handle)
    )
    line = line.replace("SELECT …", "SELECT text FROM data WHERE text LIKE '%number 777%'")
    assert f" {folder}/spillgate " in line
    (shell.home / ".bash_profile").write_text("PATH=/usr/local/bin:/usr/bin:/bin\n")
    asked = subprocess.run(["bash", "-l", "-c", line], env=environ, capture_output=True, text=True)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert "the tulip with number 777" in asked.stdout
    own = changed(payload("claude-code", "Bash"), ("tool_response", "stdout"), LARGE)
    assert shell.sent("claude-code", changed(own, ("tool_input", "command"), line)) == {}


def test_a_command_is_named_without_its_path_where_each_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, own = tmp_path / "system", tmp_path / "own dir" / "spillgate"
    system.mkdir()
    own.parent.mkdir()
    for path in (system / "spillgate", own):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setattr("beside.client._SYSTEM_FOLDERS", str(system))
    monkeypatch.delenv("SPILLGATE_URL", raising=False)
    monkeypatch.delenv("SPILLGATE_UDS", raising=False)
    assert in_any_shell(str(system / "spillgate")) == "spillgate"
    assert in_any_shell(str(own)) == f"'{own}'", "another one has the name there"
    (system / "spillgate").unlink()
    (system / "spillgate").symlink_to(own)
    assert in_any_shell(str(own)) == "spillgate"


async def test_a_large_result_that_cannot_be_stored_is_cut_and_says_so(
    services: Services, tmp_path: Path
) -> None:
    """One that a service refuses, and one where there is no service."""
    host, port = (await services.start(tmp_path / "state", max_body_bytes=str(1 << 20))).address
    for url in (f"http://{host}:{port}", "http://127.0.0.1:1"):
        shell = Shell(tmp_path, url)
        sent = codex_sent("0123456789abcde\n" * (2 << 16))
        reason = shell.sent("codex", sent)["reason"]
        assert " characters not shown: the result was too large, and is not stored]\n" in reason
        assert len(reason) < 13_000


@pytest.mark.parametrize("agent", ["claude-code", "gemini"])
async def test_at_the_end_of_a_session_it_lets_the_session_go(
    agent: str, shell: Shell, client: httpx.AsyncClient
) -> None:
    session = f"ends-{agent}"
    sent = {"tool_name": "t", "content": LARGE, "session_id": session}
    handle = (await client.post("/results", json=sent)).json()["handle"]
    for _ in range(2):
        assert shell.sent(agent, {"hook_event_name": "SessionEnd", "session_id": session}) == {}
    assert (await client.get(f"/sessions/{session}")).status_code == 404
    assert (await client.get(f"/results/{handle}/content")).text == LARGE
    assert shell.log().count("released the session") == 1
