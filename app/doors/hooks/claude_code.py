"""Claude Code: PostToolUse. A replacement must fit the tool's own output schema, else it is ignored."""

import re
from collections.abc import Callable
from typing import Any

from app.doors.hooks.call import Call, in_blocks, session_of, text_in, texts_of

_SAVED_MCP_OUTPUT = re.compile(
    r"Error: result \(.{1,200}?Output has been saved to (?P<path>/[^\n]{1,4096}?/tool-results/[^/\s]+\.\w+)",
    re.DOTALL,
)

Found = tuple[list[str] | None, Callable[[str], Any]]
"""The texts of an output, None for an unknown shape, and what makes an output of that shape of one text."""


def claude_code(payload: Any) -> Call | None:
    """Cursor and Copilot run Claude Code's hooks too: they send other fields, and read another answer."""
    match payload:
        case {"cursor_version": _} | {"conversation_id": _}:
            return None
        case {
            "hook_event_name": "PostToolUse",
            "session_id": str(session),
            "tool_name": str(tool),
            "tool_response": response,
        }:
            is_mcp = tool.startswith("mcp__")
            texts, reshape = _mcp(response) if is_mcp else _built_in(tool, response)
            if texts is None:
                return None
            return Call(
                tool=tool,
                session=session_of(session, payload),
                texts=texts,
                answer=lambda text: {
                    "hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": reshape(text)}
                },
                call_id=text_in(payload, "tool_use_id"),
                arguments=payload.get("tool_input"),
                spilled=_spilled(response),
            )
    return None


def _mcp(response: Any) -> Found:
    """A list of content blocks; a string if the result was structured or too large."""
    if isinstance(response, str):
        return [response], lambda text: text
    return texts_of(response), lambda text: in_blocks(response, text)


def _built_in(tool: str, response: Any) -> Found:
    match tool, response:
        case "Bash", {"stdout": str(out), "stderr": str(err)} if not response.get("isImage"):
            kept = {name: value for name, value in response.items() if not name.startswith("persisted")}
            return [out, err] if err else [out], lambda text: {**kept, "stdout": text, "stderr": ""}
        case "Read", {"type": "text", "file": {"content": str(content)} as file}:
            return [content], lambda text: {
                **response,
                "file": {**file, "content": text, "numLines": text.count("\n") + 1, "startLine": 1},
            }
        case "Grep", {"mode": "content", "content": str(content)}:
            # With a limit left in place, Claude Code would add a line about paging.
            paging = ("appliedLimit", "appliedOffset")
            kept = {name: value for name, value in response.items() if name not in paging}
            return [content], lambda text: {**kept, "content": text, "numLines": text.count("\n") + 1}
        case "Glob", {"filenames": list(names)} if names and all(isinstance(one, str) for one in names):
            return names, lambda text: {**response, "filenames": [text], "numFiles": 1}
        case "WebFetch", {"result": str(result)}:
            return [result], lambda text: {**response, "result": text}
        case "WebSearch", {"results": list(results)}:
            return [text for result in results for text in _search_texts(result)], lambda text: {
                **response,
                "results": [text],
            }
        case "Agent" | "Task", {"status": "completed", "content": list(blocks)}:
            return texts_of(blocks), lambda text: {**response, "content": in_blocks(blocks, text)}
        case "ReadMcpResourceTool", {"contents": [{"uri": uri}, *_] as contents}:
            others = [one for one in contents if texts_of([one]) is None]
            return texts_of(contents), lambda text: {
                **response,
                "contents": [{"uri": uri, "mimeType": "text/plain", "text": text}, *others],
            }
    return None, str


def _search_texts(result: Any) -> list[str]:
    match result:
        case str():
            return [result]
        case {"content": list(hits)}:
            fields = [hit.get(name) for hit in hits if isinstance(hit, dict) for name in ("title", "url")]
            return [field for field in fields if isinstance(field, str)]
    return []


def _spilled(response: Any) -> str | None:
    """The file that holds the whole output."""
    if isinstance(response, str):
        saved = _SAVED_MCP_OUTPUT.match(response)
        return None if saved is None else saved["path"]
    return text_in(response, "persistedOutputPath")
