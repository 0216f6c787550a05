"""Policy documents: TOML files and JSON overrides, checked key by key."""

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from content.preview import Preview
from content.tokens import ENCODINGS
from domain.decisions import OutcomeKind
from domain.errors import ConfigError, InvalidPolicy
from policies.decide import OUTCOMES
from policies.facts import PolicyMode
from policies.positions import Path, line_numbers

Value = int | float | bool | str | tuple[str, ...]
Keys = Mapping[str, Value]
Checks = Mapping[str, Callable[[object], Value]]


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
            near = difflib.get_close_matches(value, names, n=1) if isinstance(value, str) else []
            nearest = f"; the nearest is {near[0]}" if near else ""
            raise ValueError(f"must be one of {', '.join(names)}{nearest}")
        return enum(value)

    return check


def _flag(value: object) -> Value:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


_MOST_NAMES = 32
_TOKENS = _whole(0, 1_000_000_000)
_PRICE = _number(0, 1_000_000)

TOOL_KEYS: Checks = {
    "on_oversize": _one_of(OutcomeKind, tuple(OUTCOMES)),
    "max_bytes": _whole(0, 1_000_000),
    "max_chars": _whole(0, 1_000_000),
    "max_tokens": _whole(0, 1_000_000),
    "head_chars": _whole(0, 250_000),
    "keep": _flag,
    "max_rows": _whole(0, 1_000_000),
    "max_line_chars": _whole(0, 1_000_000),
    "preview": _one_of(Preview, tuple(Preview)),
    "preview_bytes": _whole(0, 65_536),
    "bypass": _flag,
    "max_chunks": _whole(1, 10_000),
    "overlap_percent": _whole(0, 50),
    "avg_line_bytes": _whole(0, 1_000_000_000),
    "extract_models": _names,
    "max_llm_calls": _whole(0, 1_000_000_000),
    "max_llm_tokens": _whole(0, 1_000_000_000_000),
    "max_llm_cost_usd": _PRICE,
}
DOCUMENT_KEYS: Checks = {"mode": _one_of(PolicyMode, tuple(PolicyMode))}
"""What a document sets for every tool alike."""

CEILINGS = ("max_llm_calls", "max_llm_tokens", "max_llm_cost_usd")
"""What a session or a request may lower, never raise: 0 is no ceiling, so any other is lower."""

MODEL_KEYS: Checks = {
    "context_window": _TOKENS,
    "max_output_tokens": _TOKENS,
    "encoding": _one_of(str, ENCODINGS),
    "input_price": _PRICE,
    "output_price": _PRICE,
    "cached_price": _PRICE,
}
SECTIONS = ("defaults", "tools", "models")

PROFILES = ("ai-agent", "ouro", "claude-code", "oxide-code")
"""Each is a document of its own, `profiles/NAME.toml`."""

# Finding the nearest known name takes a while: not for each of thousands.
_MOST_FAULTS = 20

_TOP = (*DOCUMENT_KEYS, "profile", *SECTIONS)
"""What stands at the top of a document alone."""

_profile = _one_of(str, PROFILES)
_WILD = re.compile(r"\[!?\]?[^\]]*\]|[*?]")
_SYNTAX = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """What one layer sets: keys for every tool, for tools by glob, and facts about models, on a profile if it
    names one. `source` is its name, `lines` where in its text a table or key is set."""

    defaults: Keys = field(default_factory=dict)
    tools: Mapping[str, Keys] = field(default_factory=dict)
    models: Mapping[str, Keys] = field(default_factory=dict)
    profile: str | None = None
    source: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict)

    def for_tool(self, tool_name: str) -> dict[str, Value]:
        """The layer's keys for a tool: the most specific glob wins, key by key."""
        keys: dict[str, Value] = {}
        for _, table in self.tables(tool_name):
            keys |= table
        return keys

    def tables(self, tool_name: str) -> list[tuple[Path, Keys]]:
        """The tables that hold for a tool, each over those before it."""
        matching = sorted((glob for glob in self.tools if fnmatchcase(tool_name, glob)), key=_specificity)
        return [(("defaults",), self.defaults), *((("tools", glob), self.tools[glob]) for glob in matching)]

    def place(self, path: Path) -> str:
        """Where a key is set, for people: source, table and line."""
        *table, key = path
        if path not in self.lines:
            # A default may stand outside its section.
            table, path = [], (key,)
        header = ".".join(part if _PLAIN.fullmatch(part) else f'"{part}"' for part in table)
        line = self.lines.get(path)
        parts = (self.source, header and f"[{header}]", line and f"line {line}")
        return ", ".join(str(part) for part in parts if part)


