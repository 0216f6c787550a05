"""What coding agents send to their hooks: recorded, or written from their types and documentation."""

import copy
import json
import re
from pathlib import Path
from typing import Any

_CUT = re.compile(r"(.*)…\[([0-9]+) characters\]", re.DOTALL)
_PAYLOADS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("hook_payloads.json").read_text())

Path_ = tuple[str | int, ...]

LARGE = "".join(f'{number}: the tulip with number {number} is ‘red’ \\ "and" 🌷\n' for number in range(900))


def payload(client: str, name: str) -> Any:
    """With the strings that were cut when they were recorded filled up to their length."""
    return _filled(_PAYLOADS[client][name])


def names() -> list[tuple[str, str]]:
    return [(client, name) for client, named in _PAYLOADS.items() for name in named]


def changed(value: Any, path: Path_, new: Any) -> Any:
    """A copy of the value with `new` at the path."""
    whole = copy.deepcopy(value)
    inner = whole
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = new
    return whole


def at(value: Any, path: Path_) -> Any:
    for step in path:
        value = value[step]
    return value


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _filled(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_filled(item) for item in value]
    if isinstance(value, str) and (cut := _CUT.fullmatch(value)):
        size = int(cut[2])
        return (cut[1] * (size // max(1, len(cut[1])) + 1))[:size]
    return value
