"""The JSON of OpenAI's chat completions and embeddings, written strictly and read leniently; and its
errors."""

import math
import re
import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

import msgspec

from domain.errors import (
    ContextExceeded,
    ModelBadReply,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    PromptDeclined,
    PromptRefused,
)
from domain.llm import LlmTokens, Message, ModelTerms, Prompt, Reply, ToolCall, ToolSpec

# More tool calls than a model needs at a time.
_MOST_CALLS = 64

# A report of the most output tokens has half of these characters. The rest is for thoughts before it.
_MOST_REPLY_CHARS = 1 << 18

# More than any window: a larger number is not a valid count.
_MOST_TOKENS = 100_000_000

MOST_DIMENSIONS = 4096
"""The longest vector of an embedding that is kept: no common model has longer ones."""

_STOP, _FILTERED = "stop", "content_filter"
_STOP_REASONS = (_STOP, "length", "tool_calls", _FILTERED)
"""The stop reasons that keep their name. Another one becomes "other"."""


@dataclass(frozen=True, slots=True)
class RequestDialect:
    """The fields of a request that differ between models."""

    tokens_field: str
    has_temperature: bool


CLASSIC = RequestDialect("max_tokens", has_temperature=True)
REASONING = RequestDialect("max_completion_tokens", has_temperature=False)
"""Dialect of models that think before they answer, which refuse the fields of `CLASSIC`."""


class _Part(msgspec.Struct):
    text: str | None = None


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _WireCall(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_WireCall] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Cached(msgspec.Struct):
    cached_tokens: int | None = None


class _WireUsage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Cached | None = None


