"""The settings files of coding agents, and what `spillgate hook install` writes into each."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from beside.hooks.jsonc import KeyPath

SERVER = "spillgate"
"""The name of the MCP server, which the tools' names have as a prefix (see `domain.hooks`)."""

TIMEOUT_SECONDS = 10
"""How long an agent waits for a hook, whose own timeout is shorter."""

TOOLS = ("mcp", "--tools")
"""The arguments of the MCP server that a client starts."""

INSTALLED = "const installed = "
"""In a plugin, before the variables that say which service it asks where the agent's do not."""

PLUGINS = Path(__file__).parents[2] / "integrations"


_REFERS = "i=$(cat); case $i in *spillgate:*) ;; *) exit 0;; esac;"


class SettingsFile(NamedTuple):
    """One file and the entries in it. The items of a list go into the list at its keys. `base` is what a new
    JSON file must hold beside them. A `whole` file has no other author."""

    path: Path
    kind: str
    entries: tuple[tuple[KeyPath, Any], ...] = ()
    base: Mapping[str, Any] = {}
    whole: str = ""

    @property
    def has_comments(self) -> bool:
        return self.kind == "jsonc"


class Setup(NamedTuple):
    """Where a client is set up, and for which service. `url` is that of SPILLGATE_URL, which is trusted; None
    for the user's own service, and for one on a Unix socket, which neither an HTTP hook nor an MCP client
    reaches: then `program` is what the client starts as its MCP server, with the variables `given`. With
    `has_key`, requests carry SPILLGATE_KEY. `shell` is how the agent's shell calls the command, "" where that
    is in its PATH."""

    home: Path
    project: Path | None
    environment: Mapping[str, str]
    command: str
    url: str | None
    has_key: bool
    program: str = SERVER
    given: Mapping[str, str] = {}
    shell: str = ""

    def folder(self, in_project: str, in_home: str, variable: str = "") -> Path:
        """The client's folder. `variable` names it for a user who has moved it."""
        if self.project is not None:
            return self.project / in_project
        path = self.environment.get(variable)
        return Path(path) if path else self.home / in_home

    def run(self, client: str) -> str:
        return f"{self.command} hook {client}"

    def run_before(self, client: str) -> str:
        """For the hook before each call: a shell lets calls pass that refer to no stored result. The command
        itself takes a tenth of a second."""
        return f'{_REFERS} printf %s "$i" | {self.run(client)}'

    def variables(self, key: str) -> dict[str, str]:
        """Those of the MCP server that the client starts, which may not get those of the client."""
        return {**self.given, **({"SPILLGATE_KEY": key} if self.has_key and key else {})}

    def started(self, key: str) -> dict[str, Any]:
        """The MCP server that the client starts, as most clients write it. `key` is how the client writes the
        value of SPILLGATE_KEY, "" if it does so by other means."""
        given = self.variables(key)
        return {"command": self.program, "args": [*TOOLS], **({"env": given} if given else {})}

    def mcp(
        self, keys: KeyPath, field: str, key: str, started: Mapping[str, Any], **fields: Any
    ) -> tuple[tuple[KeyPath, Any], ...]:
        """The MCP server in the words of the client: `started`, or at the URL, with `fields`."""
        if self.url is None:
            return (((*keys, SERVER), dict(started)),)
        headers = {"headers": {"Authorization": f"Bearer {key}"}} if self.has_key else {}
        return (((*keys, SERVER), {**fields, field: f"{self.url}/mcp", **headers}),)


_READING = "Read|Grep|Glob|WebFetch|WebSearch|Agent|ReadMcpResourceTool"


