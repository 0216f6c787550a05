"""The JSON of OpenAI-compatible chat completions: written exactly, read leniently."""

from dataclasses import dataclass

import msgspec

from domain.errors import ModelBadReply, PromptDeclined
from domain.llm import LlmTokens, Message, ModelTerms, Prompt, Reply, Role, ToolCall, ToolSpec

# More tool calls than a model needs at a time.
_MOST_CALLS = 64

# More than any window: a larger number is not a valid count.
_MOST_TOKENS = 100_000_000

_STOP = "stop"
_FILTERED = "content_filter"
# Stop reasons of backends, and their names here. Others become "other".
_STOP_REASONS = {
    "stop": _STOP,
    "end_turn": _STOP,
    "eos": _STOP,
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    _FILTERED: _FILTERED,
}
_OTHER_STOP = "other"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences between backends. `most_output_tokens` is None until a backend complains."""

    tokens_field: str = "max_tokens"
    has_temperature: bool = True
    most_output_tokens: int | None = None


class _FunctionOut(msgspec.Struct, omit_defaults=True):
    name: str
    arguments: str | None = None
    description: str | None = None
    parameters: msgspec.Raw | None = None


class _CallOut(msgspec.Struct):
    id: str
    type: str
    function: _FunctionOut


class _ToolOut(msgspec.Struct):
    type: str
    function: _FunctionOut


class _MessageOut(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | None
    tool_calls: list[_CallOut] | None = None
    tool_call_id: str | None = None


class _Request(msgspec.Struct, omit_defaults=True):
    model: str
    messages: list[_MessageOut]
    stream: bool
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: int | None = None
    tools: list[_ToolOut] | None = None


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


_COMPLETION = msgspec.json.Decoder(_Completion)
_USAGE = msgspec.json.Decoder(_Usage)
_TEXT = msgspec.json.Decoder(str)


def output_tokens(prompt: Prompt, terms: ModelTerms, dialect: Dialect) -> int:
    """What the request allows the answer to have."""
    most = min(prompt.max_output_tokens, terms.max_output_tokens)
    return most if dialect.most_output_tokens is None else min(most, dialect.most_output_tokens)


def request_body(prompt: Prompt, terms: ModelTerms, dialect: Dialect) -> bytes:
    request = _Request(
        model=terms.name,
        messages=[_message_out(message) for message in prompt.messages],
        stream=False,
        temperature=0 if dialect.has_temperature else None,
        tools=[_tool_out(tool) for tool in prompt.tools] or None,
    )
    setattr(request, dialect.tokens_field, output_tokens(prompt, terms, dialect))
    return msgspec.json.encode(request)


def _message_out(message: Message) -> _MessageOut:
    calls = [
        _CallOut(call.id, "function", _FunctionOut(call.name, call.arguments)) for call in message.tool_calls
    ]
    # Some take no empty text beside calls.
    content = message.content or None if calls and message.role is Role.ASSISTANT else message.content
    return _MessageOut(message.role, content, calls or None, message.tool_call_id)


def _tool_out(tool: ToolSpec) -> _ToolOut:
    parameters = msgspec.Raw(tool.parameters.encode())
    return _ToolOut("function", _FunctionOut(tool.name, description=tool.description, parameters=parameters))


def parse_reply(body: bytes | bytearray) -> Reply:
    """Raises ModelBadReply for what says nothing."""
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
    text = _text(message.content)
    reason = completion.choices[0].finish_reason
    stop = _STOP if reason is None else _STOP_REASONS.get(reason.lower(), _OTHER_STOP)
    if not text.strip() and not calls:
        raise _why_empty(stop, message.refusal)
    return Reply(text, stop, calls, _tokens(completion.usage))


def _why_empty(stop: str, refusal: str | None) -> ModelBadReply:
    if stop == _FILTERED:
        return PromptDeclined("the backend's content filter withheld the reply")
    return PromptDeclined("the model declined to answer") if refusal else ModelBadReply("the reply is empty")


def _text(content: str | list[_Part] | None) -> str:
    if isinstance(content, list):
        return "".join(part.text or "" for part in content)
    return content or ""


def _call(call: _Call, number: int) -> ToolCall:
    arguments = bytes(call.function.arguments)
    # Some write the arguments as an object instead of as text.
    text = _TEXT.decode(arguments) if arguments.startswith(b'"') else arguments.decode()
    return ToolCall(call.id or f"call_{number}", call.function.name, text)


def _tokens(usage: msgspec.Raw) -> LlmTokens | None:
    try:
        said = _USAGE.decode(usage)
    except msgspec.MsgspecError:
        return None
    cached = said.prompt_tokens_details.cached_tokens if said.prompt_tokens_details else None
    if not (0 < said.prompt_tokens <= _MOST_TOKENS and 0 <= said.completion_tokens <= _MOST_TOKENS):
        return None
    return LlmTokens(said.prompt_tokens, said.completion_tokens, max(0, min(cached or 0, said.prompt_tokens)))
