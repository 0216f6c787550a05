"""A request of POST /results, parsed: from JSON, or from a query with the result as the text body."""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, NamedTuple

import anyio
import msgspec
from fastapi import Request
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.types import Receive, Scope

from app.http.api.answers import MAX_BLOCKS, prefers
from app.http.api.request_body import read_body
from beside.hooks.agents import DOORS
from content.json_text import (
    WHOLE_BYTES,
    check_utf8,
    checked,
    count_values,
    decode_list,
    decoded,
    is_string,
    text_of,
)
from content.threads import LONG_BYTES, in_thread_if_long
from domain.doors import Door
from domain.errors import BadRequest, InvalidField, UnsupportedMedia, unknown_key
from domain.handles import DEFAULT_SESSION, SessionKey, checked_session_id
from domain.library_errors import msgspec_rule, types_in_words
from domain.results import MAX_ARGUMENT_BYTES, ToolResult, UsageReport
from domain.structs import frozen_struct

Headers = Mapping[bytes, bytes]

MAX_POLICY_BYTES = 8192
MAX_CALL_ID = 256
"""Characters of a tool_call_id or an Idempotency-Key. Each entry keeps it twice."""

MAX_BLOCK_VALUES = 250_000
"""The most values in a list of content blocks."""

WRONG_CONTENT = "`content` must be a string or a list of at most 10,000 content blocks."

COALESCED_BYTES = 1 << 18

_BRACKET = ord("[")
SURROGATE_WARNING = "The content held lone surrogates; each was replaced by U+FFFD."

