"""`spillgate hook install|uninstall|status CLIENT`: edits the settings files of a coding agent.

What others wrote stays as it is, to the byte: entries are added to the text and taken out of it again.
"""

import argparse
import difflib
import json
import os
import re
import shlex
import shutil
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from beside import embedded
from beside.client import in_any_shell, own_path, reaching, service_address
from beside.commands import SETTING_UP
from beside.hooks.agents import PLANS
from beside.hooks.entries import at, is_own_hook, is_own_plugin, items, read, value_in
from beside.hooks.files import PROJECT_NOTE, SettingsFile, Setup
from beside.hooks.jsonc import KeyPath, Malformed, Misfit, added, removed
from beside.hooks.status import status
from beside.uv_tool import install_tool, tool_path
from domain.errors import ConfigError
from machine.addresses import OWN
from machine.files import replace_text

_KEY_LINES = r"(?:\r?\n[A-Za-z_]+ = [^\r\n]*)*"
"""The lines of a table that `_with_table` wrote. What follows, such as a comment, is the user's."""


class FileChange(NamedTuple):
    """The text of a file before and after; None where there is no file."""

    file: SettingsFile
    before: str | None
    after: str | None


def main(arguments: Sequence[str]) -> int:
    """Exit status 0; for `status`, 1 if something is missing. Raises ConfigError, before anything is written
    unless the disk fails."""
    options = _options(arguments)
    if options.client not in (None, *PLANS):
        raise ConfigError(f"There is no client of this name. Known are: {', '.join(PLANS)}.")
    if options.action == "install" and not options.dry_run:
        install_tool()
    setup = _setup(options.project)
    clients = [options.client] if options.client else _found(setup)
    if not clients:
        raise ConfigError(f"No agent is found. Name one: {', '.join(PLANS)}.")
    statuses = []
    for client in clients:
        if options.client is None:
            print(f"{client}:")
        statuses.append(_done(client, setup, options))
    return max(statuses)


def _found(setup: Setup) -> list[str]:
    """Returns the agents whose program is in the PATH, or whose folder exists."""
    return [
        client
        for client, plan in PLANS.items()
        if shutil.which(plan.program) or any(folder.is_dir() for folder in _folders(plan.files(setup)))
    ]


def _folders(files: Sequence[SettingsFile]) -> Iterator[Path]:
    """An agent's folders that hold its settings. Those of all agents hold some: the home, the project."""
    for file in files:
        folder = file.path.parent
        folder = folder.parent if folder.name in ("hooks", "plugin", "extensions") else folder
        if folder not in (Path.home(), Path.cwd()):
            yield folder


def _done(client: str, setup: Setup, options: argparse.Namespace) -> int:
    files = PLANS[client].files(setup)
    if options.action == "status":
        return status(client, files, lambda file: _change(client, file, _installed) is None)
    edit = _installed if options.action == "install" else _uninstalled
    if not any(_has_hook(client, file) for file in files):
        files = [_without_server(file, options.action) for file in files]
    changes = [change for file in files if (change := _change(client, file, edit)) is not None]
    for change in changes:
        if options.dry_run:
            sys.stdout.writelines(_diff(change))
        else:
            _write(change)
            print(f"{'removed' if change.after is None else 'changed'} {change.file.path}")
    if not changes:
        print(f"Nothing to change: {client} is {'set up' if options.action == 'install' else 'not set up'}.")
    elif options.action == "install" and not options.dry_run:
        print(_after_install(client, setup))
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        usage="spillgate hook CLIENT   (answers the hook's JSON on stdin)\n"
        "       spillgate hook install|uninstall|status CLIENT [--project] [--dry-run]\n"
        "       spillgate hook install|uninstall|status --all",
        description="Answer a coding agent's hook, or set the agent up.",
    )
    parser.add_argument(
        "action",
        choices=SETTING_UP,
        help="add the hook to the agent's settings, remove it, or test it",
    )
    parser.add_argument("client", nargs="?", help=f"one of {', '.join(PLANS)}")
    parser.add_argument("--all", action="store_true", help="every agent that is installed on this machine")
    parser.add_argument(
        "--project",
        action="store_true",
        help="change the settings of the project in this folder, not those of the user",
    )
    parser.add_argument("--dry-run", action="store_true", help="show the change, but write nothing")
    options = parser.parse_args(arguments)
    if options.all == bool(options.client):
        parser.error("name one client, or --all")
    return options


def _has_hook(client: str, file: SettingsFile) -> bool:
    """True if a hook in the file, or the whole file, is Spillgate's."""
    with suppress(OSError, UnicodeDecodeError, Malformed, tomllib.TOMLDecodeError):
        text = read(file)
        if text is None or file.whole:
            return text is not None and is_own_plugin(file, text)
        value = value_in(file, text)
        lists = [at(value, keys) for keys, entry in file.entries if isinstance(entry, list)]
        return any(is_own_hook(item, client) for hooks in lists for item in items(hooks))
    return False


