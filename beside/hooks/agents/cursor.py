"""Cursor: a hook after each tool, whose answer replaces results of MCP tools only."""

from typing import Any

from beside.hooks.files import TIMEOUT_SECONDS, InstallPlan, SettingsFile, Setup
from domain.doors import Door
from domain.hooks.call import Client, HookCall
from domain.hooks.texts import in_blocks, text_in, texts_of


def read(payload: Any) -> HookCall | None:
    """postToolUse: `tool_output` is JSON in a string. Only results of MCP tools can be replaced."""
    match payload:
        case {
            "conversation_id": str(session),
            "tool_name": str(tool),
            "tool_output": {"content": list(blocks)} as output,
        } if tool.startswith("MCP:"):
            texts = texts_of(blocks)
            if texts is None:
                return None
            return HookCall(
                tool=tool.removeprefix("MCP:"),
                session=session,
                texts=texts,
                answer=lambda text: {"updated_mcp_tool_output": {"content": in_blocks(blocks, text)}},
                shown=output,
                call_id=text_in(payload, "tool_use_id"),
                arguments=payload.get("tool_input"),
                is_error=output.get("isError") is True,
            )
    return None


CLIENT = Client(read, Door(has_shell=True, reads=frozenset({"Read", "read_file"})), inner_json="tool_output")


def _files(setup: Setup) -> list[SettingsFile]:
    # Cursor takes `//` for the beginning of a comment, also within a string. A shell reads `/''/` as `//`.
    command = setup.run("cursor").replace("//", "/''/")
    run = {"command": command, "matcher": "^MCP:", "timeout": TIMEOUT_SECONDS}
    folder = setup.folder(".cursor", ".cursor")
    hooks = ((("hooks", "postToolUse"), [run]),)
    mcp = setup.mcp(("mcpServers",), "url", "${env:SPILLGATE_KEY}", setup.started("${env:SPILLGATE_KEY}"))
    return [
        SettingsFile(folder / "hooks.json", "jsonc", hooks, {"version": 1}),
        SettingsFile(folder / "mcp.json", "jsonc", mcp),
    ]


PLAN = InstallPlan(_files, "cursor-agent", "Cursor lets a hook replace results of MCP tools only.")
