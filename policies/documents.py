"""Reads policy documents, which are TOML files and JSON overrides, and validates them key by key."""

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    create_model,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from content.redaction.detector import SECRETS, checked
from content.redaction.masks import NOT_SEARCHED
from content.tokens import ENCODINGS
from domain.errors import BadPattern, ConfigError, InvalidPolicy, unknown_key
from domain.handles import is_name
from domain.library_errors import pydantic_rule
from domain.llm import MODEL_SCHEMES
from policies.policy import Dollars, Policy, RedactName, one_of, whole

PolicyPath = tuple[str, ...]
"""The names of the tables and the key, outermost first."""

PolicyValue = int | float | bool | str | tuple[str, ...] | Mapping[str, str]
SetKeys = Mapping[str, PolicyValue]

CEILINGS = ("max_llm_calls", "max_llm_tokens", "max_llm_cost_usd")
"""Keys that a session or a request may lower but not raise. 0 means no ceiling."""


class Profile(StrEnum):
    """Each profile is a document: `profiles/NAME.toml`."""

    DEFAULT = "default"
    AI_AGENT = "ai-agent"
    OURO = "ouro"
    CLAUDE_CODE = "claude-code"
    OXIDE_CODE = "oxide-code"


def check_base_url(url: str) -> str:
    """Accepts an empty URL, which means none. Refuses keys in the URL: check-config would print them."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if url and (parts.scheme not in MODEL_SCHEMES or "@" in parts.netloc or parts.query or parts.fragment):
        raise PydanticCustomError(
            "base_url", "must be a URL like https://api.example.com/v1, without a key, query or fragment"
        )
    return url


class PolicyTable(BaseModel):
    """A table of a policy document. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


if TYPE_CHECKING:
    PolicyKeys = PolicyTable
    ToolKeys = PolicyTable
else:
    keys = {one.name: (one.type, None) for one in fields(Policy)}
    PolicyKeys = create_model("PolicyKeys", __base__=PolicyTable, **keys)
    """All keys of a Policy; a document sets some of them."""
    del keys["mode"]
    ToolKeys = create_model("ToolKeys", __base__=PolicyTable, **keys)
    """The keys that a document may set for each tool."""


class ModelKeys(PolicyTable):
    """What a policy file may set for a model. None: not set. Prices in US dollars per million tokens. A model
    with a `base_url` has a backend of its own; `api_key_file` is the path of a file that holds its key."""

    context_window: Annotated[int, whole(0, 1_000_000_000)] | None = None
    max_output_tokens: Annotated[int, whole(0, 1_000_000_000)] | None = None
    encoding: Annotated[str, one_of(*ENCODINGS)] | None = None
    input_price: Dollars | None = None
    output_price: Dollars | None = None
    cached_price: Dollars | None = None
    base_url: Annotated[str, Field(strict=True, max_length=2048), AfterValidator(check_base_url)] | None = (
        None
    )
    api_key_file: Annotated[str, Field(strict=True, max_length=4096)] | None = None


Count = Annotated[int, whole(0, 1 << 62)]


def _check_tenant(name: str) -> str:
    if not is_name(name):
        raise PydanticCustomError("tenant", "must be the name of a tenant, as in the file of API keys")
    return name


class TenantKeys(PolicyTable):
    """What a policy file may set for a tenant: its quotas, as in domain.quotas.TenantQuota. None: not set."""

    storage_max_bytes: Count | None = None
    ledger_max_bytes: Count | None = None
    max_sessions: Count | None = None
    requests_per_second: Dollars | None = None
    llm_usd_per_day: Dollars | None = None


def _check_pattern(pattern: str) -> str:
    try:
        checked(pattern)
    except BadPattern as error:
        reason = f"is refused: {error.detail.removesuffix('.')}"
        raise PydanticCustomError("pattern", "{reason}", {"reason": reason}) from None
    return pattern


def _check_pattern_name(name: str) -> str:
    if name == SECRETS:
        raise PydanticCustomError("pattern_name", "is reserved for the built-in rules: choose another one")
    if name == NOT_SEARCHED:
        raise PydanticCustomError(
            "pattern_name", "is reserved for parts that were not searched in time: choose another one"
        )
    return name


class PatternKeys(PolicyTable):
    """An operator's pattern, in RE2 syntax. The secret is its first group that matches; without groups, the
    whole match."""

    pattern: Annotated[str, Field(strict=True, min_length=1, max_length=2000), AfterValidator(_check_pattern)]


_PatternName = Annotated[RedactName, AfterValidator(_check_pattern_name)]


