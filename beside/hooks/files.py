"""The settings files of a coding agent, and what `spillgate hook install` writes into each."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from beside.hooks.jsonc import KeyPath

SERVER = "spillgate"
"""The name of the MCP server, which the tools' names have as a prefix (see `beside.hooks.agents`)."""

TIMEOUT_SECONDS = 10
"""The seconds that an agent waits for a hook, whose own timeout is shorter."""

TOOLS = ("mcp", "--tools")
"""The arguments of the MCP server that a client starts."""

INSTALLED = "const installed = "
"""Precedes, in a plugin, the variables that say which service it asks if the agent's variables do not."""

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
        """The variables of the MCP server that the client starts, because the client may not pass its own
        on."""
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


def plugin(setup: Setup, client: str, folder: Path) -> SettingsFile:
    name = f"{SERVER}.js"
    text = (PLUGINS / client / name).read_text(encoding="utf-8")
    text = text.replace('const shell = ""', f"const shell = {json.dumps(setup.shell)}")
    text = text.replace(INSTALLED + "{}", INSTALLED + json.dumps(dict(setup.given)))
    return SettingsFile(folder / name, "whole", whole=text)


class InstallPlan(NamedTuple):
    """`files` are the settings files of a client, `program` is its own. `note` is what its user must know
    after `install`. `asks_with` is what its model asks about a stored result with, "" for an MCP server.
    Without `starts_service`, neither its hook nor an MCP server starts the service."""

    files: Callable[[Setup], list[SettingsFile]]
    program: str
    note: str = ""
    asks_with: str = ""
    starts_service: bool = True


PROJECT_NOTE = (
    "The agent reads settings of a project only in a folder that you trust, and may ask for each server."
)