def _without_server(file: SettingsFile, action: str) -> SettingsFile:
    """Where no hook is Spillgate's, a server `spillgate` is the user's: it is not taken away. Raises
    ConfigError if another one is to be put in its place."""
    if action == "uninstall":
        return file._replace(entries=tuple(one for one in file.entries if isinstance(one[1], list)))
    with suppress(OSError, UnicodeDecodeError, Malformed, tomllib.TOMLDecodeError):
        text = read(file)
        value = {} if text is None or file.whole else value_in(file, text)
        for keys, entry in file.entries:
            setting = at(value, keys)
            if isinstance(entry, dict) and isinstance(setting, dict) and setting != entry:
                raise ConfigError(
                    f"{file.path} is left as it is: it has a server `{keys[-1]}` of another kind. Rename it."
                )
    return file


def _after_install(client: str, setup: Setup) -> str:
    plan = PLANS[client]
    with_server = "the MCP server `spillgate mcp --tools`"
    if setup.url is not None:
        with_server = f"the MCP server `spillgate` at {setup.url}/mcp"
    lines = [
        f"The model asks about a stored result with {plan.asks_with or with_server}.",
        plan.note,
        PROJECT_NOTE if setup.project is not None else None,
        "SPILLGATE_KEY must be set where the agent runs." if setup.has_key else None,
        f"Start {client} again. {_starting(client)}",
    ]
    return "\n".join(line for line in lines if line)


def _starting(client: str) -> str:
    if not _starts_by_itself():
        return "Have the service running."
    if not PLANS[client].starts_service:
        return f"{client} starts no service: run `spillgate service start`, or `spillgate serve`."
    return "The service starts by itself."


def _starts_by_itself() -> bool:
    """Raises ConfigError."""
    return service_address() == OWN and embedded.may_start()


def _setup(in_project: bool) -> Setup:
    """Raises ConfigError for a wrong SPILLGATE_URL or key."""
    is_at_url = not (service_address().is_own or service_address().path)
    url = os.environ["SPILLGATE_URL"].rstrip("/") if is_at_url else None
    has_key = bool(os.environ.get("SPILLGATE_KEY") or os.environ.get("SPILLGATE_KEY_FILE"))
    if in_project:
        # Others who use the project have the command, and their service, elsewhere.
        return Setup(Path.home(), Path.cwd(), os.environ, "spillgate", url, has_key)
    path = os.path.abspath(tool_path() or own_path())
    command = reaching(os.environ) + shlex.quote(path)
    shell = in_any_shell(path)
    shell = "" if shell == "spillgate" else shell
    return Setup(Path.home(), None, os.environ, command, url, has_key, path, _given(), shell)


def _given() -> dict[str, str]:
    """The variables that say which service an MCP server asks, if a client passes none of its own on."""
    given = {name: os.environ.get(name, "") for name in ("SPILLGATE_URL", "SPILLGATE_UDS", "XDG_STATE_HOME")}
    store = os.environ.get("SPILLGATE_STORAGE_URL", "")
    if store.startswith("disk:"):  # Another URL may hold a password.
        given["SPILLGATE_STORAGE_URL"] = store
    return {name: value for name, value in given.items() if value}


SettingsEdit = Callable[[str, SettingsFile, str | None], str | None]


def _change(client: str, file: SettingsFile, edit: SettingsEdit) -> FileChange | None:
    """None if nothing is to be changed. Raises ConfigError for a file that cannot be edited."""
    try:
        before = read(file)
        after = edit(client, file, before)
    except Malformed as error:
        raise ConfigError(
            f"{file.path} is left as it is: it does not parse at {error}. Correct it."
        ) from None
    except Misfit as error:
        raise ConfigError(
            f"{file.path} is left as it is: `{error}` in it has an unexpected type. Correct it."
        ) from None
    except tomllib.TOMLDecodeError:
        raise ConfigError(f"{file.path} is left as it is: it is not TOML. Correct it.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file.path} cannot be read: {type(error).__name__}.") from None
    return None if after == before else FileChange(file, before, after)


def _installed(client: str, file: SettingsFile, text: str | None) -> str | None:
    """Raises Malformed, Misfit, TOMLDecodeError, ConfigError."""
    if file.whole:
        _check_author(file, text)
        return file.whole
    if not file.entries:
        return text
    if file.kind == "toml":
        return _with_table(text, *file.entries[0])
    if text is not None and _holds(file, text):
        return text
    is_new = text is None and not file.path.exists()
    text = _uninstalled(client, file, text)
    is_new = is_new or (text is None and read(file) is not None)
    if not text:
        whole = dict(file.base)
        for keys, entry in file.entries:
            _put(whole, keys, entry)
        # Without the last line end `_uninstalled` knows that there was an empty file.
        return _dumped(whole) if is_new else _dumped(whole).rstrip()
    for keys, entry in file.entries:
        text = added(text, keys, entry, has_comments=file.has_comments)
    return text


