"""JSON of the hot route, defined once: decoded, encoded and documented from the same structs."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Annotated, NamedTuple, TypeVar

import anyio
import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from app.edge import large_json
from app.edge.large_json import STEP_SECONDS, WRONG_CONTENT, Content, Data, Skeleton, repaired
from domain.decisions import OutcomeKind, Trigger
from domain.errors import BadRequest, InvalidField, unknown_key
from domain.handles import DEFAULT_SESSION
from domain.results import Durability, Measure, UsageReport

T = TypeVar("T")

MAX_POLICY_BYTES = 8192
MAX_CALL_ID = 256
"""Characters of a tool_call_id or an Idempotency-Key. Each entry keeps it twice."""

RAW_BYTES = 1 << 14
INLINE_BYTES = 1 << 16
"""A JSON body up to this size is parsed on the event loop, whatever it holds."""

WHOLE_BYTES = 2 << 20
"""A body up to this size is decoded at once, if its content is a string. That takes at most 5 ms."""

ENVELOPE_BYTES = 2 << 20

Name = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*(?![\s\S])")]
Model = Annotated[str, Meta(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*(?![\s\S])")]
Label = Annotated[str, Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*(?![\s\S])")]
Whole = Annotated[float, Meta(ge=0, le=1_000_000_000, extra_json_schema={"type": "integer"})]
"""A whole number of tokens or turns. Decoded as float, since 7.0 is one in JSON, as on the other routes."""


class UsageIn(Struct, forbid_unknown_fields=True, frozen=True):
    """What the agent says is committed in its context."""

    used_tokens: Whole
    turn: Whole | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not value.is_integer():
                raise ValueError(f"`{name}` must be a whole number")

    @property
    def report(self) -> UsageReport:
        return UsageReport(int(self.used_tokens), None if self.turn is None else int(self.turn))


class _Result(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    tool_name: Name
    session_id: str = DEFAULT_SESSION
    tool_call_id: Annotated[str, Meta(min_length=1, max_length=MAX_CALL_ID)] | None = None
    tool_arguments: Raw | UnsetType = UNSET
    is_error: bool = False
    provider: Label | None = None
    tool_kind: Label | None = None
    tool_namespace: Label | None = None
    latency_ms: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    model: Model | None = None
    context: UsageIn | None = None
    policy: Raw | UnsetType = UNSET


class ResultIn(_Result, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One tool result. `content` is a string, or a list of MCP content blocks."""

    content: Raw


