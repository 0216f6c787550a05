"""The entries in the settings files of a coding agent, and which of them are Spillgate's."""

import stat
import tomllib
from typing import Any

from beside.hooks.files import SettingsFile
from beside.hooks.jsonc import KeyPath, parse
from domain.errors import ConfigError


def read(file: SettingsFile) -> str | None:
    """None for a file that is not there, and for blank JSON, which holds no settings. Raises OSError,
    UnicodeDecodeError."""
    try:
        is_file = stat.S_ISREG(file.path.stat().st_mode)
    except FileNotFoundError:
        return None
    if not is_file:
        raise ConfigError(f"{file.path} is left as it is: it is not a regular file.")
    text = file.path.read_bytes().decode()
    return text if file.kind in ("toml", "whole") or text.strip("\ufeff \t\r\n") else None


def value_in(file: SettingsFile, text: str) -> Any:
    """Raises Malformed, TOMLDecodeError."""
    return tomllib.loads(text) if file.kind == "toml" else parse(text, has_comments=file.has_comments)


def at(value: Any, keys: KeyPath) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def is_own_hook(item: Any, client: str) -> bool:
    """True for a hook that `install` wrote, and for a group that holds such hooks alone."""
    match item:
        case {"hooks": [_, *_] as hooks}:
            return all(is_own_hook(hook, client) for hook in hooks)
        case {"url": str(url)}:
            return url.partition("?")[0].endswith(f"/hooks/{client}")
        case {"command": str(command)} | {"bash": str(command)}:
            return "spillgate" in command and command.endswith(f" hook {client}")
    return False


def is_own_plugin(file: SettingsFile, text: str) -> bool:
    return text.partition("\n")[0] == file.whole.partition("\n")[0]