def _uninstalled(client: str, file: SettingsFile, text: str | None) -> str | None:
    """Raises Malformed, Misfit, TOMLDecodeError, ConfigError."""
    if file.whole:
        _check_author(file, text)
        return None
    if text is None or not file.entries:
        return text
    if file.kind == "toml":
        return _without_table(text, file.entries[0][0])
    was, rest = value_in(file, text), text
    for keys, entry in reversed(file.entries):
        is_own = (lambda item: is_own_hook(item, client)) if isinstance(entry, list) else None
        rest = removed(rest, keys, is_own, has_comments=file.has_comments)
    # A file that `install` made has the entries of `base` first, and nothing else.
    left = value_in(file, rest)
    is_made = rest != text and left == dict(file.base) and list(was)[: len(left)] == list(left)
    if is_made and text == _dumped(was).rstrip():
        return ""
    return None if is_made and text == _dumped(was) else rest


def _holds(file: SettingsFile, text: str) -> bool:
    """True if every entry is there, wherever the user has moved it. Raises Malformed."""
    value = value_in(file, text)
    for keys, entry in file.entries:
        setting = at(value, keys)
        if isinstance(entry, dict) and setting != entry:
            return False
        if isinstance(entry, list) and not all(item in items(setting) for item in entry):
            return False
    return True


def _put(whole: dict[str, Any], keys: KeyPath, entry: Any) -> None:
    for key in keys[:-1]:
        whole = whole.setdefault(key, {})
    whole[keys[-1]] = entry


def _dumped(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _check_author(file: SettingsFile, text: str | None) -> None:
    if text is not None and not is_own_plugin(file, text):
        raise ConfigError(f"{file.path} is left as it is: Spillgate did not write it. Move it away.")


def _with_table(text: str | None, keys: KeyPath, entry: Any) -> str:
    """TOML with the entry as a table at its end. Raises TOMLDecodeError, Misfit."""
    rest = None if text is None else _without_table(text, keys)
    newline = "\r\n" if rest and "\r\n" in rest else "\n"
    lines = [f"[{'.'.join(keys)}]", *(f"{name} = {_toml(value)}" for name, value in entry.items())]
    table = newline.join(lines) + newline
    if text is None or rest is None:
        return table
    after, wanted = f"{rest}{newline}{table}", tomllib.loads(rest)
    try:
        _put(wanted, keys, entry)
        fits = tomllib.loads(after) == wanted
    except (AttributeError, TypeError, tomllib.TOMLDecodeError):
        fits = False
    if not fits:
        raise Misfit(".".join(keys))
    return text if tomllib.loads(text) == wanted else after


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_toml(inner)}' for name, inner in value.items())} }}"
    return json.dumps(value)


def _without_table(text: str, keys: KeyPath) -> str | None:
    """TOML without the table of these keys, and without the line break that `_with_table` put before it; None
    if nothing is left. Raises TOMLDecodeError, Misfit."""
    was = tomllib.loads(text)
    header = rf"(?:\A|\r?\n)\[{re.escape('.'.join(keys))}\][ \t]*(?=\r?\n|\Z)"
    match = re.search(header + _KEY_LINES, text)
    if match is None:
        return text
    head, tail = text[: match.start()], text[match.end() :].removeprefix("\r").removeprefix("\n")
    if not tail and match[0].startswith("["):
        return None
    is_joined = bool(tail) and bool(head) and not head.endswith("\n")
    rest = head + "\n" * is_joined + tail
    try:
        fits = _others(tomllib.loads(rest), keys) == _others(was, keys)
    except (AttributeError, tomllib.TOMLDecodeError):
        fits = False
    # A line that begins with a bracket may stand within a string or a list.
    if not fits:
        raise Misfit(".".join(keys))
    return rest


def _others(value: dict[str, Any], keys: KeyPath) -> dict[str, Any]:
    """All but the entry. Whether its table is empty or absent makes no difference."""
    table = {name: inner for name, inner in value.get(keys[0], {}).items() if name != keys[1]}
    return {**value, keys[0]: table}


def _diff(change: FileChange) -> list[str]:
    name = str(change.file.path)
    before, after = ((text or "").splitlines(keepends=True) for text in (change.before, change.after))
    lines = difflib.unified_diff(
        before,
        after,
        "/dev/null" if change.before is None else name,
        "/dev/null" if change.after is None else name,
    )
    return [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]


def _write(change: FileChange) -> None:
    """Replaces the file in one step, and keeps its mode and the link that leads to it. Raises ConfigError."""
    path = change.file.path.resolve()
    try:
        if read(change.file) != change.before:
            raise ConfigError(f"{path} was changed in the meantime. Run the command again.")
        if path.exists() and not (os.access(path, os.W_OK) and path.stat().st_mode & stat.S_IWUSR):
            raise ConfigError(f"{path} is left as it is: it is read-only.")
        if change.after is None:
            path.unlink()
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        os.umask(mask := os.umask(0))
        replace_text(path, change.after, 0o666 & ~mask)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {type(error).__name__}.") from None
