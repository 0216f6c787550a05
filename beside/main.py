"""The command `spillgate`: runs the program of each command.

The commands of the service take half a second to import and the others must not wait for that, so the program
is imported by the name that COMMANDS has for it. Nothing else in `beside` leads to `app`.
"""

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from beside.commands import COMMANDS, LISTING, SERVICE, SETTING_UP, SHELL
from domain import __version__
from domain.errors import ConfigError

_SETS_A_HOOK_UP = (*SETTING_UP, "-h", "--help")


class _OutputError(Exception):
    """Standard output cannot be written. Says why."""


class _Output(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _OutputError(os.strerror(error.errno or 0)) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 not healthy or not in order, 2 a setting or argument that is not valid."""
    name, *rest = [*(sys.argv[1:] if arguments is None else arguments), ""]
    rest = rest[:-1]
    if name in ("", "-h", "--help", "--version"):
        print(f"spillgate {__version__}" if name == "--version" else usage())
        return 0
    if name not in COMMANDS:
        print(f"{usage()}\n\nspillgate: there is no command {name!a}.", file=sys.stderr)
        return 2
    module = COMMANDS[name].module
    if name == "hook" and (not rest or rest[0] in _SETS_A_HOOK_UP):
        module = "beside.hooks.install"
    if module in (SERVICE, SHELL, LISTING):
        rest.insert(0, name)
    _print_to_the_last_byte()
    try:
        status: int = import_module(module).main(rest)
        if sys.stdout is not None:
            sys.stdout.flush()
    except ConfigError as error:
        print(f"spillgate: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, `head` for example, has closed its end.
        _drop_the_rest()
        return 0
    except _OutputError as error:
        print(f"spillgate: The output cannot be written: {error}.", file=sys.stderr)
        _drop_the_rest()
        return 1
    return status


def usage() -> str:
    lines = [f"  {name:13}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: spillgate COMMAND ...",
            "",
            "HTTP sidecar that governs tool results.",
            "",
            *lines,
            "",
            "`spillgate COMMAND --help` says what a command takes. Settings come from the environment, as",
            "SPILLGATE_*: `spillgate check-config` shows them all.",
        ]
    )


def _print_to_the_last_byte() -> None:
    """Shows characters that the terminal's encoding lacks as escapes, and gives stdout a buffer also where
    PYTHONUNBUFFERED is set: without one, what a full disk or a signal leaves of a write is lost, and nothing
    says so."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        output = io.BufferedWriter(_Output(sys.stdout.fileno(), "wb", closefd=False))
        sys.stdout = io.TextIOWrapper(output, sys.stdout.encoding, line_buffering=sys.stdout.isatty())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_the_rest() -> None:
    """What is in the buffer is not written at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
