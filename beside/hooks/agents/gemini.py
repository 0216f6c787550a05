"""Gemini CLI: hooks after each tool, before a call, and at the end of a session."""

from typing import Any

from beside.hooks.files import SERVER, TIMEOUT_SECONDS, InstallPlan, SettingsFile, Setup
from domain.doors import Door
from domain.hooks.call import Client, HookCall, PendingCall
from domain.hooks.texts import only_texts

_OPENING, _CLOSING = "<untrusted_context>\n", "\n</untrusted_context>"
"""Around what a command or an MCP tool returned, as Gemini CLI shows it to its model."""


def read(payload: Any) -> HookCall | None:
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
            return HookCall(
                tool=tool,
                session=session,
                texts=[_unwrapped(texts[0])] if len(texts) == 1 else texts,
                answer=lambda text: {"decision": "deny", "reason": text},
                shown=content,
                arguments=payload.get("tool_input"),
                is_error=response.get("error") is not None,
            )
    return None


def _unwrapped(text: str) -> str:
    """JSON can be queried only without the tags. A LongText stays as it is."""
    if text.startswith(_OPENING) and text.endswith(_CLOSING):
        return text[len(_OPENING) : -len(_CLOSING)]
    return text


def before(payload: Any) -> PendingCall | None:
    """BeforeTool."""
    match payload:
        case {
            "hook_event_name": "BeforeTool",
            "session_id": str(session),
            "tool_name": str(tool),
            "tool_input": {**arguments},
        }:
            return PendingCall(
                tool,
                session,
                arguments,
                lambda changed: {
                    "hookSpecificOutput": {"hookEventName": "BeforeTool", "tool_input": changed}
                },
                lambda why: {"decision": "deny", "reason": why},
            )
    return None


# `read_many_files` is governed: it has no limit of its own.
CLIENT = Client(
    read,
    Door(
        tool_prefix="mcp_spillgate_",
        has_shell=True,
        passes_on="any",
        reads=frozenset({"read_file"}),
        passes=frozenset({"invoke_agent"}),
    ),
    before=before,
)


def _files(setup: Setup) -> list[SettingsFile]:
    run = {
        "name": SERVER,
        "type": "command",
        "command": setup.run("gemini"),
        "timeout": TIMEOUT_SECONDS * 1000,
    }
    groups = [{"matcher": ".*", "hooks": [run]}]
    before = [{"matcher": ".*", "hooks": [{**run, "command": setup.run_before("gemini")}]}]
    mcp = setup.mcp(("mcpServers",), "httpUrl", "$SPILLGATE_KEY", setup.started("$SPILLGATE_KEY"))
    folder = setup.folder(".gemini", ".gemini")
    hooks = (
        (("hooks", "AfterTool"), groups),
        (("hooks", "BeforeTool"), before),
        (("hooks", "SessionEnd"), [{"hooks": [run]}]),
    )
    return [SettingsFile(folder / "settings.json", "jsonc", (*hooks, *mcp))]


PLAN = InstallPlan(_files, "gemini", "Gemini CLI shows the model a replacement as the tool's error text.")
