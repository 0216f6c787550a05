"""Claude Code: PostToolUse. A replacement must fit the tool's own output schema, else it is ignored."""

import re
from typing import Any

from app.doors.hooks.call import Answer, Call, Reshape, in_blocks, session_of, texts_of

_SAVED_MCP_OUTPUT = re.compile(
    r"Error: result \(.{1,200}?Output has been saved to (?P<path>/[^\n]{1,4096}?/tool-results/[^/\s]+\.\w+)",
    re.DOTALL,
)


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
            found = _mcp(response) if tool.startswith("mcp__") else _built_in(tool, response)
            if found is None:
                return None
            texts, reshape = found
            call_id = payload.get("tool_use_id")
            return Call(
                tool=tool,
                session=session_of(session, payload.get("agent_id")),
                texts=texts,
                answer=lambda text: _updated(reshape(text)),
                call_id=call_id if isinstance(call_id, str) and call_id else None,
                arguments=payload.get("tool_input"),
                spilled=_spilled(response),
            )
    return None


def _updated(output: Any) -> Answer:
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": output}}


def _mcp(response: Any) -> tuple[list[str], Reshape] | None:
    """A list of content blocks; a string if the result was structured or too large."""
    if isinstance(response, str):
        return [response], lambda text: text
    return _found(texts_of(response), lambda text: in_blocks(response, text))


def _found(texts: list[str] | None, reshape: Reshape) -> tuple[list[str], Reshape] | None:
    return None if texts is None else (texts, reshape)


def _built_in(tool: str, response: Any) -> tuple[list[str], Reshape] | None:
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
            kept = {
                name: value
                for name, value in response.items()
                if name not in ("appliedLimit", "appliedOffset")
            }
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
            texts = texts_of(blocks)
            return _found(texts, lambda text: {**response, "content": in_blocks(blocks, text)})
        case "ReadMcpResourceTool", {"contents": [{"uri": uri}, *_] as contents}:
            texts = texts_of(contents)
            return _found(
                texts,
                lambda text: {
                    **response,
                    "contents": [
                        {"uri": uri, "mimeType": "text/plain", "text": text},
                        *(one for one in contents if texts_of([one]) is None),
                    ],
                },
            )
    return None


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
    path = response.get("persistedOutputPath") if isinstance(response, dict) else None
    return path if isinstance(path, str) else None