class _Document(PolicyKeys):
    """A document as written. Keys outside a section are defaults, which is the short form of an override.
    `redact` is the key if it is a list, the section of patterns if it is a table."""

    redact: Annotated[
        Annotated[tuple[RedactName, ...], Field(max_length=32), Tag("[list]")]
        | Annotated[dict[_PatternName, PatternKeys], Field(max_length=200), Tag("[table]")],
        Discriminator(lambda value: "[table]" if isinstance(value, Mapping) else "[list]"),
    ] = ()

    profile: Annotated[Profile, one_of(*Profile)] | None = None
    defaults: ToolKeys = ToolKeys()
    tools: dict[str, ToolKeys] = Field(default_factory=dict)
    models: dict[str, ModelKeys] = Field(default_factory=dict)
    tenants: dict[Annotated[str, AfterValidator(_check_tenant)], TenantKeys] = Field(default_factory=dict)


# Finding the nearest key is slow: only the first errors of a document are reported.
_MOST_FAULTS = 20

_TOP = _Document.model_fields.keys() - ToolKeys.model_fields.keys()
"""Keys that are valid only at the top of a document."""

_SECTIONS: dict[str, type[PolicyTable]] = {"models": ModelKeys, "tenants": TenantKeys, "redact": PatternKeys}
"""The keys of the tables in a section. Tables of other sections have ToolKeys."""

_RULES = {
    "model_type": "must be a table of keys",
    "dict_type": "must be a table of tables: [{}.NAME]",
    "tuple_type": "must be a list of names",
    "string_type": "must be a text in quotes",
    "string_pattern_mismatch": "must be a name of at most 64 small letters, digits, _ and -",
}
_WILD = re.compile(r"\[!?\]?[^\]]*\]|[*?]")
_SYNTAX = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def header_of(table: Iterable[str]) -> str:
    """The name of a table as TOML writes it, without brackets."""
    return ".".join(part if _PLAIN.fullmatch(part) else f'"{part}"' for part in table)


