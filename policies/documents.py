"""Policy documents: TOML files and JSON overrides, checked key by key."""

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from content.preview import Preview
from content.tokens import ENCODINGS
from domain.decisions import OutcomeKind
from domain.errors import ConfigError, InvalidPolicy
from policies.decide import OUTCOMES
from policies.facts import PolicyMode

Value = int | float | bool | str | tuple[str, ...]
Keys = Mapping[str, Value]


def _whole(low: int, high: int) -> Callable[[object], Value]:
    def check(value: object) -> Value:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return value

    return check


def _number(low: float, high: float) -> Callable[[object], Value]:
    def check(value: object) -> Value:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"must be a number from {low:g} to {high:g}")
        return float(value)

    return check


def _names(value: object) -> Value:
    if not isinstance(value, list) or not all(isinstance(one, str) and 0 < len(one) <= 256 for one in value):
        raise ValueError("must be a list of names")
    if len(value) > _MOST_NAMES:
        raise ValueError(f"must be a list of at most {_MOST_NAMES} names")
    return tuple(value)


def _one_of(enum: Callable[[str], Value], names: tuple[str, ...]) -> Callable[[object], Value]:
    def check(value: object) -> Value:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return enum(value)

    return check


def _flag(value: object) -> Value:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


_MOST_NAMES = 32
_TOKENS = _whole(0, 1_000_000_000)
_PRICE = _number(0, 1_000_000)

TOOL_KEYS: Mapping[str, Callable[[object], Value]] = {
    "on_oversize": _one_of(OutcomeKind, tuple(OUTCOMES)),
    "max_bytes": _whole(0, 1_000_000),
    "max_chars": _whole(0, 1_000_000),
    "max_tokens": _whole(0, 1_000_000),
    "head_chars": _whole(0, 250_000),
    "keep": _flag,
    "preview": _one_of(Preview, tuple(Preview)),
    "preview_bytes": _whole(0, 65_536),
    "max_rows": _whole(0, 1_000_000),
    "max_line_chars": _whole(0, 1_000_000),
    "bypass": _flag,
    "max_chunks": _whole(1, 10_000),
    "overlap_percent": _whole(0, 50),
    "avg_line_bytes": _whole(0, 1_000_000_000),
    "extract_models": _names,
    "max_llm_calls": _whole(0, 1_000_000_000),
    "max_llm_tokens": _whole(0, 1_000_000_000_000),
    "max_llm_cost_usd": _PRICE,
}
DOCUMENT_KEYS: Mapping[str, Callable[[object], Value]] = {"mode": _one_of(PolicyMode, tuple(PolicyMode))}
"""What a document sets for every tool alike."""

CEILINGS = ("max_llm_calls", "max_llm_tokens", "max_llm_cost_usd")
"""What a session or a request may lower, never raise: 0 is no ceiling, so any other is lower."""

MODEL_KEYS: Mapping[str, Callable[[object], Value]] = {
    "context_window": _TOKENS,
    "max_output_tokens": _TOKENS,
    "encoding": _one_of(str, ENCODINGS),
    "input_price": _PRICE,
    "output_price": _PRICE,
    "cached_price": _PRICE,
}
SECTIONS = ("defaults", "tools", "models")
_KNOWN = {*DOCUMENT_KEYS, *TOOL_KEYS, *MODEL_KEYS, *SECTIONS}


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """What one layer sets: keys for every tool, for tools by glob, and facts about models."""

    defaults: Keys = field(default_factory=dict)
    tools: Mapping[str, Keys] = field(default_factory=dict)
    models: Mapping[str, Keys] = field(default_factory=dict)

    def for_tool(self, tool_name: str) -> dict[str, Value]:
        """The layer's keys for a tool: the most specific glob wins, key by key."""
        keys = dict(self.defaults)
        matching = [glob for glob in self.tools if fnmatchcase(tool_name, glob)]
        for glob in sorted(matching, key=_specificity):
            keys.update(self.tools[glob])
        return keys


def _specificity(glob: str) -> tuple[bool, int]:
    wild = any(sign in glob for sign in "*?[")
    return (not wild, len(glob))


class _Fault(Exception):
    def __init__(self, path: tuple[str, ...], rule: str) -> None:
        super().__init__(path, rule)
        self.path = path
        self.rule = rule


def _checked(path: tuple[str, ...], table: object, keys: Mapping[str, Callable[[object], Value]]) -> Keys:
    if not isinstance(table, dict):
        raise _Fault(path, "must be a table of keys")
    for name, value in table.items():
        if name not in keys:
            raise _Fault((*path, name), _unknown(name, keys))
        try:
            table[name] = keys[name](value)
        except ValueError as error:
            raise _Fault((*path, name), str(error)) from None
    return table


def _unknown(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"is not a key; {near[0]} is" if near else f"is not a key; keys are {', '.join(known)}"


def _document(data: dict[str, Any]) -> PolicyDocument:
    """Keys outside a section are defaults: the short form of an override."""
    short = {name: value for name, value in data.items() if name not in SECTIONS}
    defaults = {
        **_checked((), short, {**DOCUMENT_KEYS, **TOOL_KEYS}),
        **_checked(("defaults",), data.get("defaults", {}), TOOL_KEYS),
    }
    groups: dict[str, dict[str, Keys]] = {"tools": {}, "models": {}}
    for section, keys in (("tools", TOOL_KEYS), ("models", MODEL_KEYS)):
        tables = data.get(section, {})
        if not isinstance(tables, dict):
            raise _Fault((section,), "must be a table of tables")
        for name, table in tables.items():
            groups[section][name] = _checked((section, name), table, keys)
    return PolicyDocument(defaults, groups["tools"], groups["models"])


def from_toml(text: str, source: str) -> PolicyDocument:
    """Raises ConfigError naming the source and the line."""
    try:
        return _document(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: {error}") from None
    except _Fault as fault:
        line = _line_of(text, fault.path)
        raise ConfigError(f"{source}, line {line}: {'.'.join(fault.path)} {fault.rule}.") from None


def from_json(text: str) -> PolicyDocument:
    """An override of a session or request. Raises InvalidPolicy, which names only keys that exist."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidPolicy("`policy` must be well-formed JSON.") from None
    if not isinstance(data, dict):
        raise InvalidPolicy("`policy` must be an object of policy keys.")
    try:
        return _document(data)
    except _Fault as fault:
        known = [part for part in fault.path if part in _KNOWN]
        where = ".".join(("policy", *known))
        raise InvalidPolicy(f"`{where}`: {fault.rule}.") from None


def _line_of(text: str, path: tuple[str, ...]) -> int:
    """The line that sets the key; its table's, where the key does not start a line."""
    *table, key = path
    header, found = 1, False
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip().replace('"', "").replace("'", "")
        if bare.startswith("["):
            found = bare.split("]")[0].strip("[] ") == ".".join(table)
            header = number if found else header
        elif (found or not table) and bare.split("=")[0].strip() == key:
            return number
    return header
