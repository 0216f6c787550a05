"""Gemini CLI's chats: a JSON document, or JSON lines, of messages with their calls and tokens."""

from collections.abc import Iterator, Sequence
from typing import Any

from replay.readers.messages import blocks_of, counts, name_in, objects_in, text_of
from replay.runs import BilledTokens, Input, Notes, Run, ToolUse, Turn, returned

NAME = "gemini"

_SILENT = frozenset({"info", "error", "warning"})
_CUT_SIGNS = ("... [CONTENT TRUNCATED] ...", "Output too large. Showing", "characters omitted", "[truncated")


def recognises(records: Sequence[Any]) -> bool:
    first = records[0]
    return isinstance(first, dict) and {"sessionId", "projectHash"} <= first.keys()


def runs(records: Iterator[Any], notes: Notes) -> Iterator[Run]:
    """The first of JSON lines has the session. A message that is written again replaces the one before."""
    messages: dict[str, dict[str, Any]] = {}
    for record in records:
        match record:
            case {"sessionId": _, "projectHash": _}:
                _collect(messages, record.get("messages"))
            case {"id": _, "type": str()}:
                _collect(messages, [record])
            case {"$set": {**changed}}:
                if isinstance(changed.get("messages"), list):
                    messages.clear()
                    _collect(messages, changed["messages"])
            case {"$rewindTo": str(last)}:
                names = list(messages)
                for name in names[names.index(last) :] if last in messages else []:
                    del messages[name]
            case _:
                notes.unknown[f"{NAME}: a record that is no message"] += 1
    run = Run(NAME, client=NAME)
    for message in messages.values():
        _add(run, message, notes)
    yield run


def _collect(messages: dict[str, dict[str, Any]], more: Any) -> None:
    for message in objects_in(more):
        messages[str(message.get("id", len(messages)))] = message


def _add(run: Run, message: dict[str, Any], notes: Notes) -> None:
    text = text_of(message.get("content"))
    match message.get("type"):
        case "user" if text:
            run.steps.append(Input(text))
        case "user":
            # What a tool returned, which stands beside the call too.
            pass
        case "gemini":
            turn = Turn(text, model=name_in(message.get("model")), usage=_usage(message.get("tokens")))
            thoughts = objects_in(message.get("thoughts"))
            turn.thinking = "\n".join(str(one.get("description")) for one in thoughts)
            run.steps.append(turn)
            for call in objects_in(message.get("toolCalls")):
                _add_call(run, turn, call)
        case kind if str(kind) not in _SILENT:
            notes.unknown[f"{NAME}: {str(kind)[:40]}"] += 1


def _add_call(run: Run, turn: Turn, call: dict[str, Any]) -> None:
    made = ToolUse(str(call.get("id")), str(call.get("name")), call.get("args"))
    turn.calls.append(made)
    for part in blocks_of(call.get("result")):
        match part:
            case {"functionResponse": {"response": {**response}}}:
                text = next((one for one in response.values() if isinstance(one, str)), "")
                is_cut = any(sign in text for sign in _CUT_SIGNS)
                is_error = call.get("status") == "error"
                run.steps.append(returned(made, text, is_error=is_error, is_cut=is_cut))


def _usage(tokens: Any) -> BilledTokens | None:
    if not isinstance(tokens, dict):
        return None
    fresh, tool, cached, output, thoughts = counts(tokens, "input", "tool", "cached", "output", "thoughts")
    return BilledTokens.of_total(fresh + tool, 0, cached, output + thoughts)
