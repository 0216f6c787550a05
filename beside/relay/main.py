"""`spillgate mcp`: starts the server behind a relay, and the relay; ends as that server ends."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from beside.relay import tools
from beside.relay.http import HttpServer
from beside.relay.offering import Offering
from beside.relay.relay import Relay
from beside.relay.service_calls import GoverningService
from beside.relay.streams import CommandServer, MessageOutput
from domain.errors import ConfigError
from machine.addresses import directory

_ANSWERS_SECONDS = 30.0


def main(arguments: Sequence[str]) -> int:
    """Does not return once the relay has run: what ends the server ends this process. Raises ConfigError."""
    options = _options(arguments)
    command: list[str] = options.server
    if options.tools and not command and not options.url:
        return tools.serve(GoverningService(options.embedded))
    if options.tools or bool(command) == bool(options.url):
        raise ConfigError(
            "spillgate mcp takes one of a command, `spillgate mcp -- COMMAND ...`, --url URL, and --tools."
        )
    if sys.stderr is None:  # It was closed. A connection must not get its number.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        server = _server(options, command)
    except OSError as error:
        print(f"spillgate mcp: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    service = GoverningService(options.embedded)
    client = MessageOutput(1, service.warm_up, before_close=lambda: relay.wait(_ANSWERS_SECONDS))
    offering = Offering(directory(), service.identity, options.name)
    relay = Relay(service, client.write, offering)
    status = server.run(relay.from_client, relay.from_server, client)
    if status >= 0:
        relay.wait(_ANSWERS_SECONDS)
    offering.close()
    service.close()
    return _end(status)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        usage="spillgate mcp [options] -- COMMAND ...\n       spillgate mcp [options] --url URL\n"
        "       spillgate mcp --tools",
        description="Govern the results of an MCP server's tools.",
    )
    # Some clients leave the dashes before a command out.
    parser.add_argument("server", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument(
        "--name",
        default="",
        help="the server's name in the client's settings, by which messages name the tool",
    )
    parser.add_argument("--url", help="an MCP server over streamable HTTP, instead of a command")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="header to send to the URL; may be repeated",
    )
    parser.add_argument(
        "--tools",
        action="store_true",
        help="without a server: offer only the tools that ask about stored results",
    )
    parser.add_argument(
        "--embedded",
        action=argparse.BooleanOptionalAction,
        help="ask the user's own service, which is started if it does not run (if no other runs, and its "
        "address is on loopback)",
    )
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    if end < len(arguments):
        options.server = list(arguments[end + 1 :])
    return options


def _server(options: argparse.Namespace, command: Sequence[str]) -> CommandServer | HttpServer:
    """Raises OSError, ConfigError."""
    if command:
        return CommandServer(command)
    return HttpServer(options.url, options.header)


def _end(status: int) -> int:
    """Ends this process at once: threads that read a stream cannot be stopped."""
    with suppress(OSError):
        sys.stderr.flush()
    if status < 0:
        with suppress(OSError):  # SIGKILL has no handler.
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)
