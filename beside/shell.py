"""Commands of the shell: `pipe`, and one for each of the model's tools."""

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from io import BufferedReader
from itertools import chain
from typing import IO, cast

from beside.client import (
    TOOL_SECONDS,
    ServiceClient,
    ServiceError,
    ServiceRequest,
    govern,
    project_here,
    session_in,
)
from beside.commands import COMMANDS
from beside.listing import LAST, handle_of
from domain.errors import ConfigError

_PIECE_BYTES = 1 << 18
_IN_MEMORY_BYTES = 1 << 20
_SHOWN_BYTES = 12_288
"""The most that is shown of an output that cannot be stored: the size cap of the defaults."""

_LINE = re.compile(r"\d+[:-]")
"""How a line begins in an answer of `grep` and `lines`."""

_HANDLE = f"handle of the result, as the message in its place gave it; or {LAST}, the newest"
_WHERE = (
    "Asks the service at SPILLGATE_URL. Without that setting, asks the user's own service, and starts it if "
    "it does not run. Sends the key SPILLGATE_KEY, if it is set."
)


def main(arguments: Sequence[str]) -> int:
    """The first argument is the command."""
    name = arguments[0]
    parser = argparse.ArgumentParser(
        prog=f"spillgate {name}", description=COMMANDS[name].description, epilog=_WHERE
    )
    _add_arguments(name, parser)
    options = parser.parse_args(arguments[1:])
    return _pipe(options) if name == "pipe" else _ask(name, options)


def _add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "pipe":
        parser.add_argument(
            "--tool",
            help="the tool that returned the result (default: execute_shell)",
            default="execute_shell",
        )
        parser.add_argument("--session", help="session of the result; overrides SPILLGATE_SESSION")
        return
    parser.add_argument("handle", help=_HANDLE)
    if name == "ask":
        parser.add_argument(
            "extract", metavar="question", help="what you look for, in words that the data may hold"
        )
        parser.add_argument("--mode", help="auto (default), full-chunked, read-grep, retrieve or truncate")
    elif name == "grep":
        parser.add_argument("pattern", help="a regular expression (RE2)")
        parser.add_argument("--context", type=int, help="lines to show before and after each match")
        parser.add_argument("--ignore-case", action="store_true", default=None, help="ignore letter case")
        parser.add_argument("--offset", type=int, help="number of the first match to show, from 1")
    elif name == "lines":
        parser.add_argument("lines", help="120-180; or 120; or -40 for the last 40")
        parser.add_argument(
            "limit", type=int, nargs="?", help="how many lines to print, if only the first is given"
        )
    else:
        parser.add_argument("query", help="SQL over the table data (SELECT or WITH …), else JMESPath")


def _ask(command: str, options: argparse.Namespace) -> int:
    """Prints what the model's tool answers. Exit status 1 if that says why there is no answer, or if `grep`
    or `lines` found no line."""
    if command == "ask" and not options.extract.strip():
        raise ConfigError(f'The question is empty. Say what you look for: spillgate ask {LAST} "disk full"')
    arguments = {name: value for name, value in vars(options).items() if value is not None}
    name = "tool_output" if command == "ask" else f"tool_output_{command}"
    try:
        with closing(ServiceClient.from_environment()) as service:
            handle = arguments["handle"] = handle_of(service, options.handle)
            session = session_in(handle) or os.environ.get("SPILLGATE_SESSION")
            call = {"name": name, "arguments": arguments} | ({"session_id": session} if session else {})
            body = json.dumps(call).encode()
            request = ServiceRequest("POST", "/tools/call", body, seconds=TOOL_SECONDS)
            text, is_error = service.request(request).text()
    except ServiceError as error:
        print(f"spillgate {command}: {error}", file=sys.stderr)
        return 1
    print(text)
    has_lines = command not in ("grep", "lines") or _LINE.match(text)
    return int(is_error or not has_lines)


class Spool:
    """A copy of what was read: the first MiB in memory, the rest in a temporary file."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._file: IO[bytes] | None = None
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Raises OSError, for example if the disk is full; the piece then does not count."""
        if self.size + len(piece) <= _IN_MEMORY_BYTES:
            self._head += piece
        else:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            written = memoryview(piece)
            while written:
                written = written[self._file.write(written) :]
        self.size += len(piece)

    def __iter__(self) -> Iterator[bytes]:
        """The pieces that count, from the beginning."""
        yield bytes(self._head)
        remaining = self.size - len(self._head)
        if self._file is not None:
            self._file.seek(0)
            while remaining and (piece := self._file.read(min(remaining, _PIECE_BYTES))):
                remaining -= len(piece)
                yield piece

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _pipe(options: argparse.Namespace) -> int:
    """Governs stdin as the result of a tool, and prints what the model is to read. Of what cannot be stored,
    it prints head and tail. The exit status is 0, and 130 after Ctrl-C, which ends the input."""
    source = cast(BufferedReader, sys.stdin.buffer)
    out, piece, text, status = sys.stdout.buffer, b"", None, 0
    with closing(Spool()) as spool:
        why = ""
        try:
            try:
                # Not `read`: it would lose what it holds when it is interrupted.
                while piece := source.read1(_PIECE_BYTES):
                    spool.add(piece)
            except KeyboardInterrupt:
                piece, status = b"", 130
            text = _replacement(spool, options)
        except (ServiceError, ConfigError, OSError) as error:
            why = str(error).rstrip(".")
        except KeyboardInterrupt:
            why, status = "interrupted", 130
        if text is not None:
            print(text, end="" if text.endswith("\n") else "\n")
        elif why:
            rest = iter(partial(source.read1, _PIECE_BYTES), b"") if not status else ()
            is_cut = _write_ends(chain(spool, [piece], rest), out)
            ending = "Its head and tail are shown." if is_cut else "The output is passed on unchanged."
            print(f"spillgate pipe: {why}. {ending} It is not stored.", file=sys.stderr)
        else:
            for held in spool:
                out.write(held)
    return status


def _continuing(data: bytes | bytearray) -> int:
    """The number of bytes before one that begins a character of UTF-8."""
    return next((at for at, byte in enumerate(data) if byte & 0xC0 != 0x80), 0)


def _write_ends(pieces: Iterable[bytes], out: IO[bytes]) -> bool:
    """Writes the pieces, of more than _SHOWN_BYTES only the ends, cut between characters of UTF-8. Returns
    whether something was left out."""
    head, tail, size = bytearray(), b"", 0
    for piece in pieces:
        size += len(piece)
        missing = _SHOWN_BYTES - len(head)
        head += piece[:missing]
        tail = (tail + piece)[-_SHOWN_BYTES // 2 :]
    is_cut = size > _SHOWN_BYTES
    if is_cut:
        end = _SHOWN_BYTES // 2
        del head[end - _continuing(head[end - 3 : end + 1][::-1]) :]
        tail = tail[_continuing(tail[:3]) :]
        gone = size - len(head) - len(tail)
        head += f"\n[{gone} bytes not shown: the output could not be stored]\n".encode() + tail
    out.write(head)
    return is_cut


def _replacement(spool: Spool, options: argparse.Namespace) -> str | None:
    """None if the result passes. Raises ServiceError, ConfigError, OSError."""
    session = options.session or os.environ.get("SPILLGATE_SESSION") or None
    fields = {"tool_name": options.tool, "door": "pipe", "session_id": session, "project": project_here()}
    with closing(ServiceClient.from_environment()) as service:
        return govern(service.request, fields, spool).replacement()
