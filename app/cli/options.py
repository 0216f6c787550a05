"""The options of each command of the service, and the settings with those options on top.

`app.settings` is imported by `settings_of`: `serve` prepares the interpreter before it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from beside.commands import COMMANDS

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

    values = {name: getattr(options, name, None) for name in _OPTIONS}
    return load_settings(**{name: value for name, value in values.items() if value is not None})


def naming_options(message: str, options: argparse.Namespace) -> str:
    """The error names a setting as its option, if an option set it."""
    for name, option in _OPTIONS.items():
        if getattr(options, name, None) is not None:
            message = message.replace(f"SPILLGATE_{name.upper()}", option)
    return message


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="spillgate", allow_abbrev=False)
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in SERVICE_COMMANDS.items():
        about = COMMANDS[name]
        command.add_arguments(commands.add_parser(name, help=about.help, description=about.description))
    return whole


def _add_address(command: argparse.ArgumentParser) -> None:
    command.add_argument("--host", help="as SPILLGATE_HOST")
    command.add_argument("--port", type=int, help="as SPILLGATE_PORT")
    command.add_argument("--uds", type=Path, help="as SPILLGATE_UDS")
    # For a service that a command starts: `beside.embedded`.
    command.add_argument("--until-idle", type=float, metavar="SECONDS", help=argparse.SUPPRESS)


def _add_check(check: argparse.ArgumentParser) -> None:
    check.add_argument("--tool", help="show the policy for this tool, and who set each key")
    check.add_argument("--model", help="show what is known of this model")
    check.add_argument("--policy", dest="policy_file", type=Path, help="as SPILLGATE_POLICY_FILE")
    check.add_argument("--json", action="store_true", help="all of it as JSON")


def _add_nothing(command: argparse.ArgumentParser) -> None:
    """For a command without arguments."""


def _add_try(trial: argparse.ArgumentParser) -> None:
    trial.add_argument("file", help="the result; - for stdin")
    trial.add_argument("--tool", help="the tool that returned it (read_file; for stdin execute_shell)")
    trial.add_argument("--arguments", help="what the tool was given, as JSON (the file's path)")
    trial.add_argument("--model", help="count tokens as this model does")
    trial.add_argument("--policy", dest="policy_file", type=Path, help="as SPILLGATE_POLICY_FILE")
    trial.add_argument("--profile", help="under this profile instead of the policy in force")
    trial.add_argument("--show", metavar="OUTCOME", help="print the text too: of this outcome, or of `all`")


def _add_keys(keys: argparse.ArgumentParser) -> None:
    actions = keys.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser("new", help="make a key, and print it once")
    new.add_argument("tenant")
    new.add_argument(
        "--role", choices=("agent", "reveal", "metrics", "admin"), default="agent", help="(agent)"
    )
    new.add_argument("--name", default="", help="stands for the key in logs")
    new.add_argument("--expires", default="", metavar="DATE", help="such as 2027-01-31, in UTC")
    new.add_argument(
        "--out", metavar="FILE", type=Path, help="write the key into a new file, do not print it"
    )
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


def _add_ledger(ledger: argparse.ArgumentParser) -> None:
    actions = ledger.add_subparsers(dest="action", required=True, metavar="ACTION")
    about = "copy the ledger of the settings into an empty PostgreSQL, and compare the sums"
    copy = actions.add_parser("copy", help=about, description=f"{about.capitalize()}.")
    target = copy.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="URL", help="as SPILLGATE_LEDGER_URL")
    target.add_argument("--to-file", metavar="FILE", type=Path, help="a file that holds it")


class ServiceCommand(NamedTuple):
    """`module` has the function `run` of the command; "" if it is one of `app.cli.main`."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    module: str = ""


SERVICE_COMMANDS = {
    "serve": ServiceCommand(_add_address),
    "check-config": ServiceCommand(_add_check, "app.cli.check_config"),
    "try": ServiceCommand(_add_try, "app.cli.try_out"),
    "openapi": ServiceCommand(_add_nothing),
    "keys": ServiceCommand(_add_keys, "app.cli.keys"),
    "ledger": ServiceCommand(_add_ledger, "app.cli.ledger"),
}
