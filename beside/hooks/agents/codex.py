"""Codex: hooks after a command or an MCP tool, and before a call of an MCP tool."""

import json
import re
from typing import Any

from beside.hooks.agents.claude_code import pre_tool_use
from beside.hooks.files import SERVER, TIMEOUT_SECONDS, InstallPlan, SettingsFile, Setup
from domain.doors import CODEX_BYTES, Door
from domain.hooks.call import Client, HookCall, PendingCall, session_of
from domain.hooks.texts import only_texts, text_in

_TRANSCRIPTS = re.compile(r"/.*/sessions/.*/?rollout-[^/]+\.jsonl")
_CUT = "Warning: truncated output (original token count: "


def read(payload: Any) -> HookCall | None:
    """PostToolUse. The reason of a "block" becomes the tool's output; the tool itself has run. Of the result
    of an MCP tool, the model is shown the structured content alone, if there is any. The
    exit status of a command stands in the transcript alone."""
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
                status_in=text_in(payload, "transcript_path") or "" if isinstance(response, str) else None,
            )
    return None


def with_status(call: HookCall, line: bytes) -> HookCall | None:
    """The call of a command with its exit status, as Codex says it, if this line of the transcript has it."""
    if call.call_id is None or call.call_id.encode() not in line or b'"exit_code"' not in line:
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    match record:
        case {
            "payload": {"item": {"type": "CommandExecution", "id": call.call_id, "exit_code": int(status)}}
        }:
            return call._replace(
                is_error=status != 0,
                status_in=None,
                answer=lambda text: call.answer(f"Process exited with code {status}\n{text}"),
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
        tool_prefix="mcp__spillgate__",
        has_shell=True,
        most_bytes=8000,
        needs_search="tool_search",
        passes_on="any",
        reads=frozenset({"read_file"}),
        passes=frozenset({"wait", "wait_agent"}),
        shells=frozenset({"Bash"}),
        hooked="Bash|mcp__.*",
        own_limit_bytes=CODEX_BYTES,
    ),
    before=before,
    transcripts=_TRANSCRIPTS,
    with_status=with_status,
)


def _files(setup: Setup) -> list[SettingsFile]:
    run = {"type": "command", "command": setup.run("codex"), "timeout": TIMEOUT_SECONDS}
    groups = [{"matcher": "^(Bash|mcp__.*)$", "hooks": [run]}]
    before = [{"matcher": "^mcp__.*$", "hooks": [{**run, "command": setup.run_before("codex")}]}]
    server: dict[str, Any] = setup.started("") if setup.url is None else {"url": f"{setup.url}/mcp"}
    if setup.has_key:
        by_key = (
            {"env_vars": ["SPILLGATE_KEY"]}
            if setup.url is None
            else {"bearer_token_env_var": "SPILLGATE_KEY"}
        )
        server |= by_key
    folder = setup.folder(".codex", ".codex", "CODEX_HOME")
    return [
        SettingsFile(
            folder / "hooks.json",
            "json",
            ((("hooks", "PostToolUse"), groups), (("hooks", "PreToolUse"), before)),
        ),
        SettingsFile(folder / "config.toml", "toml", ((("mcp_servers", SERVER), server),)),
    ]


PLAN = InstallPlan(_files, "codex", "Codex runs a new hook only after you trust it: type /hooks there.")
