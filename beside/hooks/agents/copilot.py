"""GitHub Copilot CLI: a hook after each tool."""

import re
from typing import Any

from beside.hooks.files import TIMEOUT_SECONDS, InstallPlan, SettingsFile, Setup
from domain.doors import Door
from domain.hooks.call import Client, HookCall

_SAVED = re.compile(
    r"Output too large to read at once \([^()\n]{1,40}\)\. Saved to: (?P<path>/[^\n]{1,4096}?\.txt)\n"
)


def read(payload: Any) -> HookCall | None:
    """postToolUse. It names no call. Of an output of more than about 20 KB it shows the beginning, and names
    the file that holds the whole."""
    match payload:
        case {
            "sessionId": str(session),
            "toolName": str(tool),
            "toolResult": {"resultType": "success", "textResultForLlm": str(text)} as result,
        }:
            saved = _SAVED.match(text)
            return HookCall(
                tool=tool,
                session=session,
                texts=[text],
                spilled=None if saved is None else saved["path"],
                answer=lambda text: {"modifiedResult": {"resultType": "success", "textResultForLlm": text}},
                shown=result,
                arguments=payload.get("toolArgs"),
            )
    return None


CLIENT = Client(
    read,
    Door(
        tool_prefix="spillgate-",
        has_shell=True,
        reads=frozenset({"view", "str_replace_editor"}),
        passes=frozenset({"task", "read_agent"}),
        hooks_failures=False,
    ),
    outputs=re.compile(r"/.*/[0-9]+-copilot-tool-output-[^/]+\.txt"),
)


def _files(setup: Setup) -> list[SettingsFile]:
    run = {"type": "command", "bash": setup.run("copilot"), "timeoutSec": TIMEOUT_SECONDS}
    folder = setup.folder(".github", ".copilot", "COPILOT_HOME")
    servers = "mcp.json" if setup.project is not None else "mcp-config.json"
    started = {"type": "local", **setup.started("${SPILLGATE_KEY}"), "tools": ["*"]}
    mcp = setup.mcp(("mcpServers",), "url", "${SPILLGATE_KEY}", started, type="http", tools=["*"])
    hooks = ((("hooks", "postToolUse"), [run]),)
    return [
        SettingsFile(folder / "hooks" / "spillgate.json", "json", hooks, {"version": 1}),
        SettingsFile(folder / servers, "json", mcp),
    ]


PLAN = InstallPlan(_files, "copilot")