# Strings, comments, brackets and line ends of TOML. The standard parser gives no line numbers.
_TOML_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]''',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """One layer: keys for every tool, for tools by glob, for models and for tenants; named patterns to
    redact; and perhaps a profile. `source` names the layer in messages, `text` is its TOML."""

    defaults: SetKeys = field(default_factory=dict)
    tools: Mapping[str, SetKeys] = field(default_factory=dict)
    models: Mapping[str, SetKeys] = field(default_factory=dict)
    tenants: Mapping[str, SetKeys] = field(default_factory=dict)
    patterns: Mapping[str, str] = field(default_factory=dict)
    profile: Profile | None = None
    source: str = ""
    text: str = field(default="", repr=False)

    def for_tool(self, tool_name: str) -> dict[str, PolicyValue]:
        """The layer's keys for a tool: the most specific glob wins, key by key."""
        keys: dict[str, PolicyValue] = {}
        for _, table in self.tables(tool_name):
            keys |= table
        return keys

    def tables(self, tool_name: str) -> list[tuple[PolicyPath, SetKeys]]:
        """The tables that apply to a tool; later tables override earlier ones."""
        matching = sorted((glob for glob in self.tools if fnmatchcase(tool_name, glob)), key=_specificity)
        return [(("defaults",), self.defaults), *((("tools", glob), self.tools[glob]) for glob in matching)]

    def location(self, path: PolicyPath) -> str:
        """Where a key is set: source, table and line, for messages."""
        *table, key = path
        lines = line_numbers(self.text)
        if path not in lines:
            # Defaults may be set outside the section `defaults`.
            table, path = [], (key,)
        header = header_of(table)
        line = lines.get(path)
        parts = (self.source, header and f"[{header}]", line and f"line {line}")
        return ", ".join(str(part) for part in parts if part)


def _specificity(glob: str) -> tuple[bool, int, int, int]:
    """The sort key of a glob, least specific first: exact names last; otherwise by spelled characters, fewer
    stars, and a later first wildcard. Of equal globs the later in the document wins."""
    spelled = _WILD.sub("", glob)
    return (spelled == glob, len(spelled), -glob.count("*"), len(_WILD.split(glob)[0]))


@dataclass(frozen=True, slots=True, order=True)
class _Fault:
    """An error at `path`. For an unknown key, `known` are the keys of its table."""

    path: PolicyPath
    rule: str
    known: tuple[str, ...] = ()


def _read(data: object) -> tuple[PolicyDocument, list[_Fault]]:
    """Returns the document and its first errors. If there are errors, the document may be empty."""
    try:
        read = _Document.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)[:_MOST_FAULTS]
        return PolicyDocument(), [_fault(one) for one in details]
    short = {name: getattr(read, name) for name in PolicyKeys.model_fields.keys() & read.model_fields_set}
    patterns = short.pop("redact") if isinstance(short.get("redact"), Mapping) else {}
    section = _set_keys(read.defaults)
    document = PolicyDocument(
        {**short, **section},
        {glob: _set_keys(table) for glob, table in read.tools.items()},
        {name: _set_keys(table) for name, table in read.models.items()},
        {name: _set_keys(table) for name, table in read.tenants.items()},
        {name: table.pattern for name, table in patterns.items()},
        read.profile,
    )
    twice = [
        _Fault(("defaults", name), "is also set outside a section: set it once")
        for name in short.keys() & section.keys()
    ]
    return document, twice


def _set_keys(table: PolicyTable) -> SetKeys:
    """The keys that the document sets, without defaults."""
    return table.model_dump(exclude_unset=True)


def _fault(error: ErrorDetails) -> _Fault:
    # pydantic appends "[key]" if the name itself is wrong. The other marks are the tags of `redact`.
    marks = ("[key]", "[list]", "[table]")
    path = tuple(part for part in error["loc"] if isinstance(part, str) and part not in marks)
    if error["type"] == "extra_forbidden":
        return _unknown(path)
    if error["type"] == "dict_type" and path[-1] == "tool_names":
        return _Fault(path, 'must be a table of names, such as { shell = "Bash" }')
    rule = pydantic_rule(error["type"], error["msg"], _RULES)
    return _Fault(path, rule.replace("{}", path[-1]) if path else rule)


def _unknown(path: PolicyPath) -> _Fault:
    *section, name = path
    if section and name in _TOP:
        return _Fault(path, "belongs at the top, before every section")
    table = _SECTIONS.get(section[0], ToolKeys) if section else _Document
    known = tuple(table.model_fields)
    near = difflib.get_close_matches(name, known, n=1)
    rule = f"is not a key; {near[0]} is" if near else f"is not a key; keys are {', '.join(known)}"
    return _Fault(path, rule, known)


def from_toml(text: str, source: str) -> PolicyDocument:
    """Raises ConfigError: a line for each fault, naming the source and the line."""
    try:
        document, faults = _read(tomllib.loads(text))
        lines = line_numbers(text) if faults else {}
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax(str(error), text, source)) from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{source}: a number is too large, or the nesting too deep.") from None
    if faults:
        placed = sorted((_line(lines, fault.path), fault) for fault in faults)
        messages = (f"{source}, line {line}: {'.'.join(one.path)} {one.rule}." for line, one in placed)
        raise ConfigError("\n".join(messages))
    return replace(document, source=source, text=text)


def _syntax(message: str, text: str, source: str) -> str:
    """The message of the TOML parser, with source and line first, as in other messages."""
    match = _SYNTAX.fullmatch(message)
    if match is None:
        return f"{source}: {message}"
    line = int(match[2] or text.rstrip().count("\n") + 1)
    key = _KEY.match(text.split("\n")[line - 1]) if match[1] == "Cannot overwrite a value" else None
    return f"{source}, line {line}: {f'{key[1]} is set twice' if key else match[1]}."


def _line(lines: Mapping[PolicyPath, int], path: PolicyPath) -> int:
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def from_json(text: str) -> PolicyDocument:
    """Parses the override of a session or request. Raises InvalidPolicy, which names only known keys."""
    try:
        data = json.loads(text, parse_float=_number)
    except (ValueError, RecursionError):
        raise InvalidPolicy("`policy` must be well-formed JSON.") from None
    if not isinstance(data, dict):
        raise InvalidPolicy("`policy` must be an object of policy keys.")
    document, faults = _read(data)
    if faults:
        raise InvalidPolicy(" ".join(dict.fromkeys(map(_unechoed, faults))))
    return document


def _number(text: str) -> int | float:
    """A JSON number with a point or an exponent; 7.0 is a whole number."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _unechoed(fault: _Fault) -> str:
    """The error text without names that the caller chose, such as a glob: input is not repeated."""
    names = {*_Document.model_fields, *ModelKeys.model_fields, *TenantKeys.model_fields}
    where = ".".join(("policy", *(part for part in fault.path if part in names)))
    rule = unknown_key(fault.path[-1], fault.known) if fault.known else fault.rule
    return f"`{where}`: {rule}."


@lru_cache(maxsize=16)
def line_numbers(text: str) -> Mapping[PolicyPath, int]:
    """The line on which each table and key is first set. `text` must be valid TOML."""
    numbers: dict[PolicyPath, int] = {}
    table: PolicyPath = ()
    for number, statement, data in _statements(text):
        if statement.lstrip().startswith("["):
            table = max(_paths(data), key=len)
            paths = [table]
        else:
            paths = [(*table, *path) for path in _paths(data)]
        for path in paths:
            for length in range(1, len(path) + 1):
                numbers.setdefault(path[:length], number)
    return numbers


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The line, text and value of each statement. The time is linear in the length of `text`."""
    start, line, depth = 0, 1, 0
    for token in _TOML_TOKEN.finditer(text + "\n"):
        opening = token[0]
        depth += (opening in "[{") - (opening in "]}")
        if opening != "\n" or depth:
            continue
        statement = text[start : token.end()]
        if data := tomllib.loads(statement):
            # An empty line is a statement without data, so `line` is where this statement begins.
            yield line, statement, data
        line += statement.count("\n")
        start = token.end()


def _paths(value: object) -> Iterator[PolicyPath]:
    """The path to each leaf. An empty table is a leaf."""
    if not isinstance(value, Mapping) or not value:
        yield ()
        return
    for name, inner in value.items():
        for path in _paths(inner):
            yield (name, *path)
