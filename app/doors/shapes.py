"""Where the messages of a conversation hold calls of tools and their results, in the shape of each provider's
API.

One table: OpenAI's chat and Responses, Anthropic's messages, Gemini's contents, Bedrock's Converse. What no
row names is no result of a tool, and stays as it is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from content.json_text import DROPPED, JsonEdit, JsonPath, as_json
from domain.doors import TOOL_NAMES, Door
from domain.hooks.call import OWN_TOOL
from domain.hooks.texts import text_in

_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_LEFT_OUT = "…"
"""In a further text of a result that is replaced, if its block has fields that must stay. An empty text is
refused by some providers."""


class MessageCall(NamedTuple):
    """`id` is "" if the shape has none: the result then names the tool, and comes in the order of the calls.
    `arguments`: an object, or a string."""

    id: str
    tool: str
    arguments: Any


class TextPlace(NamedTuple):
    """A text of a result. `path` leads to it in its message; `written` makes the value there from another
    text. `block` is the path of a block that holds the text and nothing else."""

    path: JsonPath
    text: str
    written: Callable[[str], Any] = str
    block: JsonPath | None = None


class MessageResult(NamedTuple):
    """A tool result in a message. `call_id` and `name` are "" if the message does not have them. The content
    is the texts of `places`, joined by newlines. `path` leads to the part of the message that holds the whole
    result."""

    call_id: str
    name: str
    places: tuple[TextPlace, ...]
    path: JsonPath = ()
    is_error: bool = False

    @property
    def texts(self) -> list[str]:
        return [place.text for place in self.places]

    def edits(self, text: str) -> Iterator[JsonEdit]:
        """Puts `text` in place of the texts. Pictures and fields of blocks stay, in place and order."""
        chosen = next((place for place in self.places if place.block is None), self.places[0])
        for place in self.places:
            if place is chosen:
                yield place.path, place.written(text)
            elif place.block is not None:
                yield place.block, DROPPED
            else:
                yield place.path, place.written(_LEFT_OUT)


RawMessage = dict[str, Any]


def _nothing(message: RawMessage) -> Iterable[Any]:
    return ()


class MessageShape(NamedTuple):
    """`calls` and `results` are those of one message, in its order."""

    calls: Callable[[RawMessage], Iterable[MessageCall]] = _nothing
    results: Callable[[RawMessage], Iterable[MessageResult]] = _nothing


def own_tools(tools: Any) -> list[str]:
    """The names of Spillgate's tools among the definitions of a request."""
    return list(filter(OWN_TOOL.fullmatch, tool_names(tools)))


def tool_names(tools: Any) -> Iterator[str]:
    """OpenAI's in chat, then in Responses and Anthropic's; Bedrock's; Gemini's."""
    match tools:
        case {"tools": list(inner)}:
            yield from tool_names(inner)
        case list():
            for tool in tools:
                match tool:
                    case {"function": {"name": str(name)}} | {"name": str(name)}:
                        yield name
                    case {"toolSpec": {"name": str(name)}}:
                        yield name
                    case {"functionDeclarations": list(inner)} | {"function_declarations": list(inner)}:
                        yield from tool_names(inner)


def door_of(own: Sequence[str]) -> Door:
    """For a model that has these tools of Spillgate, and no others of them."""
    for name in own:
        tool = next((one for one in sorted(TOOL_NAMES) if name.endswith(one)), None)
        if tool is not None:
            return Door(tool_prefix=name.removesuffix(tool))
    return Door(knows_tools=False)


def shape_of(message: Any) -> MessageShape | None:
    """Returns None for a message without calls and results."""
    if not isinstance(message, dict):
        return None
    if "tool_calls" in message or "function_call" in message:
        return _CHAT_CALLS
    if "parts" in message:
        return _GEMINI
    if message.get("role") in ("tool", "function"):
        return _CHAT_RESULTS
    if "call_id" in message:
        return _RESPONSES
    return _BLOCKS if isinstance(message.get("content"), list) else None


def _chat_calls(message: RawMessage) -> Iterator[MessageCall]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        match call:
            case {"id": str(id), "function": {"name": str(name)} as function}:
                yield MessageCall(id, name, function.get("arguments"))
            case {"id": str(id), "custom": {"name": str(name)} as custom}:
                yield MessageCall(id, name, custom.get("input"))
    match message:
        case {"function_call": {"name": str(name)} as function}:
            yield MessageCall("", name, function.get("arguments"))


