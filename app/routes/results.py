"""POST /results: governs one result, sent as JSON or streamed as text."""

from collections.abc import AsyncIterator, Iterator
from time import perf_counter
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import UNSET, Raw
from starlette.types import Message

from app.api.accept import prefers
from app.api.answers import JsonAnswer, result_out, spillgate_headers
from app.api.openapi import SESSION_ID, body_of, schema_of
from app.api.routing import traits
from app.api.wire import (
    INLINE_BYTES,
    MAX_CALL_ID,
    MAX_POLICY_BYTES,
    SURROGATE_WARNING,
    ResultIn,
    ResultOut,
    TextResultIn,
    UsageIn,
    encode,
    read_large,
    read_result,
    read_text,
    rule_of,
)
from app.edge.large_json import STEP_SECONDS, Content
from app.edge.request_body import ClientDisconnected
from app.governing.governor import Governed, govern
from app.runtime import Runtime
from domain.errors import (
    BadRequest,
    Conflict,
    IdempotencyKeyReused,
    InvalidField,
    InvalidPolicy,
    InvalidUtf8,
    SessionEnded,
    TooManySessions,
    UnsupportedMedia,
)
from domain.handles import DEFAULT_SESSION, SessionKey, checked_session_id
from domain.results import ToolResult

router = APIRouter(tags=["results"])

Headers = dict[bytes, bytes]

COALESCED_BYTES = 1 << 18
PIECE_CHARS = 1 << 16
MAX_ARGUMENT_BYTES = 1 << 20

_SHAPE = {
    "session_id": {"type": "string", "default": DEFAULT_SESSION, **SESSION_ID},
    "content": {
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}}}},
        ],
        "description": "A string, or a list of MCP content blocks.",
    },
    "tool_arguments": {
        "anyOf": [{"type": "object"}, {"type": "string"}],
        "description": "Kept verbatim.",
    },
    "policy": {"type": "object", "description": "Policy keys for this result alone."},
}


