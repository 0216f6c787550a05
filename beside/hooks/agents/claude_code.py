"""Claude Code: hooks after each tool, before a call, and at the end of a session."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from beside.hooks.files import TIMEOUT_SECONDS, InstallPlan, SettingsFile, Setup
from domain.doors import CLAUDE_CODE_CHARS, Door
from domain.hooks.call import Client, HookAnswer, HookCall, PendingCall, session_of
from domain.hooks.texts import in_blocks, text_in, texts_of

_SAVED_MCP_OUTPUT = re.compile(
    r"Error: result \(.{1,200}?Output has been saved to (?P<path>/[^\n]{1,4096}?/tool-results/[^/\s]+\.\w+)",
    re.DOTALL,
)

ShownAndReshape = tuple[list[str] | None, Callable[[str], Any]]
"""The texts of an output, None for an unknown shape, and what makes an output of that shape of one text."""


def read(payload: Any) -> HookCall | None:
    """PostToolUse. A replacement must fit the tool's own output schema, else it is ignored. Cursor and
    Copilot run Claude Code's hooks too: they send other fields, and read another answer."""
    if is_other_agent(payload):
        return None
    match payload:
        case {
            "hook_event_name": "PostToolUse",
            "session_id": str(session),
            "tool_name": str(tool),
            "tool_response": response,
        }:
            texts, reshape = _mcp(response) if tool.startswith("mcp__") else _built_in(tool, response)
            if texts is None:
                return None
            return HookCall(
                tool=tool,
                session=session_of(session, payload),
                texts=texts,
                answer=lambda text: {
                    "hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": reshape(text)}
                },
                call_id=text_in(payload, "tool_use_id"),
                arguments=payload.get("tool_input"),
                shown=response,
                spilled=_spilled(response),
            )
    return None


def is_other_agent(payload: Any) -> bool:
    """Whether the JSON of Claude Code's hooks is that of Cursor."""
    return isinstance(payload, dict) and bool({"cursor_version", "conversation_id"} & payload.keys())


def _mcp(response: Any) -> ShownAndReshape:
    """A list of content blocks; a string if the result was structured or too large."""
    if isinstance(response, str):
        return [response], lambda text: text
    return texts_of(response), lambda text: in_blocks(response, text)


def _built_in(tool: str, response: Any) -> ShownAndReshape:
    match tool, response:
        case "Bash", {"stdout": str(out), "stderr": str(err)} if not response.get("isImage"):
            members = {name: value for name, value in response.items() if not name.startswith("persisted")}
            return [out, err] if err else [out], lambda text: {**members, "stdout": text, "stderr": ""}
        case "Read", {"type": "text", "file": {"content": str(content)} as file}:
            return [content], lambda text: {
                **response,
                "file": {**file, "content": text, "numLines": text.count("\n") + 1, "startLine": 1},
            }
        case "Grep", {"mode": "content" | "count", "content": str(content)}:
            members = _without_paging(response)
            return [content], lambda text: {**members, "content": text, "numLines": text.count("\n") + 1}
        case ("Glob", {"filenames": list(names)}) | (
            "Grep",
            {"mode": "files_with_matches", "filenames": list(names)},
        ) if names and all(isinstance(one, str) for one in names):
            return names, lambda text: {**_without_paging(response), "filenames": [text], "numFiles": 1}
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


def _without_paging(response: dict[str, Any]) -> dict[str, Any]:
    """With a limit left in place, Claude Code would add a line about paging."""
    return {name: one for name, one in response.items() if name not in ("appliedLimit", "appliedOffset")}


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


def before(payload: Any) -> PendingCall | None:
    """PreToolUse. Without a decision, the agent asks for permission as usual, about the new arguments."""
    return None if is_other_agent(payload) else pre_tool_use(payload, {})