def _chat_results(message: RawMessage) -> Iterator[MessageResult]:
    places = _content(("content",), message.get("content"))
    yield MessageResult(text_in(message, "tool_call_id") or "", text_in(message, "name") or "", places)


def _response_calls(item: RawMessage) -> Iterator[MessageCall]:
    match item:
        case {"type": "function_call", "call_id": str(id), "name": str(name)}:
            yield MessageCall(id, name, item.get("arguments"))
        case {"type": "custom_tool_call", "call_id": str(id), "name": str(name)}:
            yield MessageCall(id, name, item.get("input"))


def _response_results(item: RawMessage) -> Iterator[MessageResult]:
    if item.get("type") in ("function_call_output", "custom_tool_call_output"):
        places = _content(("output",), item.get("output"))
        yield MessageResult(text_in(item, "call_id") or "", "", places)


def _block_calls(message: RawMessage) -> Iterator[MessageCall]:
    """Anthropic's, then Bedrock's."""
    for block in message["content"]:
        match block:
            case {"type": "tool_use", "id": str(id), "name": str(name)}:
                yield MessageCall(id, name, block.get("input"))
            case {"toolUse": {"toolUseId": str(id), "name": str(name)} as use}:
                yield MessageCall(id, name, use.get("input"))


def _block_results(message: RawMessage) -> Iterator[MessageResult]:
    for number, block in enumerate(message["content"]):
        match block:
            case {"type": "tool_result", "tool_use_id": str(id)}:
                places = _content(("content", number, "content"), block.get("content"))
                yield MessageResult(id, "", places, ("content", number), block.get("is_error") is True)
            case {"toolResult": {"toolUseId": str(id)} as result}:
                path: JsonPath = ("content", number, "toolResult")
                places = _content((*path, "content"), result.get("content"))
                yield MessageResult(id, "", places, path, result.get("status") == "error")


_GEMINI_CALLS = ("functionCall", "function_call")
_GEMINI_RESULTS = ("functionResponse", "function_response")


def _gemini_calls(message: RawMessage) -> Iterator[MessageCall]:
    for _, _, call in _members(message["parts"], _GEMINI_CALLS):
        yield MessageCall(text_in(call, "id") or "", text_in(call, "name") or "", call.get("args"))


def _gemini_results(message: RawMessage) -> Iterator[MessageResult]:
    """A response of one text is that text; any other is its JSON, which becomes the member `output`."""
    for number, name, result in _members(message["parts"], _GEMINI_RESULTS):
        member = result.get("response")
        response = member if isinstance(member, dict) else {}
        whole: JsonPath = ("parts", number, name)
        path = (*whole, "response")
        key, value = next(iter(response.items())) if len(response) == 1 else ("", None)
        place = (
            TextPlace((*path, key), value)
            if isinstance(value, str)
            else TextPlace(path, _json(response), lambda text: {"output": text})
        )
        places = (place,) if response else ()
        yield MessageResult(
            text_in(result, "id") or "", text_in(result, "name") or "", places, whole, "error" in response
        )


def _members(parts: Any, names: tuple[str, ...]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    for number, part in enumerate(parts if isinstance(parts, list) else ()):
        for name in names:
            if isinstance(part, dict) and isinstance(part.get(name), dict):
                yield number, name, part[name]


_CHAT_CALLS = MessageShape(calls=_chat_calls)
_CHAT_RESULTS = MessageShape(results=_chat_results)
_RESPONSES = MessageShape(_response_calls, _response_results)
_BLOCKS = MessageShape(_block_calls, _block_results)
_GEMINI = MessageShape(_gemini_calls, _gemini_results)


def _content(path: JsonPath, content: Any) -> tuple[TextPlace, ...]:
    """Returns the texts of a string, or of a list of blocks. Bedrock also has JSON blocks."""
    if isinstance(content, str):
        return (TextPlace(path, content),) if content else ()
    places = []
    for number, block in enumerate(content if isinstance(content, list) else ()):
        at = (*path, number)
        match block:
            case {"text": str(text)} if text and block.get("type", "text") in _TEXT_TYPES:
                is_bare = len(block) == 1 + ("type" in block)
                places.append(TextPlace((*at, "text"), text, block=at if is_bare else None))
            case {"json": value}:
                places.append(TextPlace(at, _json(value), lambda text: {"text": text}, block=at))
    return tuple(places)


def _json(value: Any) -> str:
    return as_json(value).decode()