class TextResultIn(_Result, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The same, its content a string and decoded at once."""

    content: str


# Not frozen: a frozen one takes three times as long to build, for every result.
@dataclass(slots=True)
class BudgetOut:
    """A budget with what is computed from it."""

    limit_tokens: int
    used_tokens: int
    reserved_tokens: int
    remaining_tokens: int
    exhausted: bool
    enforced: bool


class ResultOut(Struct, frozen=True):
    """What became of the result, and what the model is to read: `content`."""

    outcome: OutcomeKind
    content: Raw | UnsetType
    complete: bool
    trigger: Trigger | None
    handle: str | None
    measure: Measure
    budget: BudgetOut
    truncated_bytes: int | None
    truncated_total: int | None
    durability: Durability | None
    degraded: bool
    entry_id: str
    warnings: tuple[str, ...]


_decode = msgspec.json.Decoder(ResultIn).decode
_decode_text = msgspec.json.Decoder(TextResultIn).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
encode = msgspec.json.Encoder().encode

_KNOWN = {"": ResultIn.__struct_fields__, "context": UsageIn.__struct_fields__}
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(.*)`")

SURROGATE_WARNING = "The content held lone surrogates; each was replaced by U+FFFD."


class Sent(NamedTuple):
    """A request of POST /results. `content` is also the raw JSON in `fields`, unless the body is large."""

    fields: ResultIn | TextResultIn
    content: str | Content
    warnings: tuple[str, ...]


def read_result(body: bytes | bytearray) -> Sent:
    """Reads a body of up to INLINE_BYTES. Raises BadRequest for what is not JSON, InvalidField for a wrong
    field."""
    try:
        return _read_small(body)
    except _NotText:
        return _from_skeleton(_scanned(body))
    except BadRequest:
        mended = repaired(bytes(body))
        if mended == body:
            raise
        return _read_small(mended)._replace(warnings=(SURROGATE_WARNING,))


async def read_large(body: bytes | bytearray, turns: anyio.CapacityLimiter) -> Sent:
    """Reads a body of any size on the event loop, which serves others between two slices: a thread would
    hold the interpreter all the same, and be waited for longer. Raises as `read_result`."""
    skeleton = Skeleton(body)
    more = True
    while more:
        async with turns:
            until = perf_counter() + STEP_SECONDS
            while (more := skeleton.scan()) and perf_counter() < until:
                pass
    async with turns:
        return _from_skeleton(skeleton)


def read_text(body: bytes | bytearray) -> Sent | None:
    """The request, if it is in order and its content is a string; None leaves the body to `read_large`.
    Takes at most 5 ms, and of 100 KB a tenth of what a hop to a thread costs: call it on the event loop."""
    if len(body) > WHOLE_BYTES:
        return None
    try:
        text = _decode_text(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Sent(text, text.content, ())


class _NotText(Exception):
    """The content is no string."""


def _read_small(body: bytes | bytearray) -> Sent:
    # A small content may go back as it came. A larger one is decoded at once, if it is a string.
    if len(body) <= RAW_BYTES:
        fields = checked(_decode, body)
        return Sent(fields, Content(fields.content), ())
    try:
        text = checked(_decode_text, body)
    except InvalidField as error:
        if error.detail == WRONG_CONTENT:
            raise _NotText from None
        raise
    return Sent(text, text.content, ())


def _scanned(body: bytes | bytearray) -> Skeleton:
    skeleton = Skeleton(body)
    while skeleton.scan():
        pass
    return skeleton


def _from_skeleton(skeleton: Skeleton) -> Sent:
    members = checked(_decode_members, skeleton.text)
    content, size, parts = members.pop("content", None), 0, []
    for name, value in members.items():
        original = skeleton.original(value).tobytes()
        size += len(original)
        if size > ENVELOPE_BYTES:
            raise InvalidField("All fields but `content` together must be at most 2 MiB.")
        parts.append(b"%b:%b" % (encode(name), original))
        if name not in _KNOWN[""]:
            break  # Refused below; there may be many more.
    if content is not None:
        parts.append(b'"content":""')
    envelope = b"{%b}" % b",".join(parts)
    warnings: tuple[str, ...] = ()
    try:
        fields = checked(_decode, envelope)
    except BadRequest:
        mended = repaired(envelope)
        fields, warnings = checked(_decode, mended), (SURROGATE_WARNING,)
    assert content is not None
    return Sent(fields, Content(content, skeleton), warnings)


def checked(decode: Callable[[Data], T], data: Data) -> T:
    """Decodes; every failure is one of ours, and none of them repeats the input."""
    return large_json.checked(decode, data, _rule)


def _rule(message: str) -> str:
    return rule_of(message, _KNOWN)


def rule_of(message: str, known: Mapping[str, Sequence[str]]) -> str:
    """msgspec's message with the object at fault named. `known`: the fields of each object, by its path; that
    of the whole is ""."""
    rule, _, where = message.partition(" - at ")
    path = where.strip("`").removeprefix("$").removeprefix(".")
    owner = f"`{path}`" if path else "The body"
    if path == "content":
        return WRONG_CONTENT
    if path.rpartition(".")[2] in UsageIn.__struct_fields__:
        rule = rule.replace("`float", "`int").removesuffix(".0")
    if match := _UNKNOWN_FIELD.match(rule):
        return f"{owner}: {unknown_key(match[1], known.get(path, ()))}."
    if match := _MISSING_FIELD.match(rule):
        return f"{owner} lacks the field `{match[1]}`."
    return f"{owner}: {rule[:1].lower()}{rule[1:]}."
