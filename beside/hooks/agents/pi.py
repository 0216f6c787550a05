"""pi: an extension calls after each tool."""

import re
from typing import Any

from beside.hooks.files import InstallPlan, SettingsFile, Setup, plugin
from domain.doors import PI_BYTES, Door
from domain.hooks.call import Client, HookCall
from domain.hooks.texts import in_blocks, text_in, texts_of


def read(payload: Any) -> HookCall | None:
    """tool_result, with the session's id beside the event's fields."""
    match payload:
        case {"sessionId": str(session), "toolName": str(tool), "content": list(blocks)}:
            texts = texts_of(blocks)
            if texts is None:
                return None
            return HookCall(
                tool=tool,
                session=session,
                texts=texts,
                answer=lambda text: {"content": in_blocks(blocks, text)},
                shown=blocks,
                call_id=text_in(payload, "toolCallId"),
                arguments=payload.get("input"),
                is_error=payload.get("isError") is True,
                spilled=text_in(payload.get("details"), "fullOutputPath"),
            )
    return None


CLIENT = Client(
    read,
    Door(has_shell=True, passes_on="any", reads=frozenset({"read"}), own_limit_bytes=PI_BYTES),
    outputs=re.compile(r"/.*/pi-bash-[^/]+\.log"),
)


def _files(setup: Setup) -> list[SettingsFile]:
    """The extension has the model's tools itself: pi needs no MCP server."""
    return [plugin(setup, "pi", setup.folder(".pi", ".pi/agent") / "extensions")]


PLAN = InstallPlan(_files, "pi", asks_with="tools that the extension adds", starts_service=False)
