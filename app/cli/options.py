"""The options of each command, and the settings with those options on top."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from app import __version__

if TYPE_CHECKING:
    from app.settings import Settings

    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_OPTIONS = {"host": "--host", "port": "--port", "uds": "--uds", "policy_file": "--policy"}
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


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="spillgate", description="HTTP sidecar that governs tool results.", allow_abbrev=False
    )
    whole.add_argument("--version", action="version", version=f"spillgate {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("serve", "serve until stopped"),
        ("healthcheck", "exit 0 if a running service is ready, else 1"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--host", help="as SPILLGATE_HOST")
        command.add_argument("--port", type=int, help="as SPILLGATE_PORT")
        command.add_argument("--uds", type=Path, help="as SPILLGATE_UDS")
    check = commands.add_parser("check-config", help="show the settings and policy in force")
    check.add_argument("--tool", help="show the policy for this tool, and who set each key")
    check.add_argument("--model", help="show what is known of this model")
    check.add_argument("--policy", dest="policy_file", type=Path, help="as SPILLGATE_POLICY_FILE")
    check.add_argument("--json", action="store_true", help="all of it as JSON")
    _add_try(commands)
    commands.add_parser("openapi", help="print the OpenAPI document")
    _add_keys(commands)
    _add_shell(commands)
    _add_hook(commands)
    _add_mcp(commands)
    return whole


def _add_try(commands: _Commands) -> None:
    trial = commands.add_parser("try", help="show what each outcome would hand to the model for a result")
    trial.add_argument("file", help="the result; - for stdin")
    trial.add_argument("--tool", help="the tool that returned it (read_file; for stdin execute_shell)")
    trial.add_argument("--arguments", help="what the tool was given, as JSON (the file's path)")
    trial.add_argument("--model", help="count tokens as this model does")
    trial.add_argument("--policy", dest="policy_file", type=Path, help="as SPILLGATE_POLICY_FILE")
    trial.add_argument("--profile", help="under this profile instead of the policy in force")
    trial.add_argument("--show", metavar="OUTCOME", help="print the text too: of this outcome, or of `all`")


def _add_keys(commands: _Commands) -> None:
    keys = commands.add_parser("keys", help="make, list, revoke and rotate API keys")
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
        action.add_argument("--file", type=Path, help="as SPILLGATE_API_KEYS_FILE")
    for action in (revoke, rotate):
        action.add_argument("key", metavar="NAME", help="the key's name, or the digits that `list` shows")


def _add_shell(commands: _Commands) -> None:
    """The commands that speak to a running service: that of SPILLGATE_URL."""
    pipe = commands.add_parser("pipe", help="stdin as a tool's result: print what the model is to read")
    pipe.add_argument("--tool", help="the tool that returned it (execute_shell)", default="execute_shell")
    pipe.add_argument("--session", help="as SPILLGATE_SESSION")
    ask = commands.add_parser("ask", help="ask a question about a stored result")
    grep = commands.add_parser("grep", help="search the lines of a stored result")
    lines = commands.add_parser("lines", help="print lines of a stored result")
    query = commands.add_parser("query", help="evaluate a JMESPath expression over a stored result")
    for command in (ask, grep, lines, query):
        command.add_argument("handle", help="as the message that replaced the result gave it")
    ask.add_argument("extract", metavar="question", help="what you look for, in words that the data may hold")
    ask.add_argument("--mode", help="auto, full-chunked, read-grep, retrieve or truncate (auto)")
    grep.add_argument("pattern", help="a regular expression (RE2)")
    grep.add_argument("--context", type=int, help="lines around each match")
    grep.add_argument("--ignore-case", action="store_true", default=None, help="ignore upper and lower case")
    grep.add_argument("--offset", type=int, help="the first match to show, counted from 1")
    lines.add_argument("offset", type=int, help="the first line, counted from 1")
    lines.add_argument("limit", type=int, nargs="?", help="how many lines")
    query.add_argument("expression", help="JMESPath, such as [?price > `10`].name")


def _add_hook(commands: _Commands) -> None:
    """`hook CLIENT` itself is handled before: see `main`."""
    hook = commands.add_parser(
        "hook",
        help="a coding agent's hook: answer the JSON on stdin, or set the agent up",
        usage="spillgate hook [install|uninstall|status] CLIENT [--project] [--dry-run]",
    )
    hook.add_argument(
        "action",
        choices=("install", "uninstall", "status"),
        help="add to, remove from or find in its settings",
    )
    hook.add_argument("client", help="claude-code, codex, copilot, cursor, gemini, opencode or pi")
    hook.add_argument("--project", action="store_true", help="the project in this folder, not the user")
    hook.add_argument("--dry-run", action="store_true", help="show the change, write nothing")


def _add_mcp(commands: _Commands) -> None:
    mcp = commands.add_parser(
        "mcp",
        help="stand before an MCP server, and replace large results of its tools",
        usage="spillgate mcp [options] -- COMMAND ...\n       spillgate mcp [options] --url URL",
    )
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
