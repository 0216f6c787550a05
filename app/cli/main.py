"""The commands that need the service itself: parses the arguments of each and runs it."""

import argparse
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module

from app.cli.options import COMMANDS, naming_options, parser, settings_of
from domain.errors import ConfigError


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
        status: int = import_module(COMMANDS[options.command].module).run(options)
    except ConfigError as error:
        print(f"spillgate: {naming_options(str(error), options)}", file=sys.stderr)
        return 2
    return status


def _serve(options: argparse.Namespace) -> int:
    # What the start builds stays: the server enables the collector once it listens.
    gc.disable()
    # Pydantic would look through every installed package for plugins, which takes 35 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from app.edge.server import serve
    from app.main import create_app
    from app.operations.policy_file import load_policies

    settings = settings_of(options)
    load_policies(settings)
    app = create_app(settings)
    if options.until_stdin_ends:
        threading.Thread(target=_stop_when_stdin_ends, daemon=True).start()
    return serve(app, settings, app.refused, app.state.supervisor)


def _stop_when_stdin_ends() -> None:
    """Its other end closes with the program that started the service, however that ends."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _openapi() -> int:
    from app.main import create_app
    from app.settings import load_settings

    print(json.dumps(create_app(load_settings()).openapi(), indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
