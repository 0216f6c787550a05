"""The commands of `spillgate`, each with its purpose and its program."""

from typing import NamedTuple


class Command(NamedTuple):
    """`module` has a function `main`, which takes the arguments after the name. The modules of
    several commands get the name too."""

    help: str
    module: str

    @property
    def description(self) -> str:
        return f"{self.help[:1].upper()}{self.help[1:]}."


SERVICE, SHELL, LISTING = "app.cli.main", "beside.shell", "beside.listing"

SETTING_UP = ("install", "uninstall", "status")
"""The subcommands of `hook` that set an agent up: they are in beside.hooks.install."""

COMMANDS = {
    "serve": Command("serve until stopped", SERVICE),
    "healthcheck": Command("exit 0 if a running service is ready, else 1", "beside.healthcheck"),
    "check-config": Command("show the settings and policy in force", SERVICE),
    "try": Command("show what each outcome would hand to the model", SERVICE),
    "replay": Command("show what a policy would have done to recorded runs", "replay.command"),
    "openapi": Command("print the OpenAPI document", SERVICE),
    "keys": Command("make, list, revoke and rotate API keys", SERVICE),
    "ledger": Command("copy the ledger into PostgreSQL", SERVICE),
    "pipe": Command("govern stdin as a tool's result: print what the model is to read", SHELL),
    "ask": Command("ask a question about a stored result", SHELL),
    "grep": Command("search the lines of a stored result", SHELL),
    "lines": Command("print lines of a stored result", SHELL),
    "query": Command("query a stored result with SQL or JMESPath", SHELL),
    "ls": Command("list the stored results, newest first", LISTING),
    "cat": Command("write the bytes of a stored result, or of a part", LISTING),
    "stats": Command("show by tool what was kept out of the context", LISTING),
    "hook": Command("answer a coding agent's hook, or set the agent up", "beside.hooks.answer"),
    "service": Command("start, stop and look at the service of this user", "beside.service_command"),
    "ui": Command("open the dashboard in a browser", "beside.ui"),
    "mcp": Command("govern the results of an MCP server's tools", "beside.relay.main"),
}