ToolName = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*(?![\s\S])")]
ModelName = Annotated[str, Meta(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*(?![\s\S])")]
ToolPrefix = Annotated[str, Meta(max_length=100, pattern=r"^[A-Za-z0-9_.-]*(?![\s\S])")]
Label = Annotated[str, Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*(?![\s\S])")]
DoorName = Annotated[
    str, Meta(pattern=rf"^({'|'.join(DOORS)})(?![\s\S])", extra_json_schema={"enum": list(DOORS)})
]
"""The client through which the result comes: the texts name our tools as that client shows them."""
Quantity = Annotated[float, Meta(ge=0, le=1_000_000_000)]
"""A whole number of tokens or turns. Decoded as float, since 7.0 is one in JSON, as on the other routes."""


class UsageIn(Struct, forbid_unknown_fields=True, frozen=True):
    """The usage report: what is committed in the model's context."""

    used_tokens: Quantity
    turn: Quantity | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not value.is_integer():
                raise ValueError(f"`{name}` must be a whole number")

    @property
    def report(self) -> UsageReport:
        return UsageReport(int(self.used_tokens), None if self.turn is None else int(self.turn))


_WHOLE = {"minimum": 0, "maximum": 1_000_000_000}
USAGE_SHAPE = {
    "used_tokens": {"type": "integer", **_WHOLE, "description": "Tokens in the context."},
    "turn": {
        "type": ["integer", "null"],
        **_WHOLE,
        "description": "Counted up each time the context has grown.",
    },
}
"""The fields of a usage report in the OpenAPI document."""


class ResultIn(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One tool result. `content` is a string, or a list of MCP content blocks."""

    tool_name: ToolName
    session_id: str = DEFAULT_SESSION
    tool_call_id: Annotated[str, Meta(min_length=1, max_length=MAX_CALL_ID)] | None = None
    tool_arguments: Raw | UnsetType = UNSET
    is_error: bool = False
    provider: Label | None = None
    tool_kind: Label | None = None
    tool_namespace: Label | None = None
    latency_ms: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    truncated_total: Annotated[int, Meta(ge=0, le=1 << 50)] | None = None
    model: ModelName | None = None
    context: UsageIn | None = None
    policy: Raw | UnsetType = UNSET
    door: DoorName | None = None
    client: Label | None = None
    project: Label | None = None
    tool_prefix: ToolPrefix | None = None
    passes_on: Literal["any", "server"] | None = None
    content: Raw


SENTENCES = {
    "tool_name": "The tool that returned the result. The policy for it is chosen by this name.",
    "session_id": "The agent's run: its budget, and the results that are deleted with it.",
    "tool_call_id": "Names the call. The same call again gets the same answer, and is accounted once.",
    "tool_arguments": "What the tool was given: an object, or a string that is kept verbatim.",
    "is_error": "The tool failed: the entry has the status `failed`.",
    "provider": "For logs and accounting.",
    "tool_kind": "For logs and accounting. `file`, `grep`, `glob`, `shell`, `web_fetch` and `web_search` "
    "choose the hints; `other` has none.",
    "tool_namespace": "The server of the tool, for logs and accounting. Default: split from `tool_name`.",
    "latency_ms": "How long the tool ran, for the accounting.",
    "truncated_total": "Rows or matches that the tool found, where it returned fewer of them.",
    "model": "Chooses the tokenizer, and the window where it is known. Default: the session's model.",
    "context": "The usage report: the tokens that are committed in the model's context. In a query, JSON.",
    "policy": "Policy keys for this result alone. In a query, JSON.",
    "door": "The client through which the result comes. The texts name our tools as it shows them.",
    "client": "For the accounting: the program whose tools these are. Default: `door`.",
    "project": "For the accounting: what the client works in, such as the name of its folder.",
    "tool_prefix": "What the model sees before the names of our tools, such as `mcp__spillgate__`.",
    "passes_on": "Whose tools the caller asks POST /arguments for: the message says how to hand on.",
    "content": "The result: a string, or a list of MCP content blocks.",
    "used_tokens": "`context.used_tokens`.",
    "turn": "`context.turn`.",
}
"""What each field of a result is, and each parameter of the query, in the OpenAPI document."""


class _TextIn(ResultIn, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """With a string, which is decoded with its body."""

    content: str  # type: ignore[assignment]


class _Content(Struct):
    """Where the content stands in a body that was checked."""

    content: Raw


class _Block(Struct, frozen=True):
    """An MCP content block, as far as governing needs to know it."""

    type: str
    text: Raw | UnsetType = UNSET


_decode = msgspec.json.Decoder(ResultIn).decode
_decode_with_text = msgspec.json.Decoder(_TextIn).decode
_decode_content = msgspec.json.Decoder(_Content).decode
_decode_usage = msgspec.json.Decoder(UsageIn).decode
_PICTURES = frozenset({"image", "image_url", "input_image", "audio", "input_audio"})

_decode_block = msgspec.json.Decoder(_Block).decode

_FIELDS = {"": ResultIn.__struct_fields__, "context": UsageIn.__struct_fields__}
_QUERY = [name for name in (*_FIELDS[""], *_FIELDS["context"]) if name != "content"]
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(.*)`")


@frozen_struct
class ResultRequest:
    """`governed` is the content to govern: a whole text, or chunks that can be read once. `content` is the
    content of a JSON request; it is None for a text body, which is not kept."""

    result: ToolResult
    governed: str | AsyncIterator[bytes | str]
    content: "SentContent | None"
    wants_text: bool
    is_minimal: bool
    hold: Callable[[int], None] | None
    """Reserves memory for that many bytes of a text body that the answer returns. May raise Overloaded. None
    if the content is kept, or the answer does not include it."""

    @property
    def blocks(self) -> Raw | None:
        return None if self.content is None else self.content.blocks

    @property
    def warnings(self) -> tuple[str, ...]:
        """How the governed content differs from what was sent. Complete once the content was read."""
        return () if self.content is None else self.content.warnings


async def read_request(scope: Scope, receive: Receive, parsing: anyio.CapacityLimiter) -> ResultRequest:
    """Parses all of a request but a text body, which is read as it is governed. `parsing` lets one large JSON
    body at a time be parsed. Raises BadRequest, InvalidField, UnsupportedMedia, ClientDisconnected."""
    headers: Headers = scope["by_name"]
    sends_text, wants_text, is_minimal = _forms(*map(headers.get, (b"content-type", b"accept", b"prefer")))
    if sends_text:
        request = Request(scope, receive)
        result = _tool_result(_from_query(request), headers, scope)
        hold = None if is_minimal else scope["request_body"].hold
        return ResultRequest(result, _streamed(request), None, wants_text, is_minimal, hold)
    if scope["query_string"]:
        raise InvalidField("With a JSON body there are no query parameters: put the fields into the body.")
    body = await read_body(scope, receive)
    fields, content = await in_thread_if_long(len(body), _parsed, body, limiter=parsing)
    result = _tool_result(fields, headers, scope)
    return ResultRequest(result, content.governed(), content, wants_text, is_minimal, None)


def read_usage(body: bytes) -> UsageReport:
    """The usage report that is a request's body. Raises BadRequest, InvalidField."""
    check_utf8(body)
    return _usage(body, "The body").report


def _usage(data: bytes | Raw, whole: str) -> UsageIn:
    return checked(_decode_usage, data, partial(_rule_of, fields={"": _FIELDS["context"]}, whole=whole))


class _Forms(NamedTuple):
    """Whether the request brings text, and what the answer is to be: text, or JSON without the content."""

    sends_text: bool
    wants_text: bool
    is_minimal: bool


@lru_cache(maxsize=64)
def _forms(content_type: bytes | None, accept: bytes | None, prefer: bytes | None) -> _Forms:
    """Reads three headers, which a client repeats with each request. Raises UnsupportedMedia."""
    wants_text = prefers((accept or b"").decode("latin-1"), "text/plain")
    is_minimal = not wants_text and b"return=minimal" in (prefer or b"").lower().replace(b'"', b"")
    media_type = b"application/json" if content_type is None else content_type
    media, _, parameters = media_type.decode("latin-1").partition(";")
    kind = media.strip().lower()
    sends_text = kind.startswith("text/")
    if sends_text and _charset(parameters) not in ("", "utf-8", "utf8", "us-ascii"):
        raise UnsupportedMedia("Text must be UTF-8: convert it first, e.g. with iconv -t utf-8.")
    if not sends_text and kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMedia(
            "Send JSON as application/json, or the raw result as text/plain with its fields in the query."
        )
    return _Forms(sends_text, wants_text, is_minimal)


async def _streamed(request: Request) -> AsyncIterator[bytes]:
    """A text body in fewer, larger chunks; a chunk that was taken no longer counts against the request."""
    waiting: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        waiting.append(chunk)
        size += len(chunk)
        if size >= COALESCED_BYTES:
            yield b"".join(waiting)
            request.scope["request_body"].let_go(size)
            waiting.clear()
            size = 0
    if size:
        yield b"".join(waiting)


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "charset":
            return value.strip('"').lower()
    return ""


@frozen_struct
class SentContent:
    """The content of a JSON request: it is governed, and sent back if it passes. `text`: its text, a long one
    as UTF-8. `json`: its JSON, or the body that has it. `pictures` pass beside a replacement."""

    text: str | bytes
    json: Raw | bytes | bytearray
    is_repaired: bool = False
    pictures: tuple[Raw, ...] = ()

    @property
    def literal(self) -> Raw:
        """Its JSON as it came, with U+FFFD in place of each lone surrogate."""
        return self.json if isinstance(self.json, Raw) else _decode_content(self.json).content

    @property
    def warnings(self) -> tuple[str, ...]:
        return (SURROGATE_WARNING,) if self.is_repaired else ()

    def governed(self) -> str | AsyncIterator[bytes]:
        """The whole text if it is short, else its chunks."""
        return self.text if isinstance(self.text, str) else _chunks(self.text)

    @property
    def blocks(self) -> Raw | None:
        """The JSON of content blocks; None for a string."""
        return self.json if isinstance(self.json, Raw) and not is_string(self.json) else None

    @property
    def utf8(self) -> bytes:
        return self.text.encode() if isinstance(self.text, str) else self.text


async def _chunks(text: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(text), COALESCED_BYTES):
        yield text[start : start + COALESCED_BYTES]


def _parsed(body: bytes | bytearray) -> tuple[ResultIn, SentContent]:
    """Raises BadRequest for what is not JSON, InvalidField for a wrong field."""
    if len(body) <= WHOLE_BYTES:
        try:
            sent = _decode_with_text(body)
            return sent, SentContent(sent.content, body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # It is decoded in steps: they know blocks, and name faults.
    fields, is_repaired = decoded(_decode, body, _rule_of)
    content = fields.content
    if is_string(content):
        return fields, SentContent(text_of(content), content, is_repaired)
    return fields, SentContent(_text_of_blocks(content), content, is_repaired, pictures_in(content))


def pictures_in(blocks: Raw | bytes) -> tuple[Raw, ...]:
    """Returns the blocks of a list that are pictures or sounds, whose content no text describes."""
    return tuple(raw for raw in decode_list(blocks) if _decode_block(raw).type in _PICTURES)


def _text_of_blocks(content: Raw) -> str | bytes:
    """The text of each block, with a newline between two; a block of another type is its JSON, and a picture
    is none. Raises InvalidField, InvalidUtf8."""
    if memoryview(content)[0] != _BRACKET or count_values(content) > MAX_BLOCK_VALUES:
        raise InvalidField(WRONG_CONTENT)
    blocks = checked(decode_list, content)
    if len(blocks) > MAX_BLOCKS:
        raise InvalidField(WRONG_CONTENT)
    texts = (_text_of(block, f"`content[{number}]`") for number, block in enumerate(blocks))
    text = b"\n".join(one for one in texts if one is not None)
    return text if len(text) > LONG_BYTES else text.decode()


def _text_of(raw: Raw, path: str) -> bytes | None:
    """Returns the text of a block; None for a picture."""
    block = checked(_decode_block, raw, lambda _: f"{path} must be an object with a `type`, a string.")
    if block.type in _PICTURES:
        return None
    if block.type != "text":
        return bytes(raw)
    if block.text is UNSET or not is_string(block.text):
        raise InvalidField(f"{path} is of type text and lacks the field `text`, a string.")
    text = text_of(block.text)
    return text.encode() if isinstance(text, str) else text


def _from_query(request: Request) -> ResultIn:
    """The same fields as query parameters; `context` and `policy` as JSON, or `used_tokens` and `turn`."""
    query: dict[str, Any] = dict(request.query_params)
    if len(query) < len(request.query_params.multi_items()):
        raise InvalidField("A query parameter is given twice. Send each once.")
    if "content" in query:
        raise InvalidField("`content` is the body here, not a query parameter.")
    usage = {name: query.pop(name) for name in _FIELDS["context"] if name in query}
    if usage and query.setdefault("context", usage) is not usage:
        raise InvalidField("Send `context`, or `used_tokens` and `turn`, not both.")
    try:
        for name in ("context", "policy"):
            if isinstance(query.get(name), str):
                query[name] = msgspec.json.decode(query[name], type=Raw)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        raise InvalidField(f"In the query, `{name}` must be well-formed JSON.") from None
    if isinstance(query.get("context"), Raw):
        query["context"] = _usage(query["context"], "`context`")
    if "tool_arguments" in query:
        query["tool_arguments"] = Raw(msgspec.json.encode(query["tool_arguments"]))
    query["content"] = Raw(b'""')
    try:
        return msgspec.convert(query, type=ResultIn, strict=False)
    except msgspec.ValidationError as error:
        fields = {**_FIELDS, "": _QUERY}
        raise InvalidField(_rule_of(str(error), fields, "The query")) from None


def _rule_of(message: str, fields: Mapping[str, Sequence[str]] = _FIELDS, whole: str = "The body") -> str:
    """msgspec's message with the object at fault named, and types in words. `fields`: those of each object,
    by its path; the path "" is that of the `whole`."""
    path, rule = msgspec_rule(message)
    owner = f"`{path}`" if path else whole
    if path.rpartition(".")[2] in UsageIn.__struct_fields__:
        rule = rule.replace("`float", "`int").removesuffix(".0")
    if match := _UNKNOWN_FIELD.match(rule):
        return f"{owner}: {unknown_key(match[1], fields.get(path, ()))}."
    if match := _MISSING_FIELD.match(rule):
        return f"{owner} lacks the field `{match[1]}`."
    if path == "door" and "matching regex" in rule:
        return f"`door` must be one of {', '.join(DOORS)}."
    return f"{owner}: {types_in_words(rule)}."


def _tool_result(sent: ResultIn, headers: Headers, scope: Scope) -> ToolResult:
    arguments = _json_text(sent.tool_arguments, MAX_ARGUMENT_BYTES, "tool_arguments")
    if arguments is not None:
        if arguments[0] not in '"{':
            raise InvalidField("`tool_arguments` must be an object or a string.")
        if arguments[0] == '"':
            arguments = msgspec.json.decode(arguments, type=str)
    policy = _json_text(sent.policy, MAX_POLICY_BYTES, "policy")
    door = _door(sent, arguments)
    call_id = sent.tool_call_id
    if call_id is None and (key := headers.get(b"idempotency-key")) is not None:
        if not 0 < len(key) <= MAX_CALL_ID:
            raise InvalidField(f"Idempotency-Key must be 1 to {MAX_CALL_ID} characters.")
        call_id = key.decode("latin-1")
    session = SessionKey(scope["tenant"], checked_session_id(sent.session_id))
    scope["logged"]["session_id"] = sent.session_id
    if call_id is not None:
        scope["logged"]["tool_call_id"] = call_id
    return ToolResult(
        session,
        sent.tool_name,
        call_id=call_id,
        tool_arguments=arguments,
        is_error=sent.is_error,
        provider=sent.provider,
        tool_kind=sent.tool_kind,
        tool_namespace=sent.tool_namespace,
        latency_ms=sent.latency_ms,
        truncated_total=sent.truncated_total,
        model=sent.model,
        context=None if sent.context is None else sent.context.report,
        policy=policy,
        door=door,
        client=sent.client or sent.door,
        project=sent.project,
    )


def _door(sent: ResultIn, arguments: str | None) -> Door | None:
    door = None if sent.door is None else DOORS[sent.door].of_call(sent.tool_name, arguments)
    if sent.tool_prefix is not None:
        door = (door or Door())._replace(tool_prefix=sent.tool_prefix)
    return (door or Door())._replace(passes_on=sent.passes_on) if sent.passes_on else door


def policy_text(policy: dict[str, Any]) -> str:
    """The JSON of a policy. Raises InvalidField."""
    text = json.dumps(policy, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    try:
        if len(text.encode()) > MAX_POLICY_BYTES:
            raise InvalidField(f"`policy` must be at most {MAX_POLICY_BYTES} bytes.")
    except UnicodeEncodeError:
        raise InvalidField("`policy` holds a lone surrogate. Send valid Unicode.") from None
    return text


def _json_text(raw: Raw | UnsetType, most: int, field: str) -> str | None:
    if raw is UNSET:
        return None
    view = memoryview(raw)
    if len(view) > most:
        raise InvalidField(f"`{field}` must be at most {most} bytes.")
    try:
        text = view.tobytes().decode()
    except UnicodeDecodeError:
        raise BadRequest("The body must be UTF-8.") from None
    return None if text == "null" else text
