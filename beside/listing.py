"""`ls`, `cat` and `stats`: what is stored, one stored result whole, and what was kept out of the context."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from beside.client import ServiceClient, ServiceError, ServiceRequest, resolved, session_in
from beside.commands import COMMANDS
from domain.errors import ConfigError
from domain.references import NOT_RUN, SCHEME
from machine.tables import table

LAST = "@last"
"""Stands for the handle of the newest stored result."""

_PAGE = 100
_TOOL = "execute_shell"
"""What gets the bytes, for the accounting."""


class Stored(NamedTuple):
    """A stored result. `stored_at` is milliseconds since 1970."""

    handle: str
    stored_at: int
    bytes: int
    tool_name: str
    command: str


def main(arguments: Sequence[str]) -> int:
    """The first argument is the command."""
    name = arguments[0]
    parser = argparse.ArgumentParser(prog=f"spillgate {name}", description=COMMANDS[name].description)
    if name == "cat":
        parser.add_argument(
            "handle",
            help=f"handle of the result, or {LAST}; with #lines=, #pattern= or #query= appended, a part",
        )
        parser.add_argument(
            "--path",
            action="store_true",
            help="print the file that holds the bytes, if it is on this machine",
        )
    else:
        parser.add_argument("--session", help="only one session (default: SPILLGATE_SESSION)")
    if name == "ls":
        parser.add_argument(
            "--limit", type=int, default=20, help="how many results to list at most (default: 20)"
        )
    options = parser.parse_args(arguments[1:])
    try:
        with closing(ServiceClient.from_environment()) as service:
            commands = {"ls": _ls, "cat": _cat, "stats": _stats}
            return commands[name](service, options)
    except ServiceError as error:
        print(f"spillgate {name}: {error}", file=sys.stderr)
        return 1


def handle_of(service: ServiceClient, handle: str) -> str:
    """The handle, for LAST that of the newest stored result of SPILLGATE_SESSION, or of all sessions. Raises
    ServiceError, also if nothing is stored."""
    if handle != LAST:
        return handle
    for stored in _stored(service, os.environ.get("SPILLGATE_SESSION")):
        return stored.handle
    raise ServiceError("Nothing is stored. `spillgate ls` lists what is.")


def _ls(service: ServiceClient, options: argparse.Namespace) -> int:
    if options.limit < 1:
        raise ConfigError("--limit must be at least 1.")
    rows: list[tuple[str, ...]] = []
    more = ""
    for stored in _stored(service, _session(options)):
        if len(rows) == options.limit:
            more = f"Older ones are stored, too: spillgate ls --limit {10 * options.limit}"
            break
        moment = datetime.fromtimestamp(stored.stored_at / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        size = f"{stored.bytes:,}"
        rows.append((moment, size, stored.tool_name, _short(stored.command), stored.handle))
    heads = ("STORED", "BYTES", "TOOL", "COMMAND", "HANDLE")
    print(table(rows, heads, right=(1,)) if rows else "Nothing is stored.")
    if more:
        print(more)
    return 0


def _cat(service: ServiceClient, options: argparse.Namespace) -> int:
    named, sign, part = options.handle.removeprefix(SCHEME).partition("#")
    handle = handle_of(service, named)
    if options.path:
        path = _fields(service, f"/results/{quote(handle)}")["path"]
        if path is None:
            raise ServiceError(
                "The service names no file: this machine does not have it or may not read it, or part of it "
                "is masked."
            )
        print(path)
    elif sign:
        reference = f"{SCHEME}{handle}#{part}"
        text, refusal = resolved(service.request, session_in(handle) or "", _TOOL, reference)
        if refusal is not None:
            raise ServiceError(refusal.removesuffix(NOT_RUN).rstrip())
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    else:
        query = urlencode({"passed_on_to": _TOOL})
        for piece in service.stream(ServiceRequest("GET", f"/results/{quote(handle)}/content?{query}")):
            sys.stdout.buffer.write(piece)
    return 0


def _stats(service: ServiceClient, options: argparse.Namespace) -> int:
    session = _session(options)
    fields = {"group_by": "tool_name"} | ({"session_id": session} if session else {})
    summary = _fields(service, f"/accounting/summary?{urlencode(fields)}")
    heads = ("TOOL", "STORED", "ASKED BACK", "FOUND NOTHING", "COSTS MORE", "NET TOKENS KEPT OUT")
    rows = []
    named = [(str(row["group"]), row) for row in summary["rows"]]
    for name, row in [*named, ("all", summary["total"])]:
        counts = (row[key] for key in ("stored", "asked_back", "found_nothing", "costs_more", "tokens_saved"))
        rows.append((_short(name), *(f"{count:,}" for count in counts)))
    print(table(rows, heads, right=range(1, 6)))
    return 0


def _session(options: argparse.Namespace) -> str | None:
    return options.session or os.environ.get("SPILLGATE_SESSION")


def _stored(service: ServiceClient, session: str | None) -> Iterator[Stored]:
    """Yields the results that are still stored, newest first."""
    fields = {"limit": str(_PAGE)} | ({"session_id": session} if session else {})
    while True:
        page = _fields(service, f"/results?{urlencode(fields)}")
        for one in page["results"]:
            size = one["measure"]["bytes"]
            yield Stored(one["handle"], one["stored_at"], size, one["tool_name"], one["command"])
        if page["next_cursor"] is None:
            return
        fields["cursor"] = page["next_cursor"]


def _fields(service: ServiceClient, route: str) -> dict[str, Any]:
    answer: dict[str, Any] = service.request(ServiceRequest("GET", route)).json()
    return answer


def _short(text: str) -> str:
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= 40 else f"{line[:39]}…"
