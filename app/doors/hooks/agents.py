"""Codex, Copilot CLI, Gemini CLI, Cursor, OpenCode and pi: their hooks' JSON, a function for each."""

import re
from typing import Any

from app.doors.hooks.call import Call, Client, in_blocks, only_texts, session_of, text_in, texts_of
from app.doors.hooks.claude_code import claude_code

_SAVED_BY_COPILOT = re.compile(
    r"Output too large to read at once \([^()\n]{1,40}\)\. Saved to: (?P<path>/[^\n]{1,4096}?\.txt)\n"
)
_OPENING, _CLOSING = "<untrusted_context>\n", "\n</untrusted_context>"
"""Around what a command or an MCP tool returned, as Gemini CLI shows it to its model."""


def codex(payload: Any) -> Call | None:
    """PostToolUse. The reason of a "block" becomes the tool's output; the tool itself has run."""
    match payload:
        case {
            "hook_event_name": "PostToolUse",
            "turn_id": str(),
            "session_id": str(session),
            "tool_name": str(tool),
            "tool_response": str() | {"content": list()} as response,
        }:
            texts = [response] if isinstance(response, str) else only_texts(response["content"])
            is_error = not isinstance(response, str) and response.get("isError") is True
            if texts is None:
                return None
            return Call(
                tool=tool,
                session=session_of(session, payload),
                texts=texts,
                answer=lambda text: {"decision": "block", "reason": text},
                call_id=text_in(payload, "tool_use_id"),
                arguments=payload.get("tool_input"),
                is_error=is_error,
            )
    return None


def copilot(payload: Any) -> Call | None:
    """postToolUse. It names no call. Of an output of more than about 20 KB it shows the beginning, and names
    the file that holds the whole."""
    match payload:
        case {
            "sessionId": str(session),
            "toolName": str(tool),
            "toolResult": {"resultType": "success", "textResultForLlm": str(text)},
        }:
            saved = _SAVED_BY_COPILOT.match(text)
            return Call(
                tool=tool,
                session=session,
                texts=[text],
                spilled=None if saved is None else saved["path"],
                answer=lambda text: {"modifiedResult": {"resultType": "success", "textResultForLlm": text}},
                arguments=payload.get("toolArgs"),
            )
    return None


def gemini(payload: Any) -> Call | None:
    """AfterTool. The reason of a "deny" reaches the model as the tool's error text."""
    match payload:
        case {
            "hook_event_name": "AfterTool",
            "session_id": str(session),
            "tool_name": str(tool),
            "tool_response": {"llmContent": content} as response,
        }:
            if isinstance(content, str):
                texts: list[str] | None = [content]
            else:
                texts = only_texts(content if isinstance(content, list) else [content])
            if texts is None:
                return None
            return Call(
                tool=tool,
                session=session,
                texts=[_unwrapped(texts[0])] if len(texts) == 1 else texts,
                answer=lambda text: {"decision": "deny", "reason": text},
                arguments=payload.get("tool_input"),
                is_error=response.get("error") is not None,
            )
    return None


def cursor(payload: Any) -> Call | None:
    """postToolUse: `tool_output` is JSON in a string. Only results of MCP tools can be
    replaced."""
    match payload:
        case {
            "conversation_id": str(session),
            "tool_name": str(tool),
            "tool_output": {"content": list(blocks)} as output,
        } if tool.startswith("MCP:"):
            texts = texts_of(blocks)
            if texts is None:
                return None
            return Call(
                tool=tool.removeprefix("MCP:"),
                session=session,
                texts=texts,
                answer=lambda text: {"updated_mcp_tool_output": {"content": in_blocks(blocks, text)}},
                call_id=text_in(payload, "tool_use_id"),
                arguments=payload.get("tool_input"),
                is_error=output.get("isError") is True,
            )
    return None


def opencode(payload: Any) -> Call | None:
    """tool.execute.after, as {"input", "output"}. The answer holds the members of `output` to replace."""
    match payload:
        case {"input": {"tool": str(tool), "sessionID": str(session)} as given, "output": {**output}}:
            said: Any = output.get("output")
            blocks: Any = output.get("content")
            texts = [said] if isinstance(said, str) else texts_of(blocks)
            if texts is None:
                return None
            return Call(
                tool=tool,
                session=session,
                texts=texts,
                answer=lambda text: (
                    {"output": text} if isinstance(said, str) else {"content": in_blocks(blocks, text)}
                ),
                call_id=text_in(given, "callID"),
                arguments=given.get("args"),
                is_error=output.get("isError") is True,
                spilled=text_in(output.get("metadata"), "outputPath"),
            )
    return None


def pi(payload: Any) -> Call | None:
    """tool_result, with the session's id beside the event's fields."""
    match payload:
        case {"sessionId": str(session), "toolName": str(tool), "content": list(blocks)}:
            texts = texts_of(blocks)
            if texts is None:
                return None
            return Call(
                tool=tool,
                session=session,
                texts=texts,
                answer=lambda text: {"content": in_blocks(blocks, text)},
                call_id=text_in(payload, "toolCallId"),
                arguments=payload.get("input"),
                is_error=payload.get("isError") is True,
                spilled=text_in(payload.get("details"), "fullOutputPath"),
            )
    return None


def _unwrapped(text: str) -> str:
    """JSON can be queried only without the tags. A position in place of the text stays as it is."""
    if text.startswith(_OPENING) and text.endswith(_CLOSING):
        return text[len(_OPENING) : -len(_CLOSING)]
    return text


CLIENTS: dict[str, Client] = {
    "claude-code": Client(claude_code),
    "claude-code-plugin": Client(claude_code),
    "codex": Client(codex),
    "copilot": Client(copilot, outputs=re.compile(r"/.*/[0-9]+-copilot-tool-output-[^/]+\.txt")),
    "cursor": Client(cursor, inner_json="tool_output"),
    "gemini": Client(gemini),
    "opencode": Client(opencode, outputs=re.compile(r"/.*/tool-output/[^/]+")),
    "pi": Client(pi, outputs=re.compile(r"/.*/pi-bash-[^/]+\.log")),
}
"""By name, which is also that of the client's door (`policies.doors`)."""
