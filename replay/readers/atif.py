"""ATIF, the trajectories of Harbor: steps of system, user and agent, with calls and observations."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from replay.readers.messages import counts, name_in, objects_in, text_of
from replay.runs import BilledTokens, Input, Notes, Run, ToolUse, Turn, returned

NAME = "atif"


def recognises(records: Sequence[Any]) -> bool:
    first = records[0]
    if not isinstance(first, dict) or not isinstance(first.get("steps"), list):
        return False
    return str(first.get("schema_version")).startswith("ATIF") or "agent" in first


def runs(records: Iterator[Any], notes: Notes) -> Iterator[Run]:
    for record in records:
        if not isinstance(record, dict) or not isinstance(record.get("steps"), list):
            notes.unknown[f"{NAME}: a record without steps"] += 1
            continue
        agent = record.get("agent")
        agent = agent if isinstance(agent, dict) else {}
        run = Run(NAME, client=_client(agent.get("name")), model=name_in(agent.get("model_name")))
        if tools := agent.get("tool_definitions"):
            run.steps.append(Input(json.dumps(tools, ensure_ascii=False)))
        for step in record["steps"]:
            _add(run, step, notes)
        yield run


def _client(name: Any) -> str:
    """Harbor names the agents as Spillgate does, Gemini CLI apart."""
    return str(name or "").removesuffix("-cli")


def _add(run: Run, step: Any, notes: Notes) -> None:
    match step:
        case {"source": "system" | "user"}:
            run.steps.append(Input(text_of(step.get("message"))))
        case {"source": "agent"}:
            turn = Turn(text_of(step.get("message")), model=name_in(step.get("model_name")))
            turn.thinking = name_in(step.get("reasoning_content")) or ""
            turn.usage = _usage(step.get("metrics"))
            for call in objects_in(step.get("tool_calls")):
                match call:
                    case {"tool_call_id": call_id, "function_name": str(tool)}:
                        turn.calls.append(ToolUse(str(call_id), tool, call.get("arguments")))
            run.steps.append(turn)
            _add_results(run, turn, step.get("observation"))
        case _:
            source = step.get("source") if isinstance(step, dict) else "a step that is no object"
            notes.unknown[f"{NAME}: {str(source)[:40]}"] += 1


def _add_results(run: Run, turn: Turn, observation: Any) -> None:
    results = observation.get("results") if isinstance(observation, dict) else None
    calls = {call.id: call for call in turn.calls}
    for number, result in enumerate(objects_in(results)):
        at = turn.calls[number] if number < len(turn.calls) else None
        call = calls.get(str(result.get("source_call_id")), at)
        run.steps.append(returned(call, text_of(result.get("content"))))


def _usage(metrics: Any) -> BilledTokens | None:
    match metrics:
        case {"prompt_tokens": int(), "completion_tokens": int()}:
            total, cached, output = counts(metrics, "prompt_tokens", "cached_tokens", "completion_tokens")
            return BilledTokens.of_total(total, 0, cached, output)
    return None
