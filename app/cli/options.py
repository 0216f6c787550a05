"""The options of each command, and the settings with those options on top."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from app import DEFAULT_URL, __version__

if TYPE_CHECKING:
    from app.settings import Settings

_OPTIONS = {
    "host": "--host",
    "port": "--port",
    "uds": "--uds",
    "policy_file": "--policy",
    "api_keys_file": "--file",
}
"""The settings that an option sets."""


def settings_of(options: argparse.Namespace) -> Settings:
    """The environment's settings, with the command line's on top. Raises ConfigError."""
    from app.settings import load_settings

    given = {name: getattr(options, name, None) for name in _OPTIONS}
    return load_settings(**{name: value for name, value in given.items() if value is not None})


def naming_options(message: str, options: argparse.Namespace) -> str:
    """The error names a setting as its option, if an option set it."""
    for name, option in _OPTIONS.items():
        if getattr(options, name, None) is not None:
            message = message.replace(f"SPILLGATE_{name.upper()}", option)
    return message


def parser(chosen: str) -> argparse.ArgumentParser:
    """Knows the chosen command alone, or all if there is none of this name: to build all takes 10 ms."""
    whole = argparse.ArgumentParser(
        prog="spillgate",
        description="HTTP sidecar that governs tool results.",
        epilog="Settings come from the environment, as SPILLGATE_*: `spillgate check-config` shows them all.",
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="version", version=f"spillgate {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in [chosen] if chosen in COMMANDS else COMMANDS:
        command = COMMANDS[name]
        said = f"{command.help[:1].upper()}{command.help[1:]}."
        where = _WHERE if command.module == _SHELL else None
        command.add_arguments(commands.add_parser(name, help=command.help, description=said, epilog=where))
    return whole


def _add_address(command: argparse.ArgumentParser) -> None:
    from pathlib import Path

    command.add_argument("--host", help="as SPILLGATE_HOST")
    command.add_argument("--port", type=int, help="as SPILLGATE_PORT")
    command.add_argument("--uds", type=Path, help="as SPILLGATE_UDS")


def _add_check(check: argparse.ArgumentParser) -> None:
    from pathlib import Path

    check.add_argument("--tool", help="show the policy for this tool, and who set each key")
    check.add_argument("--model", help="show what is known of this model")
    check.add_argument("--policy", dest="policy_file", type=Path, help="as SPILLGATE_POLICY_FILE")
    check.add_argument("--json", action="store_true", help="all of it as JSON")


def _add_nothing(command: argparse.ArgumentParser) -> None:
    """For a command without arguments."""


def _add_try(trial: argparse.ArgumentParser) -> None:
    from pathlib import Path

    trial.add_argument("file", help="the result; - for stdin")
    trial.add_argument("--tool", help="the tool that returned it (read_file; for stdin execute_shell)")
    trial.add_argument("--arguments", help="what the tool was given, as JSON (the file's path)")
    trial.add_argument("--model", help="count tokens as this model does")
    trial.add_argument("--policy", dest="policy_file", type=Path, help="as SPILLGATE_POLICY_FILE")
    trial.add_argument("--profile", help="under this profile instead of the policy in force")
    trial.add_argument("--show", metavar="OUTCOME", help="print the text too: of this outcome, or of `all`")


def _add_replay(replay: argparse.ArgumentParser) -> None:
    from replay.command import add_arguments

    add_arguments(replay)


def _add_keys(keys: argparse.ArgumentParser) -> None:
    from pathlib import Path

    actions = keys.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser("new", help="make a key, and print it once")
    new.add_argument("tenant")
    new.add_argument("--role", choices=("agent", "metrics", "admin"), default="agent", help="(agent)")
    new.add_argument("--name", default="", help="stands for the key in logs")
    new.add_argument("--expires", default="", metavar="DATE", help="such as 2027-01-31, in UTC")
    listed = actions.add_parser("list", help="show what the file says of each key")
    revoke = actions.add_parser("revoke", help="remove a key")
    rotate = actions.add_parser("rotate", help="make a key in place of another, which expires a while later")
    rotate.add_argument("--hours", type=float, default=24.0, help="until the old key expires (24)")
    for action in (new, listed, revoke, rotate):
        action.add_argument(
            "--file", dest="api_keys_file", metavar="FILE", type=Path, help="as SPILLGATE_API_KEYS_FILE"
        )
    for action in (revoke, rotate):
        action.add_argument("key", metavar="NAME", help="the key's name, or the digits that `list` shows")


def _add_pipe(pipe: argparse.ArgumentParser) -> None:
    pipe.add_argument("--tool", help="the tool that returned it (execute_shell)", default="execute_shell")
    pipe.add_argument("--session", help="as SPILLGATE_SESSION")


_HANDLE = "as the message that replaced the result gave it"


def _add_ask(ask: argparse.ArgumentParser) -> None:
    ask.add_argument("handle", help=_HANDLE)
    ask.add_argument("extract", metavar="question", help="what you look for, in words that the data may hold")
    ask.add_argument("--mode", help="auto, full-chunked, read-grep, retrieve or truncate (auto)")


def _add_grep(grep: argparse.ArgumentParser) -> None:
    grep.add_argument("handle", help=_HANDLE)
    grep.add_argument("pattern", help="a regular expression (RE2)")
    grep.add_argument("--context", type=int, help="lines around each match")
    grep.add_argument("--ignore-case", action="store_true", default=None, help="ignore upper and lower case")
    grep.add_argument("--offset", type=int, help="the first match to show, counted from 1")


def _add_lines(lines: argparse.ArgumentParser) -> None:
    lines.add_argument("handle", help=_HANDLE)
    lines.add_argument("offset", type=int, help="the first line, counted from 1")
    lines.add_argument("limit", type=int, nargs="?", help="how many lines")


def _add_query(query: argparse.ArgumentParser) -> None:
    query.add_argument("handle", help=_HANDLE)
    query.add_argument("expression", help="JMESPath, such as [?price > `10`].name")


def _add_hook(hook: argparse.ArgumentParser) -> None:
    """`hook CLIENT` itself is handled before: see `main`."""
    from app.cli.hook_files import PLANS

    hook.usage = (
        "spillgate hook CLIENT   (answers the hook's JSON on stdin)\n"
        "       spillgate hook install|uninstall|status CLIENT [--project] [--dry-run]"
    )
    hook.add_argument(
        "action",
        choices=("install", "uninstall", "status"),
        help="add to, remove from or find in its settings",
    )
    hook.add_argument("client", help=f"one of {', '.join(PLANS)}")
    hook.add_argument("--project", action="store_true", help="the project in this folder, not the user")
    hook.add_argument("--dry-run", action="store_true", help="show the change, write nothing")


def _add_mcp(mcp: argparse.ArgumentParser) -> None:
    mcp.usage = "spillgate mcp [options] -- COMMAND ...\n       spillgate mcp [options] --url URL"
    # Some clients leave the dashes before a command out.
    mcp.add_argument("server", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    mcp.add_argument("--url", help="an MCP server over streamable HTTP, instead of a command")
    mcp.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="to send to the URL, repeatable",
    )
    mcp.add_argument(
        "--embedded",
        action=argparse.BooleanOptionalAction,
        help="serve in this process, also if a service runs (if none runs, and its address is on loopback)",
    )


class Command(NamedTuple):
    """`module` has the function `run` of the command; "" if it is one of `app.cli.main`."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    module: str = ""


