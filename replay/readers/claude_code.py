"""Claude Code's JSONL: a session, and one file for each of its subagents."""

from collections.abc import Iterator, Sequence
from typing import Any

from replay.readers.messages import add_block, blocks_of, result_of, text_of, usage_of
from replay.runs import Input, Notes, Run, ToolUse, Turn

NAME = "claude-code"

_SILENT = frozenset([
    "ai-title", "last-prompt", "mode", "permission-mode", "file-history-snapshot", "queue-operation",
    "summary", "progress", "started", "result", "custom-title", "agent-name", "tag", "pr-link",
    "bridge-session", "worktree-state", "api-request", "api-request-blob", "api-request-shape",
    "atis-latch", "cost-state", "tools-used",
])  # fmt: skip
"""Records that the model is not shown."""

_CUT_SIGNS = ("<persisted-output>", "Output too large", "... [truncated", "Output has been saved to")


def recognises(records: Sequence[Any]) -> bool:
    return any(
        isinstance(one, dict)
        and "sessionId" in one
        and ("parentUuid" in one or str(one.get("type")) in _SILENT)
        and "projectHash" not in one
        for one in records
    )


def runs(records: Iterator[Any], notes: Notes) -> Iterator[Run]:
    """A compaction ends a run: the model goes on with a summary. A subagent whose records are in the file of
    its session is a run of its own."""
    open_runs: dict[str, _Reading] = {}
    chains: dict[str, str] = {}
    for record in records:
        if not isinstance(record, dict):
            notes.unknown[f"{NAME}: a record that is no object"] += 1
            continue
        chain = _chain(record, chains)
        if _is_compaction(record) and chain in open_runs:
            yield open_runs.pop(chain).run
        open_runs.setdefault(chain, _Reading()).add(record, notes)
    yield from (one.run for one in open_runs.values())


def _chain(record: dict[str, Any], chains: dict[str, str]) -> str:
    """The name of the conversation that a record belongs to."""
    if not record.get("isSidechain"):
        return ""
    if isinstance(agent := record.get("agentId"), str):
        return agent
    uuid, parent = str(record.get("uuid")), str(record.get("parentUuid"))
    chains[uuid] = chains.get(parent, uuid)
    return chains[uuid]


def _is_compaction(record: dict[str, Any]) -> bool:
    return record.get("subtype") == "compact_boundary"


class _Reading:
    def __init__(self) -> None:
        self.run = Run(NAME, client=NAME)
        self._calls: dict[str, ToolUse] = {}
        self._turn: Turn | None = None
        self._message = ""

    def add(self, record: dict[str, Any], notes: Notes) -> None:
        kind = record.get("type")
        message = record.get("message")
        if kind == "assistant" and isinstance(message, dict):
            self._add_answer(message)
        elif kind == "user" and isinstance(message, dict):
            self._add_user(record, message)
        elif kind == "attachment":
            self._add_attachment(record.get("rendered"), record.get("attachment"))
        elif kind == "system":
            pass
        elif str(kind) not in _SILENT:
            notes.unknown[f"{NAME}: {str(kind)[:40]}"] += 1

    def _add_answer(self, message: dict[str, Any]) -> None:
        """The blocks of one answer are records of their own, with the same message id and usage."""
        name = str(message.get("id"))
        if self._turn is None or name != self._message:
            self._turn, self._message = Turn(), name
            self.run.steps.append(self._turn)
        turn = self._turn
        model = message.get("model")
        turn.model = model if isinstance(model, str) and model != "<synthetic>" else turn.model
        turn.usage = usage_of(message.get("usage")) or turn.usage
        for block in blocks_of(message.get("content")):
            add_block(turn, block)
        self._calls.update((call.id, call) for call in turn.calls)

    def _add_user(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        for block in blocks_of(message.get("content")):
            if isinstance(block, dict) and block.get("type") == "tool_result":
                result = result_of(block, self._calls, _CUT_SIGNS)
                result.whole = _whole(record.get("toolUseResult"), result.text) if result.is_cut else None
                self.run.steps.append(result)
            elif text := text_of([block]):
                self.run.steps.append(Input(text))

    def _add_attachment(self, rendered: Any, attachment: Any) -> None:
        """Adds what the client itself puts into the context: `rendered` in newer versions."""
        match rendered, attachment:
            case [*messages], _:
                texts = [text_of(one.get("content")) for one in messages if isinstance(one, dict)]
                self.run.steps.append(Input("\n".join(texts)))
            case _, {"type": "hook_success" | "command_permissions" | "queued_command"}:
                pass
            case _, {"content": str(text)}:
                self.run.steps.append(Input(text))
            case _, {"addedLines": [*lines]}:
                self.run.steps.append(Input(text_of(lines)))


def _whole(response: Any, shown: str) -> str | None:
    """Returns the whole output, if the record has it beside what the model was shown."""
    match response:
        case {"persistedOutputSize": int(size), "stdout": str(out)} if size > len(out.encode()):
            return None
        case {"stdout": str(out), "stderr": str(err)}:
            whole = out + err
        case {"file": {"content": str(whole)}}:
            pass
        case str(whole):
            pass
        case _:
            return None
    return whole if len(whole) > len(shown) else None
