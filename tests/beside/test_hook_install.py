"""`spillgate hook install|uninstall|status`: an agent's settings keep every byte of what others wrote."""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from beside.hooks import status
from beside.hooks.agents import PLANS
from beside.hooks.install import main as main_of_install
from beside.main import main
from domain.errors import ConfigError
from tests.counts import count
from tests.faults.forking import run

FILES = {
    "claude-code": (".claude/settings.json", ".claude.json"),
    "codex": (".codex/hooks.json", ".codex/config.toml"),
    "copilot": (".copilot/hooks/spillgate.json", ".copilot/mcp-config.json"),
    "cursor": (".cursor/hooks.json", ".cursor/mcp.json"),
    "gemini": (".gemini/settings.json",),
    "opencode": (".config/opencode/opencode.json", ".config/opencode/plugin/spillgate.js"),
    "pi": (".pi/agent/extensions/spillgate.js",),
}
"""The files of a user, below the home directory."""

IN_PROJECT = FILES | {
    "claude-code": (".claude/settings.json", ".mcp.json"),
    "copilot": (".github/hooks/spillgate.json", ".github/mcp.json"),
    "opencode": ("opencode.json", ".opencode/plugin/spillgate.js"),
    "pi": (".pi/extensions/spillgate.js",),
}
WITH_COMMENTS = ("cursor", "gemini", "opencode")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """$HOME of the test, empty."""
    for name in list(os.environ):
        if name.startswith(("SPILLGATE_", "CLAUDE_", "CODEX_", "COPILOT_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    # Hundreds of files are written, and none has to outlive a power cut.
    monkeypatch.setattr(os, "fsync", lambda file: None)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of hooks that `status` tries are forked: an interpreter for each takes a fifteenth of a
    second."""

    def ran(program: Sequence[str], given: Mapping[str, str], stdin: str) -> "CompletedProcess[str]":
        words = shlex.split(program[-1]) if program[0] == "sh" else list(program)
        command = words.index("hook") - 1
        assert Path(words[command]).name == "spillgate", program
        environment = {"SPILLGATE_AUTO_START": "true", **os.environ, **given}
        environment |= dict(word.split("=", 1) for word in words[:command] if word != "env")
        done = run(("-m", "beside.main", *words[command + 1 :]), environment, stdin.encode())
        return CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    monkeypatch.setattr(status, "_ran", ran)


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


NAMES = st.text(max_size=6) | st.sampled_from(["hooks", "mcpServers", "spillgate", "version", "PostToolUse"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
SERVERS = st.dictionaries(st.sampled_from(["github", "files"]), VALUES, max_size=2)
EVENTS = ("PostToolUse", "postToolUse", "AfterTool", "PreToolUse")
ROOTS = st.fixed_dictionaries(
    {},
    optional={
        "model": VALUES,
        "version": st.just(1),
        "hooks": st.dictionaries(st.sampled_from(EVENTS), st.lists(VALUES, max_size=2), max_size=2),
        "mcpServers": SERVERS,
        "mcp": SERVERS,
        "permissions": VALUES,
    },
)


@st.composite
def json_texts(draw: st.DrawFn, has_comments: bool) -> str:
    """Settings in many styles of writing."""
    value, style = draw(ROOTS), draw(st.sampled_from([None, 0, 2, 4, "\t"]))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]))
    text = json.dumps(value, indent=style, separators=separators, ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        text = text.replace('{"', '{ "').replace("[[", "[ [")
    if has_comments and '"' not in text.replace('"model"', ""):
        text = text.replace("{", "{ // {\n").replace("null", "/* ] */ null")
    if has_comments:
        text = f"// [ the user's\n{text}\n/* }} */"
    return (draw(st.sampled_from(["", "\ufeff"])) + text + draw(st.sampled_from(["", "\n"]))).replace(
        "\n", draw(st.sampled_from(["\n", "\r\n"]))
    )


TOML_LINES = st.lists(
    st.sampled_from(
        ['model = "x" # mine', "", "[mcp_servers.github]", 'command = "x"', "[features]", "a = [\n  [1],\n]"]
    ),
    max_size=7,
)


def is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


TOML_TEXTS = st.builds(
    lambda lines, newline, end: newline.join(lines) + end,
    TOML_LINES,
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\n"]),
).filter(is_toml)


def texts(client: str, name: str) -> st.SearchStrategy[str]:
    return TOML_TEXTS if name.endswith(".toml") else json_texts(client in WITH_COMMENTS)


@pytest.mark.parametrize("client", sorted(set(PLANS) - {"pi"}))
def test_install_and_uninstall_leave_the_settings_byte_for_byte(client: str, home: Path) -> None:
    names = [name for name in FILES[client] if not name.endswith(".js")]

    @hypothesis_settings(max_examples=count(20, 1000))
    @given(st.tuples(*(st.none() | texts(client, name) for name in names)))
    def check(given_texts: tuple[str | None, ...]) -> None:
        for path in list(home.rglob("*")):
            if path.is_file():
                path.unlink()
        for name, text in zip(names, given_texts, strict=True):
            if text is not None:
                put(home / name, text)
        before = files_below(home)
        assert main(["hook", "install", client]) == 0
        installed = files_below(home)
        assert set(installed) >= set(FILES[client])
        for name, text in before.items():
            kept_in(text.decode(), installed[name].decode())
        assert main(["hook", "install", client]) == 0
        assert files_below(home) == installed
        assert main(["hook", "uninstall", client]) == 0
        assert files_below(home) == before

    check()


def kept_in(before: str, after: str) -> None:
    """Every character of the text stands in the other one, in its order: it was only added to."""
    rest: Iterator[str] = iter(after)
    assert all(char in rest for char in before)


@pytest.mark.parametrize("in_project", [False, True], ids=["user", "project"])
@pytest.mark.parametrize("client", PLANS)
def test_files_that_were_not_there_are_made_and_removed_again(
    client: str,
    in_project: bool,
    home: Path,
    forked: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = home.parent / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    # Settings of a project name the command without its folder.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    folder, names = (project, IN_PROJECT[client]) if in_project else (home, FILES[client])
    option = ["--project"] * in_project
    assert main(["hook", "status", client, *option]) == 1
    assert capsys.readouterr().out.endswith(f"\nNot all is set up. Run: spillgate hook install {client}\n")
    assert main(["hook", "install", client, *option, "--dry-run"]) == 0
    assert files_below(home.parent) == {}
    assert capsys.readouterr().out.count("\n+++ ") == len(names)
    assert main(["hook", "install", client, *option]) == 0
    assert sorted(files_below(folder)) == sorted(names)
    written = b"".join(files_below(folder).values()).decode()
    assert re.search(rf"(?:spillgate.* hook |/hooks/){client}\b", written)
    assert "/project" not in written
    capsys.readouterr()
    # Codex runs a new hook only once its user has trusted it.
    assert main(["hook", "status", client, *option]) == int(client == "codex")
    said = capsys.readouterr().out
    assert "missing" not in said
    assert ("Set up, not trusted yet: type /hooks in Codex" in said) == (client == "codex")
    assert "No service runs: the next result" in said or client == "codex"
    assert main(["hook", "uninstall", client, *option]) == 0
    assert files_below(home.parent) == {}
    assert main(["hook", "uninstall", client, *option]) == 0


@pytest.mark.parametrize("text", ["", " \n\t\n", "\ufeff"])
@pytest.mark.parametrize("client", sorted(set(PLANS) - {"pi", "codex"}))
def test_a_blank_file_holds_no_settings(client: str, text: str, home: Path) -> None:
    """It is like one that is not there, but it stays."""
    assert main(["hook", "install", client]) == 0
    expected = files_below(home)
    names = [name for name in FILES[client] if not name.endswith(".js")]
    for name in names:
        put(home / name, text)
    assert main(["hook", "uninstall", client]) == 0
    assert all((home / name).read_text() == text for name in names)
    assert main(["hook", "status", client]) == 1
    assert main(["hook", "install", client]) == 0
    assert {name: data.rstrip() for name, data in files_below(home).items()} == {
        name: data.rstrip() for name, data in expected.items()
    }
    assert main(["hook", "uninstall", client]) == 0
    assert files_below(home) == dict.fromkeys(names, b"")


def test_what_others_wrote_keeps_its_place_its_comments_and_its_mode(home: Path) -> None:
    settings = home / "dotfiles" / "gemini.json"
    text = """{
    // my theme
    "theme": "dark",
    "hooks": {
        "AfterTool": [
            {"matcher": "x", "hooks": []}, // mine
        ],
    },
}
"""
    put(settings, text)
    settings.chmod(0o640)
    link = home / ".gemini" / "settings.json"
    link.parent.mkdir()
    link.symlink_to(settings)
    assert main(["hook", "install", "gemini"]) == 0
    assert link.is_symlink()
    assert stat.S_IMODE(settings.stat().st_mode) == 0o640
    after = settings.read_text()
    kept_in(text, after)
    assert after.startswith("{\n" + " " * 4 + '"mcpServers": {\n' + " " * 8 + '"spillgate": {\n')
    # The user moves our entry, and adds to it: it is found all the same, and nothing else goes.
    moved = after.replace('"theme": "dark",', '"theme": "light",\n    "model": "other",')
    settings.write_text(moved)
    assert main(["hook", "uninstall", "gemini"]) == 0
    assert settings.read_text() == text.replace(
        '"theme": "dark",', '"theme": "light",\n    "model": "other",'
    )


@pytest.mark.parametrize(
    ("client", "name", "text", "said"),
    [
        ("claude-code", ".claude/settings.json", '{\n"a": 1,\n}', "does not parse at line"),
        ("claude-code", ".claude.json", '{"mcpServers": []}', "`mcpServers` in it has an unexpected type"),
        ("claude-code", ".claude/settings.json", "[]", "`the whole` in it has an unexpected type"),
        ("claude-code", ".claude/settings.json", '{"hooks": {"PostToolUse": {}}}', "`hooks.PostToolUse`"),
        ("claude-code", ".claude/settings.json", "[" * 5000, "does not parse"),
        (
            "codex",
            ".codex/config.toml",
            "mcp_servers = 1",
            "`mcp_servers.spillgate` in it has an unexpected type",
        ),
        ("claude-code", ".claude/settings.json", '{"a": NaN}', "does not parse at `NaN`"),
        *(
            ("gemini", ".gemini/settings.json", f'{{\n"a": {text}}}', "does not parse at line 2")
            for text in ("[,]", "{,}", "[1,,]", "[1, /* 2 */ ,]")
        ),
        ("codex", ".codex/config.toml", "a = ", "not TOML"),
        ("codex", ".codex/config.toml", 'a = """\n[mcp_servers.spillgate]\n"""', "has an unexpected type"),
        ("opencode", ".config/opencode/plugin/spillgate.js", "mine", "Spillgate did not write it"),
        ("opencode", ".config/opencode/plugin/spillgate.js", "", "Spillgate did not write it"),
        ("pi", ".pi/agent/extensions/spillgate.js", "\n", "Spillgate did not write it"),
        ("cursor", ".cursor/mcp.json", "\xff", ""),
    ],
)
def test_a_file_that_cannot_be_edited_is_left_alone_and_so_are_the_others(
    client: str, name: str, text: str, said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_bytes(text.encode("latin-1"))
    before = files_below(home)
    assert main(["hook", "install", client]) == 2
    assert said in capsys.readouterr().err
    assert files_below(home) == before


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:1/a$(b) c"])
def test_the_hook_of_cursor_holds_nothing_that_cursor_takes_for_a_comment(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    monkeypatch.setenv("SPILLGATE_AUTO_START", "false")
    monkeypatch.setenv("SPILLGATE_URL", url)
    assert main(["hook", "install", "cursor"]) == 0
    text = (home / ".cursor/hooks.json").read_text()
    assert "//" not in text
    command = json.loads(text)["hooks"]["postToolUse"][0]["command"]
    shown = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True
    )
    assert f"SPILLGATE_URL={url}" in shown.stdout.splitlines()
    # All is set up, and no service answers there.
    assert main(["hook", "status", "cursor"]) == 1
    said = capsys.readouterr().out
    assert "missing" not in said
    assert "Results are not governed now." in said
    assert main(["hook", "uninstall", "cursor"]) == 0
    assert not (home / ".cursor/hooks.json").exists()


def test_the_service_and_its_key_are_named_as_each_client_names_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLGATE_URL", "http://127.0.0.1:9000/")
    monkeypatch.setenv("SPILLGATE_KEY", "secret")
    for client in PLANS:
        assert main(["hook", "install", client]) == 0
    written = {name: text.decode() for name, text in files_below(home).items()}
    assert not [name for name, text in written.items() if "secret" in text]
    server: Any = json.loads(written[".claude.json"])["mcpServers"]["spillgate"]
    assert server["url"] == "http://127.0.0.1:9000/mcp"
    assert server["headers"] == {"Authorization": "Bearer ${SPILLGATE_KEY}"}
    codex = tomllib.loads(written[".codex/config.toml"])["mcp_servers"]["spillgate"]
    assert codex == {"url": "http://127.0.0.1:9000/mcp", "bearer_token_env_var": "SPILLGATE_KEY"}
    groups = json.loads(written[".claude/settings.json"])["hooks"]["PostToolUse"]
    url, _, query = groups[1]["hooks"][0]["url"].partition("?")
    assert url == "http://127.0.0.1:9000/hooks/claude-code"
    # As the agent's shell reaches the same service.
    (shell,) = parse_qs(query)["shell"]
    assert shell == f"env SPILLGATE_URL=http://127.0.0.1:9000/ {Path(sys.executable).with_name('spillgate')}"
    for plugin in (".config/opencode/plugin/spillgate.js", ".pi/agent/extensions/spillgate.js"):
        assert f"const shell = {json.dumps(shell)} //" in written[plugin]
    # Another address replaces the entry, and does not add one.
    monkeypatch.setenv("SPILLGATE_URL", "unix:/run/spillgate.sock")
    assert main(["hook", "install", "claude-code"]) == 0
    groups = json.loads((home / ".claude/settings.json").read_text())["hooks"]["PostToolUse"]
    assert [group["hooks"][0]["type"] for group in groups] == ["command"]
    assert " SPILLGATE_URL=unix:/run/spillgate.sock " in groups[0]["hooks"][0]["command"]
    # The agent does not run with the variable that names the socket at the time of `install`.
    monkeypatch.delenv("SPILLGATE_URL")
    monkeypatch.setenv("SPILLGATE_UDS", "/run/other.sock")
    assert main(["hook", "install", "claude-code"]) == 0
    assert (home / ".claude/settings.json").read_text().count(" SPILLGATE_UDS=/run/other.sock ") == 3
    for client in PLANS:
        assert main(["hook", "uninstall", client]) == 0
    assert files_below(home) == {}


@pytest.mark.parametrize("in_project", [False, True], ids=["user", "project"])
@pytest.mark.parametrize("client", PLANS)
def test_no_setting_names_a_port_unless_the_user_has_named_it(
    client: str, in_project: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever listens at a port that is written into the settings gets the results and the key."""
    monkeypatch.setenv("SPILLGATE_KEY", "secret")
    project = home.parent / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    assert main(["hook", "install", client, *["--project"] * in_project]) == 0
    settings = {
        name: text.decode() for name, text in files_below(home.parent).items() if not name.endswith(".js")
    }
    assert [name for name, text in settings.items() if re.search("https?:|127.0.0.1|localhost", text)] == []


@pytest.mark.parametrize("client", PLANS)
def test_settings_that_name_a_port_are_told_and_replaced(
    client: str, home: Path, forked: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As earlier versions wrote them by default."""
    monkeypatch.setenv("SPILLGATE_URL", "http://127.0.0.1:1")
    assert main(["hook", "install", client]) == 0
    monkeypatch.delenv("SPILLGATE_URL")
    capsys.readouterr()
    assert main(["hook", "status", client]) == 1
    said = capsys.readouterr().out
    assert "missing" not in said
    assert said.count("the service at http://127.0.0.1:1: ") == {"pi": 1, "claude-code": 3}.get(client, 2)
    assert f"`spillgate hook install {client}` would write other addresses" in said
    assert main(["hook", "install", client]) == 0
    assert main(["hook", "status", client]) == int(client == "codex")
    assert "127.0.0.1" not in b"".join(files_below(home).values()).decode()
    assert main(["hook", "uninstall", client]) == 0
    assert files_below(home) == {}


def test_a_server_that_a_client_starts_gets_the_variables_that_name_its_service(
    home: Path, forked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some clients pass none of their own on. The password of a store is not written."""
    monkeypatch.setenv("SPILLGATE_URL", "unix:/run/s")
    monkeypatch.setenv("SPILLGATE_KEY", "secret")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / 'a "b"'))
    monkeypatch.setenv("SPILLGATE_STORAGE_URL", "redis://:password@host/0")
    for client in PLANS:
        assert main(["hook", "install", client]) == 0
    written = {name: text.decode() for name, text in files_below(home).items()}
    assert not [name for name, text in written.items() if "password" in text or '"secret"' in text]
    given = {"SPILLGATE_URL": "unix:/run/s", "XDG_STATE_HOME": str(home / 'a "b"')}
    codex = tomllib.loads(written[".codex/config.toml"])["mcp_servers"]["spillgate"]
    assert (codex["env"], codex["env_vars"]) == (given, ["SPILLGATE_KEY"])
    keys = {
        ".claude.json": "${SPILLGATE_KEY}",
        ".copilot/mcp-config.json": "${SPILLGATE_KEY}",
        ".cursor/mcp.json": "${env:SPILLGATE_KEY}",
        ".gemini/settings.json": "$SPILLGATE_KEY",
    }
    for name, key in keys.items():
        server = json.loads(written[name])["mcpServers"]["spillgate"]
        assert server["env"] == {**given, "SPILLGATE_KEY": key}
    opencode = json.loads(written[".config/opencode/opencode.json"])["mcp"]["spillgate"]
    assert opencode["environment"] == {**given, "SPILLGATE_KEY": "{env:SPILLGATE_KEY}"}
    assert 'const installed = {"SPILLGATE_URL": "unix:/run/s", ' in written[FILES["opencode"][1]]
    assert 'const installed = {"SPILLGATE_URL": "unix:/run/s", ' in written[FILES["pi"][0]]
    for client in PLANS:
        assert main(["hook", "status", client]) == 1  # All is set up, and no service answers there.
        assert main(["hook", "uninstall", client]) == 0
    assert files_below(home) == {}


def test_status_says_what_does_not_work(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that was moved, a program that fails, an MCP server that asks elsewhere than the hook."""
    assert main(["hook", "install", "claude-code"]) == 0
    settings = home / ".claude/settings.json"
    whole = settings.read_text()
    program = json.loads((home / ".claude.json").read_text())["mcpServers"]["spillgate"]["command"]
    for other, why in ((str(home / "spillgate"), "not found"), ("false; spillgate", "does not work")):
        settings.write_text(whole.replace(program, other))
        capsys.readouterr()
        assert main(["hook", "status", "claude-code"]) == 1
        said = capsys.readouterr().out
        assert "Results are not governed now. hook: " in said
        assert why in said
    settings.write_text(whole)
    servers = home / ".claude.json"
    changed = json.loads(servers.read_text())
    changed["mcpServers"]["spillgate"]["env"] = {"SPILLGATE_URL": "http://127.0.0.1:1"}
    servers.write_text(json.dumps(changed))
    capsys.readouterr()
    assert main(["hook", "status", "claude-code"]) == 1
    said = capsys.readouterr().out
    assert "MCP server: the service at http://127.0.0.1:1: No service answers" in said
    assert re.search("hook: the service at unix:.*/socket: none runs", said)


@pytest.mark.parametrize(
    "wrong", [{"command": []}, {"command": [7]}, {"environment": {"A": 1}}, {"environment": [1]}]
)
def test_status_says_what_an_agent_cannot_run(
    wrong: dict[str, object], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hook", "install", "opencode"]) == 0
    path = home / ".config/opencode/opencode.json"
    settings = json.loads(path.read_text())
    settings["mcp"]["spillgate"] |= wrong
    path.write_text(json.dumps(settings))
    capsys.readouterr()
    assert main(["hook", "status", "opencode"]) == 1
    assert "MCP server: its command is no list of words, or its variables" in capsys.readouterr().out


def test_status_knows_the_hooks_that_codex_trusts(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The digests are those of Codex 0.169 for these hooks."""
    assert main(["hook", "install", "codex"]) == 0
    path = home / ".codex/hooks.json"
    hook = {"type": "command", "command": "/x/spillgate hook codex", "timeout": 10}
    group = {"matcher": "^(Bash|mcp__.*)$", "hooks": [hook]}
    path.write_text(json.dumps({"hooks": {"PostToolUse": [group], "PreToolUse": [group]}}))
    config = home / ".codex/config.toml"
    before = "sha256:ff1153892d03d8cb3301210e9361ba0d09bf8d7ff9b142507c381c4860974df0"
    given = config.read_text() + f'\n[hooks.state."{path}:pre_tool_use:0:0"]\ntrusted_hash = "{before}"\n'
    digest = "sha256:d95b395e9b05f8cbc66debe16b788c57b777a91016a9640dab5e4934addd084c"
    for lines, expected in (
        (f'trusted_hash = "{digest}"', ""),
        (f'trusted_hash = "{digest[:-1]}d"', "not trusted yet"),
        (f'trusted_hash = "{digest}"\nenabled = false', "switched off"),
    ):
        config.write_text(f'{given}\n[hooks.state."{path}:post_tool_use:0:0"]\n{lines}\n')
        capsys.readouterr()
        main(["hook", "status", "codex"])
        said = capsys.readouterr().out
        assert ("Set up, " in said) == bool(expected)
        assert expected in said


def test_all_agents_that_are_found_are_set_up(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = home.parent / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.chdir(home.parent)
    with pytest.raises(ConfigError, match="No agent is found"):
        main_of_install(["install", "--all"])
    put(programs / "opencode", "#!/bin/sh\n")
    (programs / "opencode").chmod(0o755)
    (home / ".gemini").mkdir()
    assert main(["hook", "install", "--all"]) == 0
    assert sorted(files_below(home)) == sorted((*FILES["gemini"], *FILES["opencode"]))
    capsys.readouterr()
    assert main(["hook", "status", "--all"]) == 0
    assert re.findall("^([a-z-]+):$", capsys.readouterr().out, re.MULTILINE) == ["gemini", "opencode"]
    assert main(["hook", "uninstall", "--all"]) == 0
    assert files_below(home) == {}
    for wrong in (["install"], ["install", "pi", "--all"]):
        with pytest.raises(SystemExit):
            main(["hook", *wrong])


def test_a_service_that_starts_by_itself_is_reached_by_a_command(home: Path) -> None:
    """The client starts it as its MCP server, and with it the service."""
    for client in PLANS:
        assert main(["hook", "install", client]) == 0
    written = {name: text.decode() for name, text in files_below(home).items()}
    program = json.loads(written[".cursor/mcp.json"])["mcpServers"]["spillgate"]["command"]
    assert program.startswith("/")
    started = {"command": program, "args": ["mcp", "--tools"]}
    assert json.loads(written[".claude.json"])["mcpServers"]["spillgate"] == {"type": "stdio", **started}
    assert json.loads(written[".gemini/settings.json"])["mcpServers"]["spillgate"] == started
    assert tomllib.loads(written[".codex/config.toml"])["mcp_servers"]["spillgate"] == started
    copilot = json.loads(written[".copilot/mcp-config.json"])["mcpServers"]["spillgate"]
    assert copilot == {"type": "local", **started, "tools": ["*"]}
    opencode = json.loads(written[".config/opencode/opencode.json"])["mcp"]["spillgate"]
    assert opencode == {"type": "local", "command": [program, "mcp", "--tools"]}


@pytest.mark.parametrize(
    ("before", "after_install"),
    [
        (
            "# Mine.\n",
            "\n# My other server: keep this note.\n[mcp_servers.other]\nurl = 'http://other/mcp'\n",
        ),
        ("[mcp_servers]\n", ""),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_what_stands_around_the_table_of_codex_stays(
    home: Path, monkeypatch: pytest.MonkeyPatch, before: str, after_install: str, again: bool
) -> None:
    config = home / ".codex/config.toml"
    config.parent.mkdir()
    config.write_text(before)
    assert main(["hook", "install", "codex"]) == 0
    config.write_text(config.read_text() + after_install)
    if again:
        monkeypatch.setenv("SPILLGATE_URL", "http://127.0.0.1:9000")
        assert main(["hook", "install", "codex"]) == 0
        assert tomllib.loads(config.read_text())["mcp_servers"]["spillgate"]["url"].startswith(
            "http://127.0.0.1:9"
        )
    assert main(["hook", "uninstall", "codex"]) == 0
    assert config.read_text().split() == (before + after_install).split()


@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        (
            "claude-code",
            ".claude.json",
            '{"mcpServers": {"spillgate": {"type": "http", "url": "http://mine/mcp"}}}',
        ),
        ("codex", ".codex/config.toml", '[mcp_servers.spillgate]\nurl = "http://mine/mcp"\n'),
    ],
)
def test_a_server_of_the_user_with_the_same_name_is_neither_replaced_nor_removed(
    home: Path, capsys: pytest.CaptureFixture[str], client: str, name: str, text: str
) -> None:
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).write_text(text)
    assert main(["hook", "uninstall", client]) == 0
    assert main(["hook", "install", client]) == 2
    assert "Rename it" in capsys.readouterr().err
    assert files_below(home) == {name: text.encode()}


def test_an_unknown_client_is_refused_with_the_known_ones(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hook", "install", "clippy"]) == 2
    assert "claude-code, codex" in capsys.readouterr().err


def test_what_is_no_writable_file_is_refused_and_an_empty_one_stays(home: Path) -> None:
    settings = home / ".cursor" / "hooks.json"
    settings.parent.mkdir()
    os.mkfifo(settings)
    assert main(["hook", "install", "cursor"]) == 2
    assert stat.S_ISFIFO(settings.stat().st_mode)
    settings.unlink()
    settings.write_text("{}")
    settings.chmod(0o444)
    assert main(["hook", "install", "cursor"]) == 2
    assert settings.read_text() == "{}"
    settings.chmod(0o644)
    settings.write_text("")
    for _ in range(2):
        assert main(["hook", "install", "cursor"]) == 0
        assert "spillgate" in settings.read_text()
    assert main(["hook", "uninstall", "cursor"]) == 0
    assert settings.read_text() == ""


def test_a_kill_leaves_no_copy_of_the_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home / ".cursor" / "hooks.json", '{"secret": 1}')
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda file: seen.append(os.listdir(home / ".cursor")))
    assert main(["hook", "install", "cursor"]) == 0
    assert seen[0] == ["hooks.json"]
    assert sorted(os.listdir(home / ".cursor")) == ["hooks.json", "mcp.json"]
