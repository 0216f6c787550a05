"""The sessions of GitHub Copilot CLI: events in JSON lines, `session-state/ID/events.jsonl`."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from replay.readers.messages import counts, name_in, objects_in, parsed, record_kind_of, text_of
from replay.runs import BilledTokens, Input, Notes, Run, ToolUse, Turn, returned

NAME = "copilot"

_SILENT = re.compile(
    r"(?:session|hook|permission|skill|sub\w+|external_tool|command|elicitation|user_input)\..*"
    r"|assistant\.(?!message$).*|tool\.(?!execution_complete$).*|system\.notification|abort"
)
_CUT = "Output too large to read at once ("


def recognises(records: Sequence[Any]) -> bool:
    match records[0]:
        case {"type": "session.start", "data": {"producer": "copilot-agent"}}:
            return True
    return False


def runs(records: Iterator[Any], notes: Notes) -> Iterator[Run]:
    """A compaction ends a run: the model goes on with a summary. A sub-agent is a run of its own."""
    open_runs: dict[str, _Reading] = {}
    for record in records:
        match record:
            case {"type": "session.compaction_complete", "data": {"summaryContent": str(summary)}}:
                if "" in open_runs:
                    yield open_runs.pop("").run
                open_runs[""] = _Reading()
                open_runs[""].run.steps.append(Input(summary))
            case {"type": str(kind), "data": dict(data)}:
                chain = str(data.get("parentToolCallId") or record.get("agentId") or "")
                open_runs.setdefault(chain, _Reading()).add(kind, data, notes)
            case _:
                notes.unknown[f"{NAME}: {record_kind_of(record)}"] += 1
    yield from (one.run for one in open_runs.values() if one.run.steps)


class _Reading:
    def __init__(self) -> None:
        self.run = Run(NAME, client=NAME)
        self._calls: dict[str, ToolUse] = {}
        self._usage: BilledTokens | None = None

    def add(self, kind: str, data: dict[str, Any], notes: Notes) -> None:
        match kind:
            case "system.message" | "user.message":
                self.run.steps.append(Input(text_of(data.get("transformedContent") or data.get("content"))))
            case "session.usage_record":
                # Before the answer that it was billed for.
                names = ("inputTokens", "cacheWriteTokens", "cacheReadTokens", "outputTokens")
                self._usage = BilledTokens.of_total(*counts(data.get("usage"), *names))
            case "assistant.message":
                self._add_turn(data)
            case "tool.execution_complete":
                self._add_result(data)
            case _ if not _SILENT.fullmatch(kind):
                notes.unknown[f"{NAME}: {kind[:40]}"] += 1

    def _add_turn(self, data: dict[str, Any]) -> None:
        turn = Turn(text_of(data.get("content")), model=name_in(data.get("model")), usage=self._usage)
        turn.thinking = text_of(data.get("reasoningText"))
        for asked in objects_in(data.get("toolRequests")):
            call_id, tool = str(asked.get("toolCallId")), name_in(asked.get("name")) or "tool"
            call = self._calls[call_id] = ToolUse(call_id, tool, parsed(asked.get("arguments")))
            turn.calls.append(call)
        self._usage = None
        self.run.steps.append(turn)

    def _add_result(self, data: dict[str, Any]) -> None:
        """A failed call has an error in place of a result."""
        said = data.get("result") or data.get("error")
        text = text_of(said.get("content") or said.get("message")) if isinstance(said, dict) else ""
        call = self._calls.get(str(data.get("toolCallId")))
        is_error, is_cut = data.get("success") is False, text.startswith(_CUT)
        self.run.steps.append(returned(call, text, is_error=is_error, is_cut=is_cut))