@router.post(
    "/results",
    response_class=Response,
    summary="Govern one tool result",
    responses={
        200: schema_of(
            ResultOut,
            "Nothing was stored: `content` is the result, byte for byte (`pass`), or what replaces it.",
            "pass",
        ),
        201: schema_of(ResultOut, "It was stored: `content` is what the model reads instead.", "store"),
    },
    openapi_extra=body_of(ResultIn, _SHAPE, "result"),
)
@traits(
    writes=True,
    carries_results=True,
    raises=(InvalidUtf8, Conflict, IdempotencyKeyReused, InvalidPolicy, SessionEnded, TooManySessions),
)
async def post_result(request: Request) -> Response:
    headers: Headers = dict(request.scope["headers"])
    media = headers.get(b"content-type", b"application/json").decode("latin-1").partition(";")
    kind = media[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return await _from_json(request, headers)
    if kind.startswith("text/"):
        if _charset(media[2]) not in ("", "utf-8", "utf8", "us-ascii"):
            raise UnsupportedMedia("Text must be UTF-8: convert it first, e.g. with iconv -t utf-8.")
        return await _from_text(request, headers)
    raise UnsupportedMedia(
        "Send JSON as application/json, or the raw result as text/plain with its fields in the query."
    )


async def _from_json(request: Request, headers: Headers) -> Response:
    if request.scope["query_string"]:
        raise InvalidField("With a JSON body there are no query parameters: put the fields into the body.")
    body = await _read(request)
    rt: Runtime = request.app.state.runtime
    is_large = len(body) > INLINE_BYTES
    sent = read_text(body) if is_large else read_result(body)
    if sent is None:
        sent = await read_large(body, rt.parsing)
    content = sent.content
    result = _tool_result(request, headers, sent.fields)
    governed = await govern(result, _pieces(content, is_large, rt), rt)
    if governed.outcome.text is None and _wants_text(headers):
        whole = "".join([piece async for piece in _pieces(content, is_large, rt)])
        governed = governed._replace(content=whole.encode())
    warnings = sent.warnings
    if isinstance(content, Content) and content.had_surrogates and not warnings:
        warnings = (SURROGATE_WARNING,)
    return _answer(headers, governed, content, warnings)


async def _read(request: Request) -> bytes | bytearray:
    """All of the body. Starlette's own stream costs a small result three microseconds more."""
    message = await _more(request)
    if not message.get("more_body", False):
        first: bytes = message.get("body", b"")
        return first
    # Grown in place: joined at the end, a large body would be held twice.
    body = bytearray(message.get("body", b""))
    while message.get("more_body", False):
        message = await _more(request)
        body += message.get("body", b"")
    return body


async def _more(request: Request) -> Message:
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message


async def _from_text(request: Request, headers: Headers) -> Response:
    result = _tool_result(request, headers, _from_query(request))
    read_back = None if _is_minimal(headers) else request.scope["request_body"].hold
    governed = await govern(result, _coalesced(request), request.app.state.runtime, read_back)
    return _answer(headers, governed, None, ())


async def _pieces(content: str | Content, is_large: bool, rt: Runtime) -> AsyncIterator[str]:
    if isinstance(content, str):
        yield content
        return
    if not is_large and (whole := content.small_text()) is not None:
        if whole:
            yield whole
        return
    pieces = content.pieces()
    if not is_large:
        while some := _next_pieces(pieces):
            yield some
        return
    while True:
        async with rt.parsing:
            some = _next_pieces(pieces)
        if not some:
            return
        yield some


def _next_pieces(pieces: Iterator[str]) -> str:
    """What is read of them in STEP_SECONDS, about PIECE_CHARS at most; "" when there are no more."""
    taken: list[str] = []
    size, until = 0, perf_counter() + STEP_SECONDS
    for piece in pieces:
        taken.append(piece)
        size += len(piece)
        if size >= PIECE_CHARS or (size and perf_counter() >= until):
            break
    return "".join(taken)


async def _coalesced(request: Request) -> AsyncIterator[bytes]:
    """The body in fewer, larger chunks; what was taken on is no longer held against the request."""
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


def _from_query(request: Request) -> ResultIn:
    """The same fields as query parameters; `context` and `policy` as JSON, or `used_tokens` and `turn`."""
    query: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in query:
            raise InvalidField("A query parameter is given twice. Send each once.")
        query[name] = value
    if "content" in query:
        raise InvalidField("`content` is the body here, not a query parameter.")
    usage = {name: query.pop(name) for name in ("used_tokens", "turn") if name in query}
    if usage:
        query["context"] = usage
    for name in ("context", "policy"):
        if isinstance(query.get(name), str):
            query[name] = _json_in_query(name, query[name])
    if "tool_arguments" in query:
        query["tool_arguments"] = Raw(msgspec.json.encode(query["tool_arguments"]))
    if isinstance(query.get("context"), Raw):
        query["context"] = _usage_in_query(query["context"])
    query["content"] = Raw(b'""')
    try:
        return msgspec.convert(query, ResultIn, strict=False)
    except msgspec.ValidationError as error:
        fields = (*ResultIn.__struct_fields__, *UsageIn.__struct_fields__)
        known = [name for name in fields if name != "content"]
        rule = rule_of(str(error), {"": known, "context": UsageIn.__struct_fields__})
        raise InvalidField(rule.replace("The body", "The query", 1)) from None


def _json_in_query(name: str, text: str) -> Raw:
    try:
        return msgspec.json.decode(text, type=Raw)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        raise InvalidField(f"In the query, `{name}` must be well-formed JSON.") from None


def _usage_in_query(text: Raw) -> UsageIn:
    try:
        return msgspec.json.decode(text, type=UsageIn)
    except msgspec.ValidationError as error:
        rule = rule_of(str(error), {"": UsageIn.__struct_fields__})
        raise InvalidField(rule.replace("The body", "`context`", 1)) from None


def _tool_result(request: Request, headers: Headers, sent: ResultIn | TextResultIn) -> ToolResult:
    arguments = _text_of(sent.tool_arguments, MAX_ARGUMENT_BYTES, "tool_arguments")
    if arguments is not None and arguments.startswith('"'):
        arguments = msgspec.json.decode(arguments, type=str)
    policy = _text_of(sent.policy, MAX_POLICY_BYTES, "policy")
    context = sent.context
    return ToolResult(
        key=SessionKey(request.scope["tenant"], checked_session_id(sent.session_id)),
        tool_name=sent.tool_name,
        call_id=sent.tool_call_id or _idempotency_key(headers),
        tool_arguments=arguments,
        is_error=sent.is_error,
        provider=sent.provider,
        tool_kind=sent.tool_kind,
        tool_namespace=sent.tool_namespace,
        latency_ms=sent.latency_ms,
        model=sent.model,
        context=None if context is None else context.report,
        policy=policy,
    )


def _idempotency_key(headers: Headers) -> str | None:
    key = headers.get(b"idempotency-key")
    if key is None:
        return None
    if not 0 < len(key) <= MAX_CALL_ID:
        raise InvalidField(f"Idempotency-Key must be 1 to {MAX_CALL_ID} characters.")
    return key.decode("latin-1")


def _text_of(raw: Raw | msgspec.UnsetType, most: int, field: str) -> str | None:
    if raw is UNSET:
        return None
    view = memoryview(raw)
    if len(view) > most:
        raise InvalidField(f"`{field}` must be at most {most} bytes.")
    try:
        text = view.tobytes().decode()
    except UnicodeDecodeError:
        raise BadRequest("The body must be UTF-8.") from None
    if text == "null":
        return None
    if field == "tool_arguments" and text[0] not in '"{':
        raise InvalidField("`tool_arguments` must be an object or a string.")
    return text


def _is_minimal(headers: Headers) -> bool:
    return b"return=minimal" in headers.get(b"prefer", b"").lower() and not _wants_text(headers)


def _wants_text(headers: Headers) -> bool:
    return prefers(headers.get(b"accept", b"").decode("latin-1"), "text/plain")


def _answer(
    headers: Headers, governed: Governed, sent: str | Content | None, repairs: tuple[str, ...]
) -> Response:
    """`repairs` say how the content that was governed differs from the content that was sent."""
    outcome = governed.outcome
    status = 200 if outcome.handle is None else 201
    more = {} if outcome.handle is None else {"Location": f"/results/{outcome.handle}"}
    if _wants_text(headers):
        more |= spillgate_headers(outcome, repairs)
        text = governed.content if outcome.text is None else outcome.text.encode()
        assert text is not None
        return Response(text, status, more, media_type="text/plain; charset=utf-8")
    if outcome.text is not None:
        content: Raw | msgspec.UnsetType = Raw(encode(outcome.text))
    elif _is_minimal(headers):
        content = UNSET
        more["Preference-Applied"] = "return=minimal"
    elif sent is not None:
        content = Raw(encode(sent)) if isinstance(sent, str) else sent.as_it_came()
    else:
        assert governed.content is not None
        content = Raw(encode(governed.content.decode()))
    return JsonAnswer(encode(result_out(outcome, content, repairs)), status, more)
