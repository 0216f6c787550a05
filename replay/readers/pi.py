"""pi's sessions: JSON lines with a header, messages, and changes of the model."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from replay.readers.messages import add_block, counts, name_in, objects_in, record_kind_of, text_of
from replay.runs import BilledTokens, Input, Notes, Run, ToolUse, Turn, returned

NAME = "pi"

_SILENT = re.compile(
    "session|model_change|thinking_level_change|label|session_info|custom|active_tools_change"
)


def recognises(records: Sequence[Any]) -> bool:
    first = records[0]
    return isinstance(first, dict) and first.get("type") == "session" and "cwd" in first


def runs(records: Iterator[Any], notes: Notes) -> Iterator[Run]:
    """A compaction ends a run: the model goes on with a summary."""
    run, calls = Run(NAME, client=NAME), dict[str, ToolUse]()
    for record in records:
        match record:
            case {"type": "message", "message": {"role": str()} as message}:
                _add(run, message, calls, notes)
            case {"type": "compaction" | "branch_summary", "summary": str(summary)}:
                yield run
                run = Run(NAME, client=NAME, steps=[Input(summary)])
            case {"type": "custom_message", "content": content}:
                run.steps.append(Input(text_of(content)))
            case {"type": str(kind)} if _SILENT.fullmatch(kind):
                pass
            case _:
                notes.unknown[f"{NAME}: {record_kind_of(record)}"] += 1
    yield run


def _add(run: Run, message: dict[str, Any], calls: dict[str, ToolUse], notes: Notes) -> None:
    content = message.get("content")
    match message.get("role"):
        case "user" | "custom":
            run.steps.append(Input(text_of(content)))
        case "assistant":
            run.steps.append(_turn(message, calls))
        case "toolResult":
            call = calls.get(str(message.get("toolCallId")))
            details = message.get("details")
            is_cut = isinstance(details, dict) and bool(details.get("truncation"))
            tool, is_error = str(message.get("toolName") or "tool"), message.get("isError") is True
            run.steps.append(returned(call, text_of(content), tool, is_error=is_error, is_cut=is_cut))
        case "bashExecution":
            run.steps.append(Input(f"{message.get('command')}\n{message.get('output')}"))
        case role:
            notes.unknown[f"{NAME}: role {str(role)[:40]}"] += 1


def _turn(message: dict[str, Any], calls: dict[str, ToolUse]) -> Turn:
    turn = Turn(model=name_in(message.get("model")))
    for block in objects_in(message.get("content")):
        add_block(turn, block)
    calls.update((call.id, call) for call in turn.calls)
    usage = message.get("usage")
    if isinstance(usage, dict) and usage.get("totalTokens"):
        turn.usage = BilledTokens(*counts(usage, "input", "cacheWrite", "cacheRead", "output"))
    return turn
