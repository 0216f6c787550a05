"""JSON of the hot route, defined once: decoded, encoded and documented from the same structs."""

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from content.utf8 import decoded
from domain.errors import BadRequest, InvalidField, InvalidUtf8
from domain.handles import DEFAULT_SESSION

T = TypeVar("T")
Data = bytes | bytearray | memoryview | Raw

MAX_POLICY_BYTES = 8192
MAX_CALL_ID = 256
"""Characters of a tool_call_id or an Idempotency-Key. Each entry keeps it twice."""

_QUOTE, _BRACKET = b'"['

RAW_BYTES = 1 << 14
WHOLE_BYTES = 2 << 20
"""A JSON body up to this size is parsed on the event loop."""

PIECE_BYTES = 1 << 18
"""How much of a JSON string is unescaped at a time."""

Name = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*(?![\s\S])")]
Model = Annotated[str, Meta(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*(?![\s\S])")]
Label = Annotated[str, Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*(?![\s\S])")]
Blocks = Annotated[list[Raw], Meta(max_length=10_000)]
Content = Raw | str | list[Raw]
Tokens = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class UsageIn(Struct, forbid_unknown_fields=True, frozen=True):
    """What the agent says is committed in its context."""

    used_tokens: Tokens
    turn: Annotated[int, Meta(ge=0, le=1_000_000_000)] | None = None


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


class WholeResultIn(_Result, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The same, its content decoded at once."""

    content: str | Blocks


class Block(Struct, frozen=True):
    """An MCP content block, as far as governing needs to know it."""

    type: str
    text: Raw | UnsetType = UNSET


class MeasureOut(Struct, frozen=True):
    bytes: int
    lines: int
    chars: int
    tokens: int
    tokens_exact: bool


class BudgetOut(Struct, frozen=True):
    limit_tokens: int
    used_tokens: int
    reserved_tokens: int
    remaining_tokens: int
    exhausted: bool
    enforced: bool


class ResultOut(Struct, frozen=True):
    """What became of the result, and what the model is to read: `content`."""

    outcome: Literal["pass", "store", "truncate", "cap", "reject"]
    content: Raw | UnsetType
    complete: bool
    trigger: Literal["size_cap", "token_budget", "reserve_failed"] | None
    handle: str | None
    measure: MeasureOut
    budget: BudgetOut
    truncated_bytes: int | None
    truncated_total: int | None
    durability: Literal["disk", "aof", "memory"] | None
    degraded: bool
    entry_id: str
    warnings: tuple[str, ...]


_decode = msgspec.json.Decoder(ResultIn).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_whole = msgspec.json.Decoder(WholeResultIn).decode
_decode_list = msgspec.json.Decoder(Blocks).decode
_decode_block = msgspec.json.Decoder(Block).decode
encode = msgspec.json.Encoder().encode

# Runs of escaped backslashes are taken whole: what follows one is no escape. All begins with one backslash:
# to that the search leaps, and a large body that is malformed otherwise holds up nobody.
_SURROGATE = re.compile(
    rb"\\(?:\\(?:\\\\)*+|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2}))"
)
# Up to a byte that can be no part of an escape (no backslash, no letter that follows one, no hex digit), or
# up to the end of an escape whose backslash has none before it.
_NEAR = 256
_PLAIN = re.compile(
    rb".*(?:[ !#-.:-@G-[\]-`g-mo-qsv-~]"
    rb'|(?<!\\)\\(?:[nrtbf"/]|u(?![dD][89abAB])[0-9a-fA-F]{4}))',
    re.DOTALL,
)
# Whole escapes only; a high surrogate waits for what follows it.
_WHOLE = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[0-9a-fA-F]{4}|(?=[^\\]))"
    rb"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*+",
)

_WRONG_CONTENT = "`content` must be a string or a list of at most 10,000 content blocks."
SURROGATE_WARNING = "The content held lone surrogates; each was replaced by U+FFFD."


def read_result(body: bytes | bytearray) -> tuple[ResultIn | WholeResultIn, tuple[str, ...]]:
    """The request and warnings. Raises BadRequest for what is not JSON, InvalidField for a wrong field."""
    # A small content may go back as it came; a large one would be held twice; one in between is read once.
    whole = RAW_BYTES < len(body) <= WHOLE_BYTES
    decode: Callable[[Data], ResultIn | WholeResultIn] = _decode_whole if whole else _decode
    sent: ResultIn | WholeResultIn
    try:
        sent = checked(decode, body)
        return sent, ()
    except BadRequest:
        # JavaScript slices strings between surrogates and sends the halves.
        repaired, _ = _SURROGATE.subn(_mended, body)
        if repaired == body:
            raise
        sent = checked(decode, repaired)
        return sent, (SURROGATE_WARNING,)


def _mended(found: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if found[1] else found[0]


def checked(decode: Callable[[Data], T], data: Data) -> T:
    """Decodes; every failure is one of ours, and none of them repeats the input."""
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        raise InvalidField(_rule(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise InvalidUtf8("The body must be UTF-8.") from None
        raise BadRequest("The body is not well-formed JSON.") from None
    except RecursionError:
        raise BadRequest("The body is nested too deeply.") from None


def _rule(message: str) -> str:
    if message.startswith("Object contains unknown field"):
        known = UsageIn if "`$.context`" in message else ResultIn
        return f"A field is not known here. Known are: {', '.join(known.__struct_fields__)}."
    return _WRONG_CONTENT if message.endswith("`$.content`") else f"{message}."


def read_pieces(content: Content) -> Iterator[str]:
    """A content's text, a piece at a time, so that a large one is never held decoded. At most 10,000 blocks.

    A string is unescaped; of blocks, text is taken as it is and any other block as its JSON, one to a line.
    """
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from _blocks(content)
    elif (view := memoryview(content))[0] == _QUOTE:
        yield from _unescaped(view)
    elif view[0] == _BRACKET:
        yield from _blocks(checked(_decode_list, content))
    else:
        raise InvalidField(_WRONG_CONTENT)


def _blocks(blocks: list[Raw]) -> Iterator[str]:
    for number, block in enumerate(blocks):
        if number:
            yield "\n"
        yield from _block(block)


def _block(raw: Raw) -> Iterator[str]:
    block = checked(_decode_block, raw)
    if block.type != "text":
        yield decoded(bytes(raw))
    elif block.text is UNSET or memoryview(block.text)[0] != _QUOTE:
        raise InvalidField("A content block of type text must have its `text`, a string.")
    else:
        yield from _unescaped(memoryview(block.text))


def _unescaped(literal: memoryview) -> Iterator[str]:
    if len(literal) <= PIECE_BYTES:
        yield checked(_decode_text, literal)
        return
    position, end = 1, len(literal) - 1
    while position < end:
        stop = min(position + PIECE_BYTES, end)
        if stop < end:
            stop = _safe_cut(literal, position, stop)
        yield checked(_decode_text, b'"%b"' % literal[position:stop].tobytes())
        position = stop


def _safe_cut(literal: memoryview, position: int, stop: int) -> int:
    """Where to cut so that neither an escape nor a character is cut in two."""
    if near := _PLAIN.match(literal, stop - _NEAR, stop):
        return near.end()
    match = _WHOLE.match(literal, position, stop)
    return _character_end(literal, match.end() if match and match.end() > position else stop)


def _character_end(literal: memoryview, stop: int) -> int:
    """The end of the last whole UTF-8 character before `stop`."""
    start = stop
    while start > stop - 4 and literal[start] & 0xC0 == 0x80:
        start -= 1
    return start
