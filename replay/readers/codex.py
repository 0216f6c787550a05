"""Codex's rollouts: JSON lines of session data, items of the conversation, and events."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from replay.readers.messages import counts, name_in, parsed, text_of
from replay.runs import BilledTokens, Input, Notes, Run, ToolUse, Turn, returned

NAME = "codex"

_WRAPPERS = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_SILENT = frozenset({"session_meta", "turn_context", "ghost_snapshot", "world_state", "token_usage_record"})
_CUT_SIGNS = ("tokens truncated…", "chars truncated…", "[... omitted", "Total output lines:")
_SHELLS = frozenset(
    {"exec_command", "write_stdin", "shell", "shell_command", "local_shell", "container.exec"}
)
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_CALLS |= {"web_search_call": "action", "tool_search_call": "arguments"}
_OUTPUTS = (
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "tool_search_output",
)


def recognises(records: Sequence[Any]) -> bool:
    first = records[0]
    if not isinstance(first, dict):
        return False
    if str(first.get("type")) in _WRAPPERS and "payload" in first:
        return True
    # Early versions wrote the items bare, after a line about the session.
    second = records[1] if len(records) > 1 else None
    is_item = isinstance(second, dict) and (
        second.get("type") in (*_CALLS, *_OUTPUTS, "message", "reasoning")
    )
    return (
        {"id", "timestamp"} <= first.keys() and "type" not in first and (is_item or "instructions" in first)
    )


def runs(records: Iterator[Any], notes: Notes) -> Iterator[Run]:
    """A compaction ends a run: the model goes on with a summary."""
    reading = _Reading()
    for record in records:
        if not isinstance(record, dict):
            notes.unknown[f"{NAME}: a record that is no object"] += 1
            continue
        kind, payload = record.get("type"), record.get("payload")
        if kind == "compacted":
            yield reading.run
            summary = payload.get("message") if isinstance(payload, dict) else None
            reading = _Reading(reading.model)
            reading.run.steps.append(Input(str(summary or "")))
        elif isinstance(payload, dict):
            reading.add(str(kind), payload, notes)
        elif isinstance(kind, str):
            reading.add_item(record, notes)
    yield reading.run


class _Reading:
    def __init__(self, model: str | None = None) -> None:
        self.run = Run(NAME, client=NAME)
        self.model = model
        self._calls: dict[str, ToolUse] = {}
        self._whole: dict[str, str] = {}
        self._turn: Turn | None = None

    def add(self, kind: str, payload: dict[str, Any], notes: Notes) -> None:
        match kind:
            case "session_meta":
                instructions = payload.get("base_instructions") or payload.get("instructions")
                text = instructions.get("text") if isinstance(instructions, dict) else instructions
                if isinstance(text, str) and text:
                    self.run.steps.append(Input(text))
            case "turn_context":
                self.model = name_in(payload.get("model")) or self.model
            case "response_item":
                self.add_item(payload, notes)
            case "event_msg":
                self._add_event(payload)
            case _ if kind not in _SILENT:
                notes.unknown[f"{NAME}: {kind[:40]}"] += 1

    def add_item(self, item: dict[str, Any], notes: Notes) -> None:
        kind = str(item.get("type"))
        if kind == "message":
            self._add_message(item)
        elif kind == "reasoning":
            turn = self._open_turn()
            turn.thinking += text_of(item.get("content")) or text_of(item.get("summary"))
        elif kind in _CALLS:
            call_id = str(item.get("call_id") or item.get("id"))
            tool = _tool(item.get("name") or kind.removesuffix("_call"), item.get("namespace"))
            call = self._calls[call_id] = ToolUse(call_id, tool, parsed(item.get(_CALLS[kind])))
            self._open_turn().calls.append(call)
        elif kind in _OUTPUTS:
            self._add_result(item)
        elif kind not in _SILENT:
            notes.unknown[f"{NAME}: {kind[:40]}"] += 1

    def _open_turn(self) -> Turn:
        if self._turn is None:
            self._turn = Turn(model=self.model)
            self.run.steps.append(self._turn)
        return self._turn

    def _add_message(self, item: dict[str, Any]) -> None:
        text = text_of(item.get("content"))
        if item.get("role") == "assistant":
            self._open_turn().text += text
        else:
            self._turn = None
            self.run.steps.append(Input(text))

    def _add_result(self, item: dict[str, Any]) -> None:
        call_id = str(item.get("call_id"))
        call = self._calls.get(call_id)
        text = _output(item.get("tools" if item.get("type") == "tool_search_output" else "output"))
        is_cut = any(sign in text for sign in _CUT_SIGNS)
        self._turn = None
        whole = self._whole.get(call_id) if is_cut else None
        self.run.steps.append(returned(call, text, is_cut=is_cut, whole=whole))

    def _add_event(self, payload: dict[str, Any]) -> None:
        """The usage of a request is reported after its items, and before the next request. The whole of an
        MCP tool's result is reported before what the model is shown of it."""
        match payload:
            case {"type": "token_count", "info": {"last_token_usage": {"input_tokens": int()} as used}}:
                names = ("input_tokens", "cache_write_input_tokens", "cached_input_tokens", "output_tokens")
                turn = next((one for one in reversed(self.run.steps) if isinstance(one, Turn)), None)
                if turn is not None and turn.usage is None:
                    turn.usage = BilledTokens.of_total(*counts(used, *names))
            case {"item": {"type": "McpToolCall", "id": str(call_id), "result": {"content": content}}}:
                self._whole[call_id] = text_of(content)


def _tool(name: Any, server: Any) -> str:
    """The name that the hooks of Codex give the tool."""
    if str(name) in _SHELLS:
        return "Bash"
    return f"{server}__{name}" if isinstance(server, str) and server else str(name)


def _output(output: Any) -> str:
    """A string, or a list of contents; early versions put both into JSON in a string."""
    match parsed(output) if isinstance(output, str) and output.startswith('{"output"') else output:
        case {"output": str(text)} | {"content": str(text)} | str(text):
            return text
        case {"content": list(blocks)} | list(blocks):
            return text_of(blocks) or (json.dumps(blocks, ensure_ascii=False) if blocks else "")
    return ""