def _specificity(glob: str) -> tuple[bool, int, int, int]:
    """A name before a glob, then the one that spells out more, leaves less open, is open later. Of two that
    are alike the later in the document wins."""
    spelled = _WILD.sub("", glob)
    return (spelled == glob, len(spelled), -glob.count("*"), len(_WILD.split(glob)[0]))


@dataclass(frozen=True, slots=True, order=True)
class _Fault:
    path: Path
    rule: str


class _Reader:
    """Reads a document to its end, and keeps the faults that it finds on the way."""

    def __init__(self) -> None:
        self.faults: list[_Fault] = []

    def document(self, data: dict[str, Any]) -> PolicyDocument:
        """Keys outside a section are defaults: the short form of an override."""
        short = {name: value for name, value in data.items() if name not in (*SECTIONS, "profile")}
        defaults = self._keys((), short, {**DOCUMENT_KEYS, **TOOL_KEYS}, (*_TOP, *TOOL_KEYS))
        section = self._keys(("defaults",), data.get("defaults", {}), TOOL_KEYS)
        for name in sorted(defaults.keys() & section.keys()):
            self._fault(("defaults", name), "is set outside a section too: set it once")
        return PolicyDocument(
            {**defaults, **section},
            self._tables("tools", data.get("tools", {}), TOOL_KEYS),
            self._tables("models", data.get("models", {}), MODEL_KEYS),
            str(self._value(("profile",), data["profile"], _profile)) if "profile" in data else None,
        )

    def _tables(self, section: str, tables: object, checks: Checks) -> dict[str, Keys]:
        if not isinstance(tables, dict):
            self._fault((section,), f"must be a table of tables: [{section}.NAME]")
            return {}
        return {name: self._keys((section, name), table, checks) for name, table in tables.items()}

    def _keys(self, path: Path, table: object, checks: Checks, known: tuple[str, ...] = ()) -> Keys:
        if not isinstance(table, dict):
            self._fault(path, "must be a table of keys")
            return {}
        keys: dict[str, Value] = {}
        for name, value in table.items():
            if len(self.faults) >= _MOST_FAULTS:
                break
            if name in checks:
                keys[name] = self._value((*path, name), value, checks[name])
            else:
                self._fault((*path, name), _unknown(name, known or tuple(checks)))
        return keys

    def _value(self, path: Path, value: object, check: Callable[[object], Value]) -> Value:
        try:
            return check(value)
        except ValueError as error:
            self._fault(path, str(error))
            return ""

    def _fault(self, path: Path, rule: str) -> None:
        self.faults.append(_Fault(path, rule))


def _unknown(name: str, known: tuple[str, ...]) -> str:
    if name in _TOP:
        return "stands at the top, before every section"
    near = difflib.get_close_matches(name, known, n=1)
    return f"is not a key; {near[0]} is" if near else f"is not a key; keys are {', '.join(known)}"


def from_toml(text: str, source: str) -> PolicyDocument:
    """Raises ConfigError: a line for each fault, naming the source and the line."""
    try:
        data = tomllib.loads(text)
        lines = line_numbers(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax(str(error), text, source)) from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{source}: a number or a nesting in it is beyond all measure.") from None
    reader = _Reader()
    document = reader.document(data)
    if reader.faults:
        said = sorted((_line(lines, fault.path), fault) for fault in reader.faults)
        told = [f"{source}, line {line}: {'.'.join(one.path)} {one.rule}." for line, one in said]
        raise ConfigError("\n".join(told))
    return replace(document, source=source, lines=lines)


def _syntax(said: str, text: str, source: str) -> str:
    """The parser's message, with the line at its front like all others."""
    match = _SYNTAX.fullmatch(said)
    if match is None:
        return f"{source}: {said}"
    return f"{source}, line {match[2] or text.rstrip().count(chr(10)) + 1}: {match[1]}."


def _line(lines: Mapping[Path, int], path: Path) -> int:
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def from_json(text: str) -> PolicyDocument:
    """An override of a session or request. Raises InvalidPolicy, which names only keys that exist."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidPolicy("`policy` must be well-formed JSON.") from None
    if not isinstance(data, dict):
        raise InvalidPolicy("`policy` must be an object of policy keys.")
    reader = _Reader()
    document = reader.document(data)
    if reader.faults:
        raise InvalidPolicy(" ".join(dict.fromkeys(map(_unechoed, reader.faults))))
    return document


def _unechoed(fault: _Fault) -> str:
    """Only names that are ours: the caller's own could be anything."""
    names = (*_TOP, *TOOL_KEYS, *MODEL_KEYS)
    where = ".".join(("policy", *(part for part in fault.path if part in names)))
    return f"`{where}`: {fault.rule}."
