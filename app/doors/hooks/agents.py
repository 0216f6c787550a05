"""Codex, Copilot CLI, Gemini CLI, Cursor, OpenCode and pi: their hooks' JSON, a function for each."""

import re
from typing import Any

from app.doors.hooks.call import Call, Dialect, in_blocks, only_texts, session_of, texts_of
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
                session=session_of(session, payload.get("agent_id")),
                texts=texts,
                answer=lambda text: {"decision": "block", "reason": text},
                call_id=_id(payload.get("tool_use_id")),
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
            match content:
                case str():
                    texts: list[str] | None = [content]
                case {"text": str(text)}:
                    texts = [text]
                case _:
                    texts = only_texts(content)
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
    """postToolUse: `tool_output` is JSON in a string (see INNER_JSON). Only results of MCP tools can be
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
                call_id=_id(payload.get("tool_use_id")),
                arguments=payload.get("tool_input"),
                is_error=output.get("isError") is True,
            )
    return None


def opencode(payload: Any) -> Call | None:
    """tool.execute.after, as {"input", "output"}. The answer holds the members of `output` to replace."""
    match payload:
        case {"input": {"tool": str(tool), "sessionID": str(session)} as given, "output": {**output}}:
            match output:
                case {"output": str(text)}:
                    texts: list[str] | None = [text]
                    member = "output"
                case {"content": list(blocks)}:
                    texts, member = texts_of(blocks), "content"
                case _:
                    return None
            match output.get("metadata"):
                case {"truncated": True, "outputPath": str(path)}:
                    spilled: str | None = path
                case _:
                    spilled = None
            if texts is None:
                return None
            return Call(
                tool=tool,
                session=session,
                texts=texts,
                answer=lambda text: {member: text if member == "output" else in_blocks(blocks, text)},
                call_id=_id(given.get("callID")),
                arguments=given.get("args"),
                is_error=output.get("isError") is True,
                spilled=spilled,
            )
    return None


def pi(payload: Any) -> Call | None:
    """tool_result, with the session's id beside the event's fields."""
    match payload:
        case {"sessionId": str(session), "toolName": str(tool), "content": list(blocks)}:
            texts = texts_of(blocks)
            match payload.get("details"):
                case {"fullOutputPath": str(path)}:
                    spilled: str | None = path
                case _:
                    spilled = None
            if texts is None:
                return None
            return Call(
                tool=tool,
                session=session,
                texts=texts,
                answer=lambda text: {"content": in_blocks(blocks, text)},
                call_id=_id(payload.get("toolCallId")),
                arguments=payload.get("input"),
                is_error=payload.get("isError") is True,
                spilled=spilled,
            )
    return None


def _unwrapped(text: str) -> str:
    """JSON can be queried only without the tags. A position in place of the text stays as it is."""
    if text.startswith(_OPENING) and text.endswith(_CLOSING):
        return text[len(_OPENING) : -len(_CLOSING)]
    return text


def _id(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


DIALECTS: dict[str, Dialect] = {
    "claude-code": claude_code,
    "claude-code-plugin": claude_code,
    "codex": codex,
    "copilot": copilot,
    "cursor": cursor,
    "gemini": gemini,
    "opencode": opencode,
    "pi": pi,
}
"""By the client's name, which is also that of its door (`policies.doors`)."""

INNER_JSON = {"cursor": "tool_output"}
"""The member of a payload that is JSON in a string, by the client."""
