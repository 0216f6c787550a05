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
    command.add_argument("--host", help="address to listen on; overrides SPILLGATE_HOST")
    command.add_argument("--port", type=int, help="port to listen on; overrides SPILLGATE_PORT")
    command.add_argument("--uds", type=Path, help="Unix socket to listen on; overrides SPILLGATE_UDS")
    # For a service that a command starts: `beside.embedded`.
    command.add_argument("--until-idle", type=float, metavar="SECONDS", help=argparse.SUPPRESS)


def _add_check(check: argparse.ArgumentParser) -> None:
    check.add_argument("--tool", help="show the policy for this tool, and what set each key")
    check.add_argument("--model", help="show what is known of this model")
    check.add_argument(
        "--policy", dest="policy_file", type=Path, help="policy file; overrides SPILLGATE_POLICY_FILE"
    )
    check.add_argument("--json", action="store_true", help="print everything as JSON")


def _add_nothing(command: argparse.ArgumentParser) -> None:
    """For a command without arguments."""


def _add_try(trial: argparse.ArgumentParser) -> None:
    trial.add_argument("file", help="the result; - for stdin")
    trial.add_argument(
        "--tool", help="the tool that returned the result (default: read_file; for stdin execute_shell)"
    )
    trial.add_argument("--arguments", help="the arguments of the tool, as JSON (default: the file's path)")
    trial.add_argument("--model", help="count tokens as this model does")
    trial.add_argument(
        "--policy", dest="policy_file", type=Path, help="policy file; overrides SPILLGATE_POLICY_FILE"
    )
    trial.add_argument("--profile", help="use this profile instead of the policy in force")
    trial.add_argument("--show", metavar="OUTCOME", help="also print the text of this outcome, or of `all`")


def _add_keys(keys: argparse.ArgumentParser) -> None:
    actions = keys.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser("new", help="make a key, and print it once")
    new.add_argument("tenant")
    new.add_argument(
        "--role",
        choices=("agent", "reveal", "metrics", "admin"),
        default="agent",
        help="what the key may do (default: agent)",
    )
    new.add_argument("--name", default="", help="name of the key in logs and in `keys list`")
    new.add_argument(
        "--expires",
        default="",
        metavar="DATE",
        help="when the key expires, in UTC: 2027-01-31 (at 00:00) or 2027-01-31T12:00Z",
    )
    new.add_argument(
        "--out", metavar="FILE", type=Path, help="write the key into this new file instead of printing it"
    )
    listed = actions.add_parser("list", help="list the keys with tenant, role, name and expiry")
    revoke = actions.add_parser("revoke", help="remove a key")
    rotate = actions.add_parser("rotate", help="make a new key; the old one expires some hours later")
    rotate.add_argument(
        "--hours", type=float, default=24.0, help="hours until the old key expires (default: 24)"
    )
    for action in (new, listed, revoke, rotate):
        action.add_argument(
            "--file",
            dest="api_keys_file",
            metavar="FILE",
            type=Path,
            help="file of keys; overrides SPILLGATE_API_KEYS_FILE",
        )
    for action in (revoke, rotate):
        action.add_argument(
            "key", metavar="NAME", help="name of the key, or the digits that `keys list` shows"
        )


def _add_ledger(ledger: argparse.ArgumentParser) -> None:
    actions = ledger.add_subparsers(dest="action", required=True, metavar="ACTION")
    about = "copy the ledger of the settings into an empty PostgreSQL, and compare the sums"
    copy = actions.add_parser("copy", help=about, description=f"{about.capitalize()}.")
    target = copy.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="URL", help="URL of the PostgreSQL to copy into")
    target.add_argument("--to-file", metavar="FILE", type=Path, help="file that holds that URL")


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