def _claude_code(setup: Setup) -> list[SettingsFile]:
    """A command; with SPILLGATE_URL it is HTTP for the tools whose output Claude Code leaves in no file."""
    run = {"type": "command", "command": setup.run("claude-code"), "timeout": TIMEOUT_SECONDS}
    groups = [{"matcher": f"^(Bash|{_READING}|mcp__(?!spillgate__).*)$", "hooks": [run]}]
    if setup.url is not None:
        groups = [
            {"matcher": "^(Bash|mcp__(?!spillgate__).*)$", "hooks": [run]},
            {"matcher": f"^({_READING})$", "hooks": [_claude_code_http(setup, setup.url)]},
        ]
    started = {"type": "stdio", **setup.started("${SPILLGATE_KEY}")}
    mcp = setup.mcp(("mcpServers",), "url", "${SPILLGATE_KEY}", started, type="http")
    before = {**run, "command": setup.run_before("claude-code")}
    pre = [{"matcher": "^(Bash|Write|Edit|NotebookEdit|Agent|mcp__(?!spillgate__).*)$", "hooks": [before]}]
    folder = setup.folder(".claude", ".claude", "CLAUDE_CONFIG_DIR")
    if setup.project is not None:
        servers = setup.project / ".mcp.json"
    elif setup.environment.get("CLAUDE_CONFIG_DIR"):
        servers = folder / ".claude.json"
    else:
        servers = setup.home / ".claude.json"
    return [
        SettingsFile(
            folder / "settings.json",
            "json",
            (
                (("hooks", "PostToolUse"), groups),
                (("hooks", "PreToolUse"), pre),
                (("hooks", "SessionEnd"), [{"hooks": [run]}]),
            ),
        ),
        SettingsFile(servers, "json", mcp),
    ]


def _claude_code_http(setup: Setup, url: str) -> dict[str, Any]:
    shell = f"?{urlencode({'shell': setup.shell})}" if setup.shell else ""
    post = {"type": "http", "url": f"{url}/hooks/claude-code{shell}", "timeout": TIMEOUT_SECONDS}
    if not setup.has_key:
        return post
    return post | {
        "headers": {"Authorization": "Bearer $SPILLGATE_KEY"},
        "allowedEnvVars": ["SPILLGATE_KEY"],
    }


def _codex(setup: Setup) -> list[SettingsFile]:
    run = {"type": "command", "command": setup.run("codex"), "timeout": TIMEOUT_SECONDS}
    groups = [{"matcher": "^(Bash|mcp__.*)$", "hooks": [run]}]
    before = [{"matcher": "^mcp__.*$", "hooks": [{**run, "command": setup.run_before("codex")}]}]
    server: dict[str, Any] = setup.started("") if setup.url is None else {"url": f"{setup.url}/mcp"}
    if setup.has_key:
        by_key = (
            {"env_vars": ["SPILLGATE_KEY"]}
            if setup.url is None
            else {"bearer_token_env_var": "SPILLGATE_KEY"}
        )
        server |= by_key
    folder = setup.folder(".codex", ".codex", "CODEX_HOME")
    return [
        SettingsFile(
            folder / "hooks.json",
            "json",
            ((("hooks", "PostToolUse"), groups), (("hooks", "PreToolUse"), before)),
        ),
        SettingsFile(folder / "config.toml", "toml", ((("mcp_servers", SERVER), server),)),
    ]


def _copilot(setup: Setup) -> list[SettingsFile]:
    run = {"type": "command", "bash": setup.run("copilot"), "timeoutSec": TIMEOUT_SECONDS}
    folder = setup.folder(".github", ".copilot", "COPILOT_HOME")
    servers = "mcp.json" if setup.project is not None else "mcp-config.json"
    started = {"type": "local", **setup.started("${SPILLGATE_KEY}"), "tools": ["*"]}
    mcp = setup.mcp(("mcpServers",), "url", "${SPILLGATE_KEY}", started, type="http", tools=["*"])
    hooks = ((("hooks", "postToolUse"), [run]),)
    return [
        SettingsFile(folder / "hooks" / "spillgate.json", "json", hooks, {"version": 1}),
        SettingsFile(folder / servers, "json", mcp),
    ]