_SHELL = "app.cli.shell"
"""Its commands speak to a running service, that of SPILLGATE_URL."""

_WHERE = (
    f"Asks the service at SPILLGATE_URL ({DEFAULT_URL}), with the key SPILLGATE_KEY if that is set. "
    "`spillgate serve` starts one."
)

COMMANDS = {
    "serve": Command("serve until stopped", _add_address),
    "healthcheck": Command("exit 0 if a running service is ready, else 1", _add_address),
    "check-config": Command("show the settings and policy in force", _add_check, "app.cli.check_config"),
    "try": Command("show what each outcome would hand to the model", _add_try, "app.cli.try_out"),
    "replay": Command("show what a policy would have done to recorded runs", _add_replay, "replay.command"),
    "openapi": Command("print the OpenAPI document", _add_nothing),
    "keys": Command("make, list, revoke and rotate API keys", _add_keys, "app.cli.keys"),
    "pipe": Command("govern stdin as a tool's result: print what the model is to read", _add_pipe, _SHELL),
    "ask": Command("ask a question about a stored result", _add_ask, _SHELL),
    "grep": Command("search the lines of a stored result", _add_grep, _SHELL),
    "lines": Command("print lines of a stored result", _add_lines, _SHELL),
    "query": Command("evaluate a JMESPath expression over a stored result", _add_query, _SHELL),
    "hook": Command("answer a coding agent's hook, or set the agent up", _add_hook, "app.cli.hook_install"),
    "mcp": Command("govern the results of an MCP server's tools", _add_mcp, "app.cli.mcp"),
}
