"""The recovery section of a truncated result: what it is made of, and commands that get the rest."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

from domain.results import Measure
from policies.arguments import first_row, name_of
from policies.oversized import Oversized
from policies.structure import structure
from policies.tool_kinds import ToolKind, kind_of

_STRUCTURE_CHARS = 1500
_LINES = 50
_LINE = re.compile(r"\(line (\d+)\)$")
_NAMED = re.compile(r"([^\W\d]\w*) \(line \d+\)$")


class _Seen(NamedTuple):
    """`name` is that of the file or page, None if the arguments do not say; `first_line` is where the result
    begins in it, `next_line` the first that is not shown whole; `symbol` is something that it defines."""

    tool: str
    name: str | None
    measure: Measure
    first_line: int
    next_line: int
    shown_bytes: int
    symbol: str


def recovery(oversized: Oversized, head: str, room: int) -> str:
    """`head` is what is shown above it. The structure takes no more characters than were cut (`room`), so
    that the text does not grow by it."""
    result, measure = oversized.result, oversized.measure
    kind = kind_of(result.tool_name, result.tool_kind)
    name = name_of(result)
    first = first_row(result)
    lines = [_moved(line, first - 1) for line in structure(name, oversized.head, oversized.shown.bytes)]
    seen = _Seen(
        tool=result.tool_name,
        name=name,
        measure=measure,
        first_line=first,
        next_line=first + head.count("\n"),
        shown_bytes=len(head.encode()),
        symbol=_symbol(lines),
    )
    top = (
        "--- Recovery Options ---\n"
        f"File: {name or result.tool_name} | {measure.lines} lines, {measure.chars:,} chars\n"
    )
    commands = "\nCommands:\n" + "\n".join(f"  • {command}" for command in _COMMANDS[kind](seen))
    return top + _fitting(lines, min(_STRUCTURE_CHARS, room - len(top) - len(commands))) + commands


def _symbol(lines: list[str]) -> str:
    found = next(filter(None, map(_NAMED.search, lines)), None)
    return found[1] if found else "<pattern>"


def _moved(line: str, by: int) -> str:
    """The text is a part of its file, from the middle: so are its line numbers."""
    return _LINE.sub(lambda found: f"(line {int(found[1]) + by})", line) if by else line


def _fitting(lines: list[str], room: int) -> str:
    """As many of the lines as there is room for, under their heading, and how many more there are."""
    kept: list[str] = []
    room -= len("\nStructure:\n  - ... 1000000 more\n")
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    if not kept:
        return ""
    if len(kept) < len(lines):
        kept.append(f"  - ... {len(lines) - len(kept)} more")
    return "\nStructure:\n" + "\n".join(kept) + "\n"


def _call(tool: str, **arguments: str) -> str:
    given = ", ".join(f"{name}={json.dumps(text, ensure_ascii=False)}" for name, text in arguments.items())
    return f"{tool}({given})"


def _file(seen: _Seen) -> Iterator[str]:
    name = seen.name or "<path>"
    yield _call("grep_content", pattern=seen.symbol, path=name)
    quoted = shlex.quote(seen.name) if seen.name else name
    following = seen.next_line
    if seen.measure.lines < _LINES:
        # Few, and so long ones: ranges of lines alone would not help.
        span = f"{seen.first_line},{seen.first_line + _LINES - 1}p"
        following_bytes = f"sed -n '{span}' {quoted} | tail -c +{seen.shown_bytes + 1} | head -c 2000"
        yield _call("shell", command=following_bytes) + "  # Next 2000 bytes"
        yield _call("shell", command=f"tail -c 2000 {quoted}") + "  # Last 2000 bytes"
        return
    yield _call("shell", command=f"sed -n '1,{_LINES}p' {quoted}") + f"  # First {_LINES} lines"
    if following > 1:
        span = f"{following},{following + _LINES - 1}p"
        yield _call("shell", command=f"sed -n '{span}' {quoted}") + "  # Next lines"
    yield _call("shell", command=f"tail -n {_LINES} {quoted}") + f"  # Last {_LINES} lines"


def _grep(seen: _Seen) -> Iterator[str]:
    yield _call("grep_content", pattern="<more specific pattern>", path=seen.name or ".")
    yield _call("grep_content", pattern="<pattern>", path="<one of the files above>")


def _shell(seen: _Seen) -> Iterator[str]:
    last = seen.next_line + _LINES - 1
    yield _call("shell", command=f"<command> | head -n {_LINES}") + f"  # First {_LINES} lines"
    yield _call("shell", command=f"<command> | tail -n {_LINES}") + f"  # Last {_LINES} lines"
    yield _call("shell", command=f"<command> | sed -n '{seen.next_line},{last}p'") + "  # Next lines"
    yield _call("shell", command="<command> | grep -n '<pattern>'")


def _web_search(seen: _Seen) -> Iterator[str]:
    yield _call("web_search", query="<more specific query>")
    yield _call("web_fetch", url="<a URL from the results>")


def _web_fetch(seen: _Seen) -> Iterator[str]:
    yield _call("web_fetch", url=seen.name or "<URL>", save_to="page.txt")
    yield _call("grep_content", pattern="<pattern>", path="page.txt") + "  # Then search it"


def _glob(seen: _Seen) -> Iterator[str]:
    yield _call("glob_files", pattern="<directory>/**/*") + "  # One directory"
    yield _call("glob_files", pattern="**/*.<extension>") + "  # One extension"


def _other(seen: _Seen) -> Iterator[str]:
    yield f"{seen.tool}(...)  # With narrower arguments: a filter, a range, or offset and limit"


_COMMANDS: dict[ToolKind, Callable[[_Seen], Iterator[str]]] = {
    ToolKind.FILE: _file,
    ToolKind.GREP: _grep,
    ToolKind.SHELL: _shell,
    ToolKind.WEB_SEARCH: _web_search,
    ToolKind.WEB_FETCH: _web_fetch,
    ToolKind.GLOB: _glob,
    ToolKind.OTHER: _other,
}
