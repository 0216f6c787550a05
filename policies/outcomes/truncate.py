"""truncate: the head, the number of missing characters, the structure, and commands that show the rest."""

import json
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from domain.results import Measure
from policies.oversized import Ends, Oversized, footer, name_for_model, room_bytes, tokens_of_part
from policies.policy import Policy
from policies.search_output import (
    PathCount,
    files_by_directory,
    files_by_extension,
    listed,
    matches_by_file,
    tally,
)
from policies.tool_calls import (
    ToolKind,
    command_of,
    first_row,
    ignores_case,
    name_of,
    pattern_of,
    saved_to,
    searches,
    tool_kind_of,
)

CUTS = True
MUST_SAVE = True

_LOOKED_AT = 1 << 18
"""Bytes of the head in which the structure is looked for."""

_TRIES = 8
"""The most attempts to shorten the head until the text is within the caps."""


def ends(measure: Measure, policy: Policy) -> Ends:
    return Ends(max(_LOOKED_AT, 4 * policy.head_chars + 4), 0, structure=True)


def text(oversized: Oversized) -> str | None:
    """The text, within every size cap: first the structure is shortened, then the head; as a last step the
    commands are left out. None if the head is the whole result and within the caps, or if no text is within
    the caps."""
    head = _head(oversized.head, oversized.policy.head_chars)
    if oversized.shown.chars <= len(head) and not _excess_chars(head, oversized):
        return None
    for has_commands, least in ((True, len(head) // 4), (False, 0)):
        part = head
        for _ in range(_TRIES):
            made = _composed(oversized, part, has_commands=has_commands)
            excess = _excess_chars(made, oversized)
            if excess == 0:
                return made
            if len(part) <= least:
                break
            part = _shortened(part, max(least, len(part) - excess))
    return None


def tokens(measure: Measure, policy: Policy, message_tokens: int) -> int:
    return tokens_of_part(policy.head_chars / max(measure.chars, 1), measure, policy, message_tokens)


def _composed(oversized: Oversized, head: str, *, has_commands: bool) -> str:
    missing = oversized.shown.chars - len(head)
    above = f"{head}\n\n[... {missing} characters truncated ...]\n\n"
    below = footer(oversized)
    room = min(missing, _room_chars(above, oversized)) - len(below)
    return above + recovery(oversized, head, room, has_commands=has_commands) + below


def _room_chars(above: str, oversized: Oversized) -> int:
    """Returns the characters that the caps leave below `above`, for text of mostly one-byte characters."""
    most, policy = _most_bytes(oversized), oversized.policy
    rooms = [most - len(above.encode())] if most else []
    rooms += [policy.max_chars - len(above)] if policy.max_chars else []
    return min(rooms, default=oversized.shown.chars)


def _most_bytes(oversized: Oversized) -> int:
    """Returns the bytes that the caps other than `max_chars` allow; 0 if there is no other cap."""
    policy = replace(oversized.policy, max_chars=0)
    return room_bytes(oversized.shown, policy, oversized.squeeze)


def _excess_chars(made: str, oversized: Oversized) -> int:
    """The least number of characters to remove."""
    most, policy, size = _most_bytes(oversized), oversized.policy, len(made.encode())
    by_bytes = -(-(size - most) * len(made) // size) if 0 < most < size else 0
    return max(by_bytes, len(made) - policy.max_chars if policy.max_chars else 0, 0)


def _head(data: bytes, chars: int) -> str:
    """Returns the first `chars` characters, without half of a CRLF."""
    return _shortened(data[: 4 * chars + 4].decode("utf-8", "ignore"), chars)


def _shortened(text: str, chars: int) -> str:
    end = chars - 1 if text[max(0, chars - 1) : chars + 1] == "\r\n" else chars
    return text[:end]


_STRUCTURE_CHARS = 1500
_LINES = 50
_NAMED = re.compile(r"([^\W\d]\w*) \(line \d+\)$")
_PERL = re.compile(r"\\[dDhHvVRKAzZ]|\(\?|[*+?}][?+]")
"""Syntax that `grep -E` does not have."""

_COMPOSED = re.compile(r"[;&|<>]")
_TYPES = """
class struct interface trait enum record protocol object union type typedef namespace module package impl
extension mixin actor contract
"""
_TYPE = re.compile(rf"\s*- (?:{'|'.join(_TYPES.split())}) [^\n]* \(line \d+\)$")
_OFFERED = 3
"""For how many files or directories commands are offered."""


class _Seen(NamedTuple):
    """What the commands refer to. `head` is the text shown. `name` is the file or page, None if the arguments
    do not say. The result begins at the file's `first_line`. `symbol` is a name that it defines. `files` are
    those of a search, `directories` and `extensions` those of a list of files, the largest first.
    `shown_matches` is the number of matches in the head, 0 if they were not counted."""

    oversized: Oversized
    head: str
    name: str | None
    first_line: int
    symbol: str
    files: Sequence[PathCount] = ()
    directories: Sequence[PathCount] = ()
    extensions: Sequence[PathCount] = ()
    shown_matches: int = 0

    @property
    def next_line(self) -> int:
        """The number of the first line that is not shown whole."""
        return self.first_line + self.head.count("\n")


def recovery(oversized: Oversized, head: str, room: int, *, has_commands: bool) -> str:
    """The section below `head`, the text shown. The structure is cut so that the section has at most `room`
    characters; without room for any of it, it is left out."""
    result, measure, policy = oversized.result, oversized.measure, oversized.policy
    kind = tool_kind_of(result)
    name = name_of(result)
    first = first_row(result, policy.offset_base)
    # Types before functions: the functions of a long file's first class would fill the list.
    lines = sorted(oversized.structure, key=lambda line: _TYPE.match(line) is None)
    symbol = next(filter(None, map(_NAMED.search, lines)), None)
    seen = _Seen(oversized, head, name, first, symbol[1] if symbol else "<pattern>")
    title = "Structure"
    if not lines and (kind is ToolKind.GLOB or searches(result)):
        title, lines, seen = _distribution(seen)
    if lines and len(oversized.head) < oversized.shown.bytes:
        lines.insert(0, f"  - in the first {len(oversized.head)} bytes:")
    top = (
        f"--- Recovery Options ---\n{_heading(seen, kind)} | {measure.lines} lines, {measure.chars:,} chars\n"
    )
    offered = list(_COMMANDS[kind](seen)) if has_commands and kind in _COMMANDS else []
    if not offered:
        return (top + _fitting(title, lines, min(_STRUCTURE_CHARS, room - len(top)))).rstrip("\n")
    commands = "\nCommands:\n" + "\n".join(f"  • {command}" for command in offered)
    return top + _fitting(title, lines, min(_STRUCTURE_CHARS, room - len(top) - len(commands))) + commands


def _heading(seen: _Seen, kind: ToolKind) -> str:
    if seen.name is not None:
        return f"File: {seen.name}"
    command = command_of(seen.oversized.result) if kind is ToolKind.SHELL else None
    return f"Command: {command}" if command else f"Tool: {seen.oversized.result.tool_name}"


def _distribution(seen: _Seen) -> tuple[str, list[str], _Seen]:
    """The title and lines of the list, and `seen` with the files and directories that commands name."""
    rows = seen.oversized.head.decode("utf-8", "ignore").splitlines()
    # The last line of the head may be cut.
    shown = seen.head.count("\n")
    if found := tally(rows, shown):
        seen = seen._replace(files=matches_by_file(found), shown_matches=found.shown)
    if seen.files:
        return "Matches by file", listed(seen.files, "match", "matches"), seen
    directories = files_by_directory(rows, shown)
    seen = seen._replace(directories=directories, extensions=files_by_extension(rows, shown))
    return "Directories", listed(directories, "file", "files"), seen


def _fitting(title: str, lines: list[str], room: int) -> str:
    """The title, the lines that fit `room` characters, and the number of the others."""
    rows: list[str] = []
    room -= len(f"\n{title}:\n  - ... 1000000 more\n")
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        rows.append(line)
    if not rows:
        return ""
    if len(rows) < len(lines):
        rows.append(f"  - ... {len(lines) - len(rows)} more")
    return f"\n{title}:\n" + "\n".join(rows) + "\n"


def _call(seen: _Seen, tool: str, **arguments: str) -> str:
    words = ", ".join(f"{name}={json.dumps(text, ensure_ascii=False)}" for name, text in arguments.items())
    return f"{name_for_model(tool, seen.oversized.policy)}({words})"


def _file(seen: _Seen) -> Iterator[str]:
    quoted = _quoted(seen.name) if seen.name else "<path>"
    yield _call(seen, "grep_content", pattern=seen.symbol, path=seen.name or "<path>")
    yield from _parts(seen, quoted, seen.first_line)


def _quoted(path: str) -> str:
    """The path, quoted for a shell, in a form that no command takes for an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def _parts(seen: _Seen, quoted: str, first_line: int) -> Iterator[str]:
    """Commands that show parts of a file. The result begins at `first_line` of it."""
    following = first_line + seen.next_line - seen.first_line
    if seen.oversized.measure.lines < _LINES:
        # The lines are few and long: a range of lines would be too long.
        span = f"{first_line},{first_line + _LINES - 1}p"
        following_bytes = f"sed -n '{span}' {quoted} | tail -c +{len(seen.head.encode()) + 1} | head -c 2000"
        yield _call(seen, "shell", command=following_bytes) + "  # Next 2000 bytes"
        yield _call(seen, "shell", command=f"tail -c 2000 {quoted}") + "  # Last 2000 bytes"
        return
    yield _call(seen, "shell", command=f"sed -n '1,{_LINES}p' {quoted}") + f"  # First {_LINES} lines"
    if following > 1:
        span = f"{following},{following + _LINES - 1}p"
        yield _call(seen, "shell", command=f"sed -n '{span}' {quoted}") + "  # Next lines"
    yield _call(seen, "shell", command=f"tail -n {_LINES} {quoted}") + f"  # Last {_LINES} lines"


def _grep(seen: _Seen) -> Iterator[str]:
    pattern = pattern_of(seen.oversized.result)
    offered = list(islice(_hidden_matches(seen, pattern), _OFFERED)) if pattern is not None else []
    broader = _call(seen, "grep_content", pattern="<more specific pattern>", path=seen.name or ".")
    yield from offered or [broader]


def _hidden_matches(seen: _Seen, pattern: str) -> Iterator[str]:
    """Searches in files and directories that are not shown whole. For a file that is shown in part, its
    further matches."""
    for part in (*seen.files, *seen.directories):
        if part.shown == part.size:
            continue
        if seen.files and (part.shown or len(seen.files) == 1 or _path(part.name) == _path(seen.name)):
            yield _next_matches(seen, pattern, part.name, part.shown)
        elif _path(part.name) != _path(seen.name):
            yield f"{_call(seen, 'grep_content', pattern=pattern, path=part.name)}  # {_sized(part, seen)}"
    # If the rows name no file, the arguments do. They may name a folder instead: then the order is unknown.
    if seen.name and posixpath.splitext(seen.name)[1] and not (seen.files or seen.directories):
        yield _next_matches(seen, pattern, seen.name, seen.shown_matches)


def _path(name: str | None) -> str:
    return posixpath.normpath(name or ".")


def _next_matches(seen: _Seen, pattern: str, file: str, shown: int) -> str:
    dialect = "P" if _PERL.search(pattern) else "E"
    case = "i" if ignores_case(seen.oversized.result) else ""
    searched = f"grep -n{case}{dialect} -e {shlex.quote(pattern)} {_quoted(file)}"
    command = f"{searched} | sed -n '{shown + 1},{shown + _LINES}p'"
    return _call(seen, "shell", command=command) + "  # Next matches"


def _sized(share: PathCount, seen: _Seen) -> str:
    noun, plural = ("match", "matches") if seen.files else ("file", "files")
    return f"{share.size} {noun if share.size == 1 else plural}"


def _shell(seen: _Seen) -> Iterator[str]:
    if seen.oversized.path is not None:
        quoted = shlex.quote(seen.oversized.path)
        yield from _parts(seen, quoted, 1)
        yield _call(seen, "shell", command=f"grep -n '<pattern>' {quoted}") + "  # The output is stored there"
        return
    ran = _runnable(command_of(seen.oversized.result))
    last = seen.next_line + _LINES - 1
    yield _call(seen, "shell", command=f"{ran} | head -n {_LINES}") + f"  # First {_LINES} lines"
    yield _call(seen, "shell", command=f"{ran} | tail -n {_LINES}") + f"  # Last {_LINES} lines"
    yield _call(seen, "shell", command=f"{ran} | sed -n '{seen.next_line},{last}p'") + "  # Next lines"
    hidden = [file for file in seen.files if not file.shown]
    for file in hidden[:_OFFERED]:
        command = f"{ran} | grep -F {shlex.quote(file.name)}"
        yield _call(seen, "shell", command=command) + f"  # {_sized(file, seen)}"
    if not seen.files:
        yield _call(seen, "shell", command=f"{ran} | grep -n '<pattern>'")


def _runnable(command: str | None) -> str:
    """Returns the command as the first part of a pipeline; `<command>` if it is unknown or not safe to
    extend."""
    try:
        words = shlex.split(command or "")
    except ValueError:
        words = []
    if command is None or not words or "#" in command or "<<" in command:
        return "<command>"
    return f"({command})" if _COMPOSED.search(command) else command


def _web_search(seen: _Seen) -> Iterator[str]:
    yield _call(seen, "web_search", query="<more specific query>")
    yield _call(seen, "web_fetch", url="<a URL from the results>")


def _web_fetch(seen: _Seen) -> Iterator[str]:
    saved = saved_to(seen.oversized.result)
    if saved is None:
        yield _call(seen, "web_fetch", url=seen.name or "<URL>", save_to="page.txt")
    yield _call(seen, "grep_content", pattern="<pattern>", path=saved or "page.txt") + "  # Then search it"


def _glob(seen: _Seen) -> Iterator[str]:
    """Narrower patterns for directories and extensions that are not shown whole."""
    pattern = pattern_of(seen.oversized.result) or "**/*"
    last = "*" if pattern.endswith("**") else posixpath.basename(pattern)
    directory = pattern.partition("*")[0].rpartition("/")[0] or seen.name
    narrowed = [(f"{one.name}/{_depth(one, seen)}{last}", one) for one in seen.directories]
    if len(seen.extensions) > 1:
        top = f"{directory}/" if directory else ""
        narrowed += [(f"{top}**/*{one.name}", one) for one in seen.extensions]
    hidden = [(text, one) for text, one in narrowed if text != pattern and one.shown < one.size]
    directories = [one for one in hidden if one[1] in seen.directories]
    extensions = [one for one in hidden if one[1] in seen.extensions]
    patterns = directories[:_OFFERED] + extensions[:_OFFERED]
    for text, part in patterns:
        yield _call(seen, "glob_files", pattern=text) + f"  # {_sized(part, seen)}"
    if not patterns:
        yield _call(seen, "glob_files", pattern="<directory>/**/*") + "  # One directory"
        yield _call(seen, "glob_files", pattern="**/*.<extension>") + "  # One extension"


def _depth(part: PathCount, seen: _Seen) -> str:
    """Returns the pattern between a directory and its files: without the directories below it, if the list
    has such directories."""
    has_others = any(one.name.startswith(f"{part.name}/") for one in seen.directories)
    return "" if has_others or part.name == "." else "**/"


_COMMANDS: dict[ToolKind, Callable[[_Seen], Iterator[str]]] = {
    ToolKind.FILE: _file,
    ToolKind.GREP: _grep,
    ToolKind.SHELL: _shell,
    ToolKind.WEB_SEARCH: _web_search,
    ToolKind.WEB_FETCH: _web_fetch,
    ToolKind.GLOB: _glob,
}
