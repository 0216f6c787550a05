"""The command line: runs the function of each command.

Each imports what it needs: a healthcheck runs every few seconds, an agent pipes the output of any command
through `pipe`, and the whole service would cost half a second of processor time.
"""

from __future__ import annotations

import gc
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from domain.errors import ConfigError

if TYPE_CHECKING:
    import argparse

_HEALTH_SECONDS = 5
_SETS_A_HOOK_UP = ("install", "uninstall", "status", "-h", "--help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 not healthy or not in order, 2 a setting or argument that is not valid."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["hook"] and len(given) > 1 and given[1] not in _SETS_A_HOOK_UP:
        # Before any argument is parsed: to an agent, exit status 2 means that the call is to be blocked.
        from app.cli.hook import run

        return run(given[1])
    from app.cli.options import COMMANDS, naming_options, parser

    own = given.index("--") if given[:1] == ["mcp"] and "--" in given else len(given)
    options = parser(given[0] if given else "").parse_args(given[:own])
    if own < len(given):
        options.server = given[own + 1 :]
    _print_anything()
    try:
        run_here = _HERE.get(options.command)
        status: int = (run_here or import_module(COMMANDS[options.command].module).run)(options)
        sys.stdout.flush()
    except ConfigError as error:
        print(f"spillgate: {naming_options(str(error), options)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, `head` for example, has closed its end. The interpreter must not flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _print_anything() -> None:
    """Shows characters that the terminal's encoding lacks as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _serve(options: argparse.Namespace) -> int:
    # What the start builds stays: the server enables the collector once it listens.
    gc.disable()
    # Pydantic would look through every installed package for plugins, which takes 35 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from app.cli.options import settings_of
    from app.edge.server import serve
    from app.main import create_app
    from app.operations.policy_file import load_policies

    settings = settings_of(options)
    load_policies(settings)
    app = create_app(settings)
    return serve(app, settings, app.refused, app.state.supervisor)


def _healthcheck(options: argparse.Namespace) -> int:
    from app.cli.client import Address, Refused, Request, Service, ServiceError
    from app.cli.options import settings_of

    settings = settings_of(options)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    service = Service(Address(host, settings.port, path=str(settings.uds or "")))
    headers = {"Host": settings.hosts[0]} if settings.hosts else {}
    try:
        service.request(Request("GET", "/readyz", headers=headers, seconds=_HEALTH_SECONDS))
    except ServiceError as error:
        why = error.status if isinstance(error, Refused) else f"no answer from {service.address}"
        print(f"not ready: {why}", file=sys.stderr)
        return 1
    return 0


def _openapi(options: argparse.Namespace) -> int:
    from app.main import create_app
    from app.settings import load_settings

    print(json.dumps(create_app(load_settings()).openapi(), indent=2, ensure_ascii=False))
    return 0


_HERE: dict[str, Callable[[argparse.Namespace], int]] = {
    "serve": _serve,
    "healthcheck": _healthcheck,
    "openapi": _openapi,
}


if __name__ == "__main__":
    sys.exit(main())
