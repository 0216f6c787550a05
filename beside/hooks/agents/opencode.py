"""OpenCode: a plugin calls after each tool."""

import re
from pathlib import Path
from typing import Any

from beside.hooks.files import TOOLS, InstallPlan, SettingsFile, Setup, plugin
from domain.doors import OPENCODE_BYTES, Door
from domain.hooks.call import Client, HookCall
from domain.hooks.texts import in_blocks, text_in, texts_of


def read(payload: Any) -> HookCall | None:
    """tool.execute.after, as {"input", "output"}. The answer holds the members of `output` to replace."""
    match payload:
        case {"input": {"tool": str(tool), "sessionID": str(session)} as call, "output": {**output}}:
            output_text: Any = output.get("output")
            blocks: Any = output.get("content")
            texts = [output_text] if isinstance(output_text, str) else texts_of(blocks)
            if texts is None:
                return None
            return HookCall(
                tool=tool,
                session=session,
                texts=texts,
                answer=lambda text: (
                    {"output": text} if isinstance(output_text, str) else {"content": in_blocks(blocks, text)}
                ),
                shown=output,
                call_id=text_in(call, "callID"),
                arguments=call.get("args"),
                is_error=output.get("isError") is True,
                spilled=text_in(output.get("metadata"), "outputPath"),
            )
    return None


CLIENT = Client(
    read,
    Door(
        tool_prefix="spillgate_",
        has_shell=True,
        passes_on="any",
        reads=frozenset({"read"}),
        passes=frozenset({"task"}),
        own_limit_bytes=OPENCODE_BYTES,
    ),
    outputs=re.compile(r"/.*/tool-output/[^/]+"),
)


def _files(setup: Setup) -> list[SettingsFile]:
    config = setup.environment.get("XDG_CONFIG_HOME")
    folder = Path(config) / "opencode" if config and setup.project is None else None
    folder = folder or setup.folder("", ".config/opencode")
    given = setup.variables("{env:SPILLGATE_KEY}")
    started = {
        "type": "local",
        "command": [setup.program, *TOOLS],
        **({"environment": given} if given else {}),
    }
    mcp = setup.mcp(("mcp",), "url", "{env:SPILLGATE_KEY}", started, type="remote")
    # OpenCode reads both names: the one that is there.
    name = "opencode.jsonc" if (folder / "opencode.jsonc").exists() else "opencode.json"
    plugins = folder / ".opencode" if setup.project is not None else folder
    return [plugin(setup, "opencode", plugins / "plugin"), SettingsFile(folder / name, "jsonc", mcp)]


PLAN = InstallPlan(_files, "opencode")
