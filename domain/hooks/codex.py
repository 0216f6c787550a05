"""Codex: hooks after a command or an MCP tool, and before a call of an MCP tool."""

from typing import Any

from domain.doors import CODEX_BYTES, Door
from domain.hooks.call import Client, HookCall, PendingCall, session_of
from domain.hooks.claude_code import pre_tool_use
from domain.hooks.texts import only_texts, text_in

_CUT = "Warning: truncated output (original token count: "


def read(payload: Any) -> HookCall | None:
    """PostToolUse. The reason of a "block" becomes the tool's output; the tool itself has run. Of the result
    of an MCP tool, the model is shown the structured content alone, if there is any."""
    match payload:
        case {
            "hook_event_name": "PostToolUse",
            "turn_id": str(),
            "session_id": str(session),
            "tool_name": str(tool),
            "tool_response": str() | {"content": list()} as response,
        }:
            output = {"content": [{"text": response}]} if isinstance(response, str) else response
            data = output.get("structuredContent")
            structured = data if isinstance(data, dict) else None
            texts = only_texts(output["content"])
            if texts is None and (output["content"] or structured is None):
                return None
            return HookCall(
                tool=tool,
                session=session_of(session, payload),
                texts=texts or [],
                answer=lambda text: {"decision": "block", "reason": text},
                call_id=text_in(payload, "tool_use_id"),
                arguments=payload.get("tool_input"),
                is_error=output.get("isError") is True,
                shown=response,
                structured=structured,
                is_cut=isinstance(response, str) and response.startswith(_CUT),
            )
    return None


def before(payload: Any) -> PendingCall | None:
    """PreToolUse. Codex takes new arguments only with a decision; its approvals and its sandbox still
    apply."""
    return pre_tool_use(payload, {"permissionDecision": "allow"})


# Codex shows 2,500 tokens of a hook's reason, and finds the tools of MCP servers only by a search.
CLIENT = Client(
    read,
    Door(
        "mcp__spillgate__",
        has_shell=True,
        most_bytes=8000,
        needs_search="tool_search",
        passes_on="any",
        reads=frozenset({"read_file"}),
        own_limit_bytes=CODEX_BYTES,
    ),
    before=before,
)
