"""The commands that need the service itself: parses the arguments of each and runs it."""

import argparse
import gc
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from app.cli.options import SERVICE_COMMANDS, naming_options, parser, settings_of
from beside import embedded
from domain.errors import ConfigError, PortInUse


def main(arguments: Sequence[str] | None = None) -> int:
    """The first argument is the command. Exit status: 0 done, 1 not in order, 2 a setting or argument that is
    not valid."""
    options = parser().parse_args(arguments)
    try:
        match options.command:
            case "serve":
                return _serve(options)
            case "openapi":
                return _openapi()
        status: int = import_module(SERVICE_COMMANDS[options.command].module).run(options)
    except ConfigError as error:
        advice = _advice(error, options) if isinstance(error, PortInUse) else ""
        print(f"spillgate: {naming_options(str(error), options)}{advice}", file=sys.stderr)
        return 2
    return status


def _serve(options: argparse.Namespace) -> int:
    # The objects of the start stay: the server enables the collector once it listens.
    gc.disable()
    # Pydantic would look through every installed package for plugins, which takes 35 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from app.http.edge.server import serve
    from app.main import create_app
    from app.operations.idle import IdleWatch
    from app.operations.policy_file import load_policies

    settings = settings_of(options)
    load_policies(settings)
    app = create_app(settings)
    idle = None if options.until_idle is None else IdleWatch(options.until_idle)
    if idle is None and settings.store.startswith("disk:"):
        _replace_own_service()
    return serve(app, settings, app.refused, idle)


def _advice(error: PortInUse, options: argparse.Namespace) -> str:
    """That the user's own service listens there, or the line that starts this one at a port that is free."""
    own = embedded.port_address()
    if own is not None and own.port == error.port:
        return f" It is your own Spillgate, {own}/ui: a second one needs another SPILLGATE_STORAGE_URL, too."
    if not error.free:
        return ""
    if options.until_idle is not None:
        command = "spillgate service start"
    elif options.port is not None:
        return f" For example: spillgate serve --port {error.free}"
    else:
        # `make run` names no port either.
        command = "make run" if "MAKELEVEL" in os.environ else "spillgate serve"
    return f" For example: SPILLGATE_PORT={error.free} {command}"


def _replace_own_service() -> None:
    """Ends a service that a command has started on the same store. Raises ConfigError."""
    try:
        if embedded.stop():
            print("spillgate: ended the service that a command had started.", file=sys.stderr)
    except embedded.StartFailed as error:
        raise ConfigError(str(error)) from None


def _openapi() -> int:
    from app.main import create_app
    from app.settings import load_settings

    print(json.dumps(create_app(load_settings()).openapi(), indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