def _cursor(setup: Setup) -> list[SettingsFile]:
    # Cursor takes `//` for the beginning of a comment, also within a string. A shell reads `/''/` as `//`.
    command = setup.run("cursor").replace("//", "/''/")
    run = {"command": command, "matcher": "^MCP:", "timeout": TIMEOUT_SECONDS}
    folder = setup.folder(".cursor", ".cursor")
    hooks = ((("hooks", "postToolUse"), [run]),)
    mcp = setup.mcp(("mcpServers",), "url", "${env:SPILLGATE_KEY}", setup.started("${env:SPILLGATE_KEY}"))
    return [
        SettingsFile(folder / "hooks.json", "jsonc", hooks, {"version": 1}),
        SettingsFile(folder / "mcp.json", "jsonc", mcp),
    ]


def _gemini(setup: Setup) -> list[SettingsFile]:
    run = {
        "name": SERVER,
        "type": "command",
        "command": setup.run("gemini"),
        "timeout": TIMEOUT_SECONDS * 1000,
    }
    groups = [{"matcher": ".*", "hooks": [run]}]
    before = [{"matcher": ".*", "hooks": [{**run, "command": setup.run_before("gemini")}]}]
    mcp = setup.mcp(("mcpServers",), "httpUrl", "$SPILLGATE_KEY", setup.started("$SPILLGATE_KEY"))
    folder = setup.folder(".gemini", ".gemini")
    hooks = (
        (("hooks", "AfterTool"), groups),
        (("hooks", "BeforeTool"), before),
        (("hooks", "SessionEnd"), [{"hooks": [run]}]),
    )
    return [SettingsFile(folder / "settings.json", "jsonc", (*hooks, *mcp))]


def _opencode(setup: Setup) -> list[SettingsFile]:
    config = setup.environment.get("XDG_CONFIG_HOME")
    folder = Path(config) / "opencode" if config and setup.project is None else None
    folder = folder or setup.folder("", ".config/opencode")
    given = setup.variables("{env:SPILLGATE_KEY}")
    started = {
        "type": "local",
        "command": [setup.program, *TOOLS],
        **({"environment": given} if given else {}),
    }
    mcp = setup.mcp(("mcp",), "url", "{env:SPILLGATE_KEY}", started, type="remote")
    # OpenCode reads both names: the one that is there.
    name = "opencode.jsonc" if (folder / "opencode.jsonc").exists() else "opencode.json"
    plugins = folder / ".opencode" if setup.project is not None else folder
    return [_plugin(setup, "opencode", plugins / "plugin"), SettingsFile(folder / name, "jsonc", mcp)]


def _pi(setup: Setup) -> list[SettingsFile]:
    """The extension has the model's tools itself: pi needs no MCP server."""
    return [_plugin(setup, "pi", setup.folder(".pi", ".pi/agent") / "extensions")]


def _plugin(setup: Setup, client: str, folder: Path) -> SettingsFile:
    name = f"{SERVER}.js"
    text = (PLUGINS / client / name).read_text(encoding="utf-8")
    text = text.replace('const shell = ""', f"const shell = {json.dumps(setup.shell)}")
    text = text.replace(INSTALLED + "{}", INSTALLED + json.dumps(dict(setup.given)))
    return SettingsFile(folder / name, "whole", whole=text)


class InstallPlan(NamedTuple):
    """`files` are the settings files of a client, `program` is its own. `note` is what its user must know
    after `install`."""

    files: Callable[[Setup], list[SettingsFile]]
    program: str
    note: str = ""


PLANS = {
    "claude-code": InstallPlan(_claude_code, "claude"),
    "codex": InstallPlan(
        _codex, "codex", "Codex runs a new hook only after you trust it: type /hooks there."
    ),
    "copilot": InstallPlan(_copilot, "copilot"),
    "cursor": InstallPlan(_cursor, "cursor-agent", "Cursor lets a hook replace results of MCP tools only."),
    "gemini": InstallPlan(
        _gemini, "gemini", "Gemini CLI shows the model a replacement as the tool's error text."
    ),
    "opencode": InstallPlan(_opencode, "opencode"),
    "pi": InstallPlan(_pi, "pi"),
}

PROJECT_NOTE = (
    "The agent reads settings of a project only in a folder that you trust, and may ask for each server."
)
