"""The protocols in which agents ask models: Messages, Responses, Chat Completions and Gemini's."""

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MODELS = json.dumps({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool. `name` is one of `Asked.tools`."""

    name: str
    arguments: Json = field(default_factory=dict)

    @property
    def text(self) -> str:
        return json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as a request offers it. `namespace` is that of the Responses API, else ""."""

    name: str
    namespace: str = ""


Reply = str | list[Call]


class Wire(ABC):
    @abstractmethod
    def tools(self, body: Json) -> list[Offered]: ...

    @abstractmethod
    def results(self, body: Json) -> list[str]: ...

    @abstractmethod
    def whole(self, reply: Reply, body: Json) -> Json: ...

    @abstractmethod
    def events(self, reply: Reply, body: Json) -> Iterator[str]: ...


def _text(content: Any) -> str:
    """The text of a content that is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content or () if isinstance(block, dict))


def _id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex[:24]}"


def _event(name: str, data: Json) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


class Messages(Wire):
    """Anthropic's POST /v1/messages."""

    def tools(self, body: Json) -> list[Offered]:
        return [Offered(tool["name"]) for tool in body.get("tools") or ()]

    def results(self, body: Json) -> list[str]:
        return [
            _text(block.get("content"))
            for message in body["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]

    def whole(self, reply: Reply, body: Json) -> Json:
        if isinstance(reply, str):
            blocks: list[Json] = [{"type": "text", "text": reply}]
        else:
            blocks = [
                {"type": "tool_use", "id": _id("toolu"), "name": call.name, "input": call.arguments}
                for call in reply
            ]
        return {
            "id": _id("msg"),
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": blocks,
            "stop_reason": "end_turn" if isinstance(reply, str) else "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": len(json.dumps(body)) // 4, "output_tokens": 20},
        }

    def events(self, reply: Reply, body: Json) -> Iterator[str]:
        whole = self.whole(reply, body)
        start = {**whole, "content": [], "stop_reason": None}
        yield _event("message_start", {"type": "message_start", "message": start})
        for index, block in enumerate(whole["content"]):
            if block["type"] == "text":
                empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                empty = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            at = {"index": index}
            yield _event("content_block_start", {"type": "content_block_start", **at, "content_block": empty})
            yield _event("content_block_delta", {"type": "content_block_delta", **at, "delta": delta})
            yield _event("content_block_stop", {"type": "content_block_stop", **at})
        ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        usage = {"output_tokens": 20}
        yield _event("message_delta", {"type": "message_delta", "delta": ended, "usage": usage})
        yield _event("message_stop", {"type": "message_stop"})


class Responses(Wire):
    """OpenAI's POST /v1/responses. The tools of a namespace are called by the name `namespace/tool` here, or
    by the name of the tool where no other has it."""

    def tools(self, body: Json) -> list[Offered]:
        found = [tool for item in body["input"] for tool in item.get("tools") or ()]
        return list(self._offered([*(body.get("tools") or ()), *found]))

    def _offered(self, tools: list[Json], namespace: str = "") -> Iterator[Offered]:
        for tool in tools:
            if tool["type"] == "namespace":
                yield from self._offered(tool["tools"], tool["name"])
            else:
                yield Offered(tool.get("name", tool["type"]), namespace)

    def results(self, body: Json) -> list[str]:
        kinds = ("function_call_output", "custom_tool_call_output")
        return [_text(item["output"]) for item in body["input"] if item.get("type") in kinds]

    def _items(self, reply: Reply, body: Json) -> Iterator[Json]:
        if isinstance(reply, str):
            said = {"type": "output_text", "text": reply, "annotations": []}
            yield {"type": "message", "id": _id("msg"), "role": "assistant", "content": [said]}
            return
        spaces = {tool.name: tool.namespace for tool in self.tools(body) if tool.namespace}
        for call in reply:
            if call.name == "tool_search":
                search = {"execution": "client", "arguments": call.arguments}
                yield {"type": "tool_search_call", "call_id": _id("call"), **search}
                continue
            item = {"type": "function_call", "id": _id("fc"), "call_id": _id("call")}
            item |= {"name": call.name, "arguments": call.text}
            if call.name in spaces:
                item["namespace"] = spaces[call.name]
            yield item

    def whole(self, reply: Reply, body: Json) -> Json:
        items = [{**item, "status": "completed"} for item in self._items(reply, body)]
        used = len(json.dumps(body)) // 4
        return {
            "id": _id("resp"),
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "model": body["model"],
            "output": items,
            "usage": {
                "input_tokens": used,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": used + 20,
            },
        }

    def events(self, reply: Reply, body: Json) -> Iterator[str]:
        whole = self.whole(reply, body)
        numbers = iter(range(1000))

        def event(kind: str, **fields: Any) -> str:
            return _event(kind, {"type": kind, "sequence_number": next(numbers), **fields})

        yield event("response.created", response={**whole, "status": "in_progress", "output": []})
        for index, item in enumerate(whole["output"]):
            yield event("response.output_item.added", output_index=index, item=item)
            if item["type"] == "message":
                at = {"output_index": index, "item_id": item["id"], "content_index": 0}
                yield event("response.output_text.delta", **at, delta=item["content"][0]["text"])
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=whole)


class ChatCompletions(Wire):
    """OpenAI's POST /v1/chat/completions."""

    def tools(self, body: Json) -> list[Offered]:
        return [Offered(tool["function"]["name"]) for tool in body.get("tools") or ()]

    def results(self, body: Json) -> list[str]:
        return [_text(row["content"]) for row in body["messages"] if row["role"] == "tool"]

    def _message(self, reply: Reply) -> Json:
        if isinstance(reply, str):
            return {"role": "assistant", "content": reply}
        calls = [
            {
                "index": index,
                "id": _id("call"),
                "type": "function",
                "function": {"name": call.name, "arguments": call.text},
            }
            for index, call in enumerate(reply)
        ]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def _frame(self, kind: str, body: Json, choice: Json) -> Json:
        used = len(json.dumps(body)) // 4
        usage = {"prompt_tokens": used, "completion_tokens": 20, "total_tokens": used + 20}
        frame = {"id": "chatcmpl-scripted", "object": kind, "created": 0, "model": body["model"]}
        return {**frame, "choices": [{"index": 0, **choice}], "usage": usage}

    def whole(self, reply: Reply, body: Json) -> Json:
        choice = {"message": self._message(reply), "finish_reason": _finish(reply)}
        return self._frame("chat.completion", body, choice)

    def events(self, reply: Reply, body: Json) -> Iterator[str]:
        kind = "chat.completion.chunk"
        said = self._frame(kind, body, {"delta": self._message(reply), "finish_reason": None})
        ended = self._frame(kind, body, {"delta": {}, "finish_reason": _finish(reply)})
        yield f"data: {json.dumps(said)}\n\ndata: {json.dumps(ended)}\n\ndata: [DONE]\n\n"


def _finish(reply: Reply) -> str:
    return "stop" if isinstance(reply, str) else "tool_calls"


class GenerateContent(Wire):
    """Google's POST /v1beta/models/MODEL:generateContent and :streamGenerateContent."""

    def tools(self, body: Json) -> list[Offered]:
        return [
            Offered(declared["name"])
            for tool in body.get("tools") or ()
            for declared in tool.get("functionDeclarations") or ()
        ]

    def results(self, body: Json) -> list[str]:
        """The text of `output` or `error`."""
        return [
            next(iter(part["functionResponse"]["response"].values()), "")
            for content in body["contents"]
            for part in content["parts"]
            if "functionResponse" in part
        ]

    def whole(self, reply: Reply, body: Json) -> Json:
        if isinstance(reply, str):
            parts: list[Json] = [{"text": reply}]
        else:
            parts = [{"functionCall": {"name": call.name, "args": call.arguments}} for call in reply]
        used = len(json.dumps(body)) // 4
        usage = {"promptTokenCount": used, "candidatesTokenCount": 20, "totalTokenCount": used + 20}
        content = {"role": "model", "parts": parts}
        answer = {"content": content, "finishReason": "STOP", "index": 0}
        return {"candidates": [answer], "usageMetadata": usage, "modelVersion": "scripted"}

    def events(self, reply: Reply, body: Json) -> Iterator[str]:
        yield f"data: {json.dumps(self.whole(reply, body))}\n\n"


WIRES: dict[str, Wire] = {
    "messages": Messages(),
    "responses": Responses(),
    "completions": ChatCompletions(),
    "generateContent": GenerateContent(),
    "streamGenerateContent": GenerateContent(),
}
"""By the end of the path, after its last slash or colon."""
