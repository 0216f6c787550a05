"""Messages of OpenAI's or Anthropic's shape: a list, an object with `messages`, or one message a line."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from replay.runs import BilledTokens, Input, Notes, Result, Run, ToolUse, Turn, is_too_deep, returned

NAME = "messages"

_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
_JUDGED = {"success": True, "pass": True, "passed": True, "failure": False, "fail": False, "failed": False}
_MOST_TOKENS = 1_000_000_000_000
"""The most tokens of one request. Larger numbers could not be added exactly as floats."""
_FLAGS = ("passed", "resolved", "success")


def recognises(records: Sequence[Any]) -> bool:
    first = records[0]
    if isinstance(first, list):
        return bool(first) and _is_message(first[0])
    if isinstance(first, dict) and isinstance(messages := first.get("messages"), list):
        return bool(messages) and _is_message(messages[0])
    return _is_message(first)


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and str(value.get("role")) in _ROLES
        and ("content" in value or "tool_calls" in value)
    )


def runs(records: Iterator[Any], notes: Notes) -> Iterator[Run]:
    alone: list[Any] = []
    for record in records:
        if isinstance(record, list):
            yield run_of(record, notes)
        elif isinstance(record, dict) and isinstance(messages := record.get("messages"), list):
            yield run_of(messages, notes, record)
        elif _is_message(record):
            alone.append(record)
        else:
            notes.unknown[f"{NAME}: a record without messages"] += 1
    if alone:
        yield run_of(alone, notes)


def run_of(messages: Sequence[Any], notes: Notes, about: dict[str, Any] | None = None) -> Run:
    """`about` is the object around the messages."""
    about = about or {}
    run = Run(NAME, passed=_passed(about), model=name_in(about.get("model")))
    if system := text_of(about.get("system")):
        run.steps.append(Input(system))
    if tools := about.get("tools"):
        run.steps.append(Input(json.dumps(tools, ensure_ascii=False)))
    calls: dict[str, ToolUse] = {}
    for message in messages:
        if isinstance(message, dict):
            _add(run, message, calls, notes)
        else:
            notes.unknown[f"{NAME}: a message that is no object"] += 1
    return run


def _add(run: Run, message: dict[str, Any], calls: dict[str, ToolUse], notes: Notes) -> None:
    role, content = message.get("role"), message.get("content")
    match role:
        case "system" | "developer":
            run.steps.append(Input(text_of(content)))
        case "user":
            for block in blocks_of(content):
                if isinstance(block, dict) and block.get("type") == "tool_result":
                    run.steps.append(result_of(block, calls))
                elif text := text_of([block]):
                    run.steps.append(Input(text))
        case "assistant":
            run.steps.append(_turn(message, calls))
        case "tool" | "function":
            call = calls.get(str(message.get("tool_call_id")))
            run.steps.append(returned(call, text_of(content), str(message.get("name") or "tool")))
        case _:
            notes.unknown[f"{NAME}: role {str(role)[:40]}"] += 1


def _turn(message: dict[str, Any], calls: dict[str, ToolUse]) -> Turn:
    turn = Turn(model=name_in(message.get("model")), usage=usage_of(message.get("usage")))
    turn.thinking = str(message.get("reasoning_content") or message.get("reasoning") or "")
    for block in objects_in(message.get("content")):
        add_block(turn, block)
    turn.text = text_of(message.get("content"))
    for call in objects_in(message.get("tool_calls")):
        match call:
            case {"function": {**function}}:
                tool = str(function.get("name"))
                turn.calls.append(ToolUse(str(call.get("id")), tool, parsed(function.get("arguments"))))
    calls.update((call.id, call) for call in turn.calls)
    return turn


def add_block(turn: Turn, block: Any) -> None:
    """Adds a content block of an answer to its turn; a block of another kind adds nothing."""
    match block:
        case str(text) | {"type": "text", "text": str(text)}:
            turn.text += text
        case {"type": "thinking", "thinking": str(text)}:
            turn.thinking += text
        case {"type": "tool_use" | "toolCall", "name": str(tool)}:
            arguments = block.get("input", block.get("arguments"))
            turn.calls.append(ToolUse(str(block.get("id")), tool, arguments))


def result_of(block: dict[str, Any], calls: dict[str, ToolUse], cut_signs: Iterable[str] = ()) -> Result:
    """The result in a block `tool_result`. The client has cut it if a sign is in its first 400 characters."""
    text, is_error = text_of(block.get("content")), block.get("is_error") is True
    is_cut = any(sign in text[:400] for sign in cut_signs)
    return returned(calls.get(str(block.get("tool_use_id"))), text, is_error=is_error, is_cut=is_cut)


def blocks_of(content: Any) -> list[Any]:
    """A string alone is one block."""
    return content if isinstance(content, list) else [content]


def objects_in(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none of anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_of(content: Any) -> str:
    """Returns the texts of a string, or of a list of content blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [
        block if isinstance(block, str) else block.get("text")
        for block in content
        if isinstance(block, str | dict)
    ]
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def record_kind_of(record: Any, key: str = "type") -> str:
    """How a record that a reader does not know is named in reports."""
    return str(record.get(key))[:40] if isinstance(record, dict) else "not an object"


def parsed(arguments: Any) -> Any:
    """Arguments that are JSON in a string, as a value, unless they are nested too deeply."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return arguments if is_too_deep(value) else value


def usage_of(usage: Any) -> BilledTokens | None:
    """Usage as OpenAI or Anthropic report it."""
    if not isinstance(usage, dict):
        return None
    if "prompt_tokens" in usage:
        total, output = counts(usage, "prompt_tokens", "completion_tokens")
        (cached,) = counts(usage.get("prompt_tokens_details"), "cached_tokens")
        return BilledTokens.of_total(total, 0, cached, output)
    if "input_tokens" in usage:
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
        return BilledTokens(*counts(usage, *names))
    return None


def counts(value: Any, *names: str) -> list[int]:
    """The numbers of tokens with these names; 0 for one that is missing, or that no request can have."""
    numbers = [value.get(name) for name in names] if isinstance(value, dict) else [None] * len(names)
    return [one if isinstance(one, int) and 0 <= one <= _MOST_TOKENS else 0 for one in numbers]


def name_in(value: Any) -> str | None:
    """Returns the text; None for an empty text and for any other value."""
    return value if isinstance(value, str) and value else None


def _passed(about: dict[str, Any]) -> bool | None:
    if isinstance(judged := about.get("judge"), str):
        return _JUDGED.get(judged.lower())
    return next((about[key] for key in _FLAGS if isinstance(about.get(key), bool)), None)
