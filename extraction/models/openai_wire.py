"""The JSON of OpenAI-compatible chat completions and embeddings: written exactly, read leniently."""

import math
from array import array
from dataclasses import dataclass

import msgspec

from domain.errors import ModelBadReply, PromptDeclined
from domain.llm import LlmTokens, Message, ModelTerms, Prompt, Reply, ToolCall, ToolSpec

# More tool calls than a model needs at a time.
_MOST_CALLS = 64

# More than any window: a larger number is not a valid count.
_MOST_TOKENS = 100_000_000

MOST_DIMENSIONS = 4096
"""The longest vector of an embedding that is kept: no common model has longer ones."""

_STOP = "stop"
_FILTERED = "content_filter"
# Stop reasons of backends, and their names here. Others become "other".
_STOP_REASONS = {
    **dict.fromkeys(("stop", "end_turn", "eos"), _STOP),
    **dict.fromkeys(("length", "max_tokens"), "length"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), "tool_calls"),
    _FILTERED: _FILTERED,
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences between backends. `most_output_tokens` is None until a backend complains."""

    tokens_field: str = "max_tokens"
    has_temperature: bool = True
    most_output_tokens: int | None = None


class _Part(msgspec.Struct):
    text: str | None = None


class _Function(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Cached(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Cached | None = None


class _Embedding(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _EmbeddingUsage(msgspec.Struct):
    prompt_tokens: int


class _Embeddings(msgspec.Struct):
    data: list[_Embedding]
    usage: msgspec.Raw = msgspec.Raw(b"null")


_COMPLETION = msgspec.json.Decoder(_Completion)
_EMBEDDINGS = msgspec.json.Decoder(_Embeddings)
_EMBEDDING_USAGE = msgspec.json.Decoder(_EmbeddingUsage)
_USAGE = msgspec.json.Decoder(_Usage)
_TEXT = msgspec.json.Decoder(str)


def output_tokens(prompt: Prompt, terms: ModelTerms, dialect: Dialect) -> int:
    """What the request allows the answer to have."""
    most = min(prompt.max_output_tokens, terms.max_output_tokens)
    return most if dialect.most_output_tokens is None else min(most, dialect.most_output_tokens)


def request_body(prompt: Prompt, terms: ModelTerms, dialect: Dialect) -> bytes:
    request: dict[str, object] = {
        "model": terms.name,
        "messages": [_message_json(message) for message in prompt.messages],
        "stream": False,
        dialect.tokens_field: output_tokens(prompt, terms, dialect),
    }
    if dialect.has_temperature:
        request["temperature"] = 0
    if prompt.tools:
        request["tools"] = [_tool_json(tool) for tool in prompt.tools]
    return msgspec.json.encode(request)


def _message_json(message: Message) -> dict[str, object]:
    given: dict[str, object] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        # Some backends accept no empty text beside calls.
        given["content"] = message.content or None
        given["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        given["tool_call_id"] = message.tool_call_id
    return given


def _tool_json(tool: ToolSpec) -> dict[str, object]:
    parameters = msgspec.Raw(tool.parameters.encode())
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def parse_reply(body: bytes | bytearray) -> Reply:
    """Raises ModelBadReply for a reply without text and calls, PromptDeclined if the model declined."""
    try:
        completion = _COMPLETION.decode(body)
        if not completion.choices or (message := completion.choices[0].message) is None:
            raise ModelBadReply("the reply has no choices")
        if message.tool_calls and len(message.tool_calls) > _MOST_CALLS:
            raise ModelBadReply("the reply calls too many tools")
        calls = tuple(_call(call, number) for number, call in enumerate(message.tool_calls or ()))
    except msgspec.ValidationError:
        raise ModelBadReply("the reply is not a chat completion") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ModelBadReply("the reply is not JSON") from None
    content = message.content or ""
    text = content if isinstance(content, str) else "".join(part.text or "" for part in content)
    reason = completion.choices[0].finish_reason
    stop = _STOP if reason is None else _STOP_REASONS.get(reason.lower(), "other")
    if not text.strip() and not calls:
        if stop == _FILTERED:
            raise PromptDeclined("the backend's content filter withheld the reply")
        if message.refusal:
            raise PromptDeclined("the model declined to answer")
        raise ModelBadReply("the reply is empty")
    return Reply(text, stop, calls, _tokens(completion.usage))


def _call(call: _Call, number: int) -> ToolCall:
    arguments = bytes(call.function.arguments)
    # Some write the arguments as an object instead of as text.
    text = _TEXT.decode(arguments) if arguments.startswith(b'"') else arguments.decode()
    return ToolCall(call.id or f"call_{number}", call.function.name, text)


def _tokens(usage: msgspec.Raw) -> LlmTokens | None:
    try:
        used = _USAGE.decode(usage)
    except msgspec.MsgspecError:
        return None
    read, written, details = used.prompt_tokens, used.completion_tokens, used.prompt_tokens_details
    if not (0 < read <= _MOST_TOKENS and 0 <= written <= _MOST_TOKENS):
        return None
    cached = (details.cached_tokens if details else None) or 0
    return LlmTokens(read, written, max(0, min(cached, read)))


def embeddings_body(prompt: Prompt, terms: ModelTerms) -> bytes:
    return msgspec.json.encode({"model": terms.name, "input": [one.content for one in prompt.messages]})


def parse_embeddings(body: bytes | bytearray, count: int) -> Reply:
    """Raises ModelBadReply unless the reply holds `count` vectors of one length, without zeros only."""
    try:
        decoded = _EMBEDDINGS.decode(body)
    except msgspec.ValidationError:
        raise ModelBadReply("the reply is no list of embeddings") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ModelBadReply("the reply is not JSON") from None
    data = decoded.data
    if len(data) != count:
        raise ModelBadReply("the reply has another number of embeddings than was asked for")
    if len({one.index for one in data}) == count:
        # Some backends number all of them 0: those are in the order of the request.
        data.sort(key=lambda one: one.index)
    dimensions = {len(one.embedding) for one in data}
    if len(dimensions) != 1 or not 0 < max(dimensions) <= MOST_DIMENSIONS:
        raise ModelBadReply("the embeddings have a wrong number of dimensions")
    vectors = tuple(_unit(one.embedding) for one in data)
    try:
        read = _EMBEDDING_USAGE.decode(decoded.usage).prompt_tokens
    except msgspec.MsgspecError:
        read = 0
    return Reply("", _STOP, (), LlmTokens(read) if 0 < read <= _MOST_TOKENS else None, vectors=vectors)


def _unit(vector: list[float]) -> "array[float]":
    length = math.hypot(*vector)
    if not 0 < length < math.inf:
        raise ModelBadReply("an embedding has no direction")
    return array("f", [value / length for value in vector])