def pre_tool_use(payload: Any, decision: HookAnswer) -> PendingCall | None:
    """The call of a PreToolUse hook, which Codex has in the same shape. Other arguments are answered with
    `decision`."""
    match payload:
        case {
            "hook_event_name": "PreToolUse" as event,
            "session_id": str(session),
            "tool_name": str(tool),
            "tool_input": {**arguments},
        }:
            head = {"hookEventName": event}
            return PendingCall(
                tool,
                session_of(session, payload),
                arguments,
                lambda changed: {"hookSpecificOutput": {**head, **decision, "updatedInput": changed}},
                lambda why: {
                    "hookSpecificOutput": {
                        **head,
                        "permissionDecision": "deny",
                        "permissionDecisionReason": why,
                    }
                },
            )
    return None


def _client(tool_prefix: str) -> Client:
    """`tool_prefix` depends on how the MCP server of Spillgate was added."""
    door = Door(
        tool_prefix=tool_prefix,
        has_shell=True,
        passes_on="any",
        reads=frozenset({"Read", "NotebookRead"}),
        passes=frozenset({"Agent", "Task"}),
        # Not every set-up offers Read, and hooks do not know whether theirs does. Edit also takes what `cat`
        # showed.
        shells=frozenset({"Bash"}),
        hooked="Bash|Read|Grep|Glob|WebFetch|WebSearch|Agent|Task|ReadMcpResourceTool|mcp__.*",
        hooks_failures=False,
        own_limit_bytes=CLAUDE_CODE_CHARS,
    )
    return Client(read, door, before=before)


CLIENT = _client("mcp__spillgate__")
PLUGIN = _client("mcp__plugin_spillgate_spillgate__")

_READING = "Read|Grep|Glob|WebFetch|WebSearch|Agent|ReadMcpResourceTool"


def _files(setup: Setup) -> list[SettingsFile]:
    """A command; with SPILLGATE_URL it is HTTP for the tools whose output Claude Code leaves in no file."""
    run = {"type": "command", "command": setup.run("claude-code"), "timeout": TIMEOUT_SECONDS}
    groups = [{"matcher": f"^(Bash|{_READING}|mcp__(?!spillgate__).*)$", "hooks": [run]}]
    if setup.url is not None:
        groups = [
            {"matcher": "^(Bash|mcp__(?!spillgate__).*)$", "hooks": [run]},
            {"matcher": f"^({_READING})$", "hooks": [_http_hook(setup, setup.url)]},
        ]
    started = {"type": "stdio", **setup.started("${SPILLGATE_KEY}")}
    mcp = setup.mcp(("mcpServers",), "url", "${SPILLGATE_KEY}", started, type="http")
    before = {**run, "command": setup.run_before("claude-code")}
    pre = [{"matcher": "^(Bash|Write|Edit|NotebookEdit|Agent|mcp__(?!spillgate__).*)$", "hooks": [before]}]
    folder = setup.folder(".claude", ".claude", "CLAUDE_CONFIG_DIR")
    if setup.project is not None:
        servers = setup.project / ".mcp.json"
    elif setup.environment.get("CLAUDE_CONFIG_DIR"):
        servers = folder / ".claude.json"
    else:
        servers = setup.home / ".claude.json"
    return [
        SettingsFile(
            folder / "settings.json",
            "json",
            (
                (("hooks", "PostToolUse"), groups),
                (("hooks", "PreToolUse"), pre),
                (("hooks", "SessionEnd"), [{"hooks": [run]}]),
            ),
        ),
        SettingsFile(servers, "json", mcp),
    ]


def _http_hook(setup: Setup, url: str) -> dict[str, Any]:
    shell = f"?{urlencode({'shell': setup.shell})}" if setup.shell else ""
    post = {"type": "http", "url": f"{url}/hooks/claude-code{shell}", "timeout": TIMEOUT_SECONDS}
    if not setup.has_key:
        return post
    return post | {
        "headers": {"Authorization": "Bearer $SPILLGATE_KEY"},
        "allowedEnvVars": ["SPILLGATE_KEY"],
    }


PLAN = InstallPlan(_files, "claude")
