"""SWE-agent's trajectories (`.traj`): a history of messages, or a trajectory of actions and observations."""

from collections.abc import Iterator, Sequence
from typing import Any

from replay.readers.messages import objects_in, parsed, text_of
from replay.runs import Input, Notes, Run, ToolUse, Turn, returned

NAME = "swe-agent"


def recognises(records: Sequence[Any]) -> bool:
    first = records[0]
    if not isinstance(first, dict):
        return False
    history, trajectory = first.get("history"), first.get("trajectory")
    return _has(history, "role", "content") or _has(trajectory, "action", "observation")


def _has(rows: Any, *names: str) -> bool:
    return (
        isinstance(rows, list)
        and bool(rows)
        and isinstance(rows[0], dict)
        and all(map(rows[0].__contains__, names))
    )


def runs(records: Iterator[Any], notes: Notes) -> Iterator[Run]:
    for record in records:
        if not isinstance(record, dict):
            notes.unknown[f"{NAME}: a record that is no object"] += 1
        elif _has(record.get("history"), "role", "content"):
            yield _of_history(record["history"], notes)
        else:
            yield _of_trajectory(record.get("trajectory"), notes)


def _of_history(history: Sequence[Any], notes: Notes) -> Run:
    """A message of the user after an action is what the action returned."""
    run = Run(NAME)
    pending: list[ToolUse] = []
    for message in history:
        role = message.get("role") if isinstance(message, dict) else None
        if role == "assistant":
            pending = _calls(message)
            run.steps.append(Turn(text_of(message.get("content")), list(pending)))
        elif role in ("user", "tool") and pending:
            call = pending.pop(0)
            run.steps.append(returned(call, text_of(message.get("content"))))
        elif role in ("system", "user"):
            run.steps.append(Input(text_of(message.get("content"))))
        else:
            notes.unknown[f"{NAME}: role {str(role)[:40]}"] += 1
    return run


def _calls(message: dict[str, Any]) -> list[ToolUse]:
    """The calls of tools; else the command of the action, whose first word is the tool."""
    made = []
    for call in objects_in(message.get("tool_calls")):
        match call:
            case {"function": {"name": str(tool), "arguments": arguments}}:
                made.append(ToolUse(str(call.get("id")), tool, parsed(arguments)))
    action = message.get("action")
    if not made and isinstance(action, str) and action.strip():
        # The text of the message has the action: it is not counted twice.
        made.append(ToolUse("", action.split()[0], None))
    return made


def _of_trajectory(trajectory: Any, notes: Notes) -> Run:
    run = Run(NAME)
    for row in trajectory if isinstance(trajectory, list) else ():
        match row:
            case {"action": str(action), "observation": str(observation)}:
                words = action.split()
                call = ToolUse("", words[0] if words else "tool", action)
                thought = str(row.get("response") or row.get("thought") or "")
                run.steps.append(Turn(thought if action in thought else f"{thought}\n{action}", [call]))
                run.steps.append(returned(call, observation))
            case _:
                notes.unknown[f"{NAME}: a row without action and observation"] += 1
    return run