class _WireEmbedding(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _EmbeddingUsage(msgspec.Struct):
    prompt_tokens: int


class _Embeddings(msgspec.Struct):
    data: list[_WireEmbedding]
    usage: msgspec.Raw = msgspec.Raw(b"null")


_COMPLETION = msgspec.json.Decoder(_Completion)
_EMBEDDINGS = msgspec.json.Decoder(_Embeddings)
_EMBEDDING_USAGE = msgspec.json.Decoder(_EmbeddingUsage)
_USAGE = msgspec.json.Decoder(_WireUsage)


def request_body(prompt: Prompt, terms: ModelTerms, dialect: RequestDialect) -> bytes:
    request: dict[str, object] = {
        "model": terms.name,
        "messages": [_message_json(message) for message in prompt.messages],
        "stream": False,
        dialect.tokens_field: min(prompt.max_output_tokens, terms.max_output_tokens),
    }
    if dialect.has_temperature:
        request["temperature"] = 0
    if prompt.tools:
        request["tools"] = [_tool_json(tool) for tool in prompt.tools]
    return msgspec.json.encode(request)


def _message_json(message: Message) -> dict[str, object]:
    fields: dict[str, object] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        # Some backends accept no empty text beside calls.
        fields["content"] = message.content or None
        fields["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


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
    stop = _STOP if reason is None else reason if reason in _STOP_REASONS else "other"
    if not text.strip() and not calls:
        if stop == _FILTERED:
            raise PromptDeclined("the backend's content filter withheld the reply")
        if message.refusal:
            raise PromptDeclined("the model declined to answer")
        raise ModelBadReply("the reply is empty")
    return Reply(_ends_of(text), stop, calls, _tokens(completion.usage), received_bytes=len(body))


def _ends_of(text: str) -> str:
    """Drops the middle of a reply that is longer than any report with the thoughts before it."""
    most = _MOST_REPLY_CHARS // 2
    return text if len(text) <= 2 * most else f"{text[:most]}\n…\n{text[-most:]}"


def _call(call: _WireCall, number: int) -> ToolCall:
    return ToolCall(call.id or f"call_{number}", call.function.name, call.function.arguments)


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


_READ_CHARS = 1000

_RETRYABLE = frozenset((408, 409, 425, 429))
_ABOUT_THE_REQUEST = frozenset((400, 413, 422, 500))
_ABOUT_A_FIELD = frozenset((400, 422))

# Patterns of error codes and of messages, in lower case.
_QUOTA_CODES = re.compile("insufficient_quota|billing")
_MODEL_CODES = re.compile("model_not_found|unknown_model")
# LiteLLM's proxy answers 400 to a model and to a key that it does not know.
_MODEL_WORDS = re.compile("invalid model name")
_KEY_CODES = re.compile("invalid_api_key|authentication_error|auth_error|no_db_connection")
_FILTER_CODES = re.compile("content_filter|content_policy")
_CONTEXT_CODES = re.compile("context_length|exceed_context_size")
_CONTEXT_WORDS = re.compile(
    "context (?:length|size|window)|maximum (?:model|prompt) length|too many tokens"
    "|(?:prompt|input) is too long|input token count"
)
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
# The request exceeds what the backend accepts in a minute: a later try would fail as well.
_TOO_MUCH = "request too large"


class _ErrorFields(msgspec.Struct):
    message: str = ""
    code: object = None
    type: object = None
    param: object = None


class _ErrorJson(msgspec.Struct):
    error: _ErrorFields


_ERROR = msgspec.json.Decoder(_ErrorJson)


@dataclass(frozen=True, slots=True)
class Complaint:
    """The contents of an error's body, in lower case."""

    codes: str = ""
    message: str = ""
    parameter: str = ""

    @property
    def is_about_length(self) -> bool:
        return bool(_CONTEXT_CODES.search(self.codes) or _CONTEXT_WORDS.search(self.message))

    @property
    def about_model(self) -> bool:
        return bool(_MODEL_CODES.search(self.codes) or _MODEL_WORDS.search(self.message))

    @property
    def about_key(self) -> bool:
        return bool(_KEY_CODES.search(self.codes))

    @property
    def about_output(self) -> bool:
        """True if it names the field of the output tokens."""
        return any(
            field in text
            for field in (CLASSIC.tokens_field, REASONING.tokens_field)
            for text in (self.parameter, self.message)
        )

    def wants_reasoning(self, status: int) -> bool:
        """Whether the backend refused a field of `CLASSIC`."""
        named = REASONING.tokens_field in self.message or "temperature" in f"{self.parameter} {self.message}"
        return status in _ABOUT_A_FIELD and named


def parse_complaint(body: bytes | bytearray) -> Complaint:
    """Reads the error of OpenAI's API; of another body the text is the message."""
    try:
        error = _ERROR.decode(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Complaint(message=body[:_READ_CHARS].decode(errors="replace").lower())
    return Complaint(f"{_word(error.code)} {_word(error.type)}", _word(error.message), _word(error.param))


def _word(value: object) -> str:
    return value[:_READ_CHARS].lower() if isinstance(value, str) else ""


def failure(status: int, headers: Mapping[str, str], complaint: Complaint) -> ModelError:
    """The error for an answer that is not a success. The names of `headers` are in lower case."""
    if status == 402 or (status == 429 and _QUOTA_CODES.search(complaint.codes)):
        return ModelRefused("quota exhausted", status)
    if _is_too_long(status, complaint):
        return ContextExceeded("the prompt is longer than the model's window")
    if _FILTER_CODES.search(complaint.codes):
        # Only this prompt was refused: another may be answered.
        return PromptDeclined("the backend's content filter refused the prompt")
    if status in _RETRYABLE or status >= 500:
        return ModelUnavailable(f"the backend failed ({status})", retry_after(headers))
    if status in _ABOUT_A_FIELD and complaint.about_output:
        return ModelRefused("the backend refused the number of output tokens: set max_output_tokens", status)
    if status in _ABOUT_A_FIELD and not (complaint.about_model or complaint.about_key):
        return PromptRefused(f"the backend refused the request ({status})")
    return ModelRefused(_refusal(status, complaint), status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The pause in seconds that a backend asks for, not bounded; None if it sends none that is valid."""
    value = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
        # A date without a zone is UTC too.
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _is_too_long(status: int, complaint: Complaint) -> bool:
    if status == 429:
        return _TOO_MUCH in complaint.message
    return status == 413 or (status in _ABOUT_THE_REQUEST and complaint.is_about_length)


def _refusal(status: int, complaint: Complaint) -> str:
    if status < 400:
        return "the backend answered with a redirect"
    if status in (401, 403) or complaint.about_key:
        return "the backend refused the key"
    if complaint.about_model:
        return "unknown model"
    if status == 404:
        return "the backend has no such model or URL"
    return f"the backend refused the request ({status})"
