"""OpenCode's sessions, as `opencode export` writes them: the session's `info`, and messages with parts."""

from collections.abc import Iterator, Sequence
from typing import Any

from replay.readers.messages import counts, name_in, record_kind_of
from replay.runs import BilledTokens, Input, Notes, Result, Run, ToolUse, Turn, returned

NAME = "opencode"

_SILENT = frozenset(["step-start", "snapshot", "patch", "agent", "retry", "file", "subtask", "compaction"])


def recognises(records: Sequence[Any]) -> bool:
    match records:
        case [{"info": {"id": str()}, "messages": list()}, *_]:
            return True
    return False


def runs(records: Iterator[Any], notes: Notes) -> Iterator[Run]:
    for record in records:
        match record:
            case {"info": dict(), "messages": list(messages)}:
                yield from _runs(messages, notes)
            case _:
                notes.unknown[f"{NAME}: a record without messages"] += 1


def _runs(messages: Sequence[Any], notes: Notes) -> Iterator[Run]:
    """A summary ends a run: the model goes on with it."""
    run = Run(NAME, client=NAME)
    for message in messages:
        match message:
            case {"info": {"role": str(role)} as info, "parts": list(parts)}:
                if info.get("summary") is True and run.steps:
                    yield run
                    run = Run(NAME, client=NAME)
                    role = "user"
                _add(run, role, info, parts, notes)
            case _:
                notes.unknown[f"{NAME}: a message without parts"] += 1
    yield run


def _add(run: Run, role: str, info: dict[str, Any], parts: Sequence[Any], notes: Notes) -> None:
    """Each step of an answer, from one `step-start` to the next, is a request of its own."""
    turn: Turn | None = None
    results: list[Result] = []

    def end() -> None:
        nonlocal turn
        if turn is not None:
            run.steps.append(turn)
        run.steps.extend(results)
        results.clear()
        turn = None

    for part in parts:
        match part:
            case {"type": "step-start"}:
                end()
            case {"type": "text", "text": str(text)} if role != "assistant":
                run.steps.append(Input(text))
            case {"type": "text" | "reasoning" | "tool" | "step-finish"} if role == "assistant":
                turn = turn or Turn(model=name_in(info.get("modelID")))
                _add_part(turn, results, part)
            case {"type": str(kind)} if kind in _SILENT or role != "assistant":
                pass
            case _:
                notes.unknown[f"{NAME}: part {record_kind_of(part)}"] += 1
    end()


def _add_part(turn: Turn, results: list[Result], part: dict[str, Any]) -> None:
    match part:
        case {"type": "text", "text": str(text)}:
            turn.text += text
        case {"type": "reasoning", "text": str(text)}:
            turn.thinking += text
        case {"type": "step-finish", "tokens": dict(tokens)}:
            turn.usage = _usage(tokens)
        case {"type": "tool", "tool": str(tool), "state": dict(state)}:
            call = ToolUse(str(part.get("callID")), tool, state.get("input"))
            turn.calls.append(call)
            output, error, about = state.get("output"), state.get("error"), state.get("metadata")
            shown = output if isinstance(output, str) else error
            if isinstance(shown, str):
                is_cut = isinstance(about, dict) and about.get("truncated") is True
                results.append(returned(call, shown, is_error=output is None, is_cut=is_cut))


def _usage(tokens: dict[str, Any]) -> BilledTokens:
    fresh, output, reasoning = counts(tokens, "input", "output", "reasoning")
    written, read = counts(tokens.get("cache"), "write", "read")
    return BilledTokens(fresh, written, read, output + reasoning)
