"""The hooks of coding agents: what the JSON of each means, and the answer in its own shape.

The service and `spillgate hook` both import this module, which therefore uses the standard library only.
What reads the JSON of a hook goes by names and shapes, never by the text of a result: in the service, that
may still be JSON (see `app.edge.json_body.LongText`).
"""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

from domain.doors import CLAUDE_CODE_CHARS, CODEX_BYTES, OPENCODE_BYTES, PI_BYTES, Door, project_of
from domain.references import is_of_relay, references_in

HookAnswer = dict[str, Any]

MAX_NAME = 256
"""Characters of a tool's name and of a call id, as POST /results takes them."""

_SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@=+~-]{0,127}")
_NAME = re.compile(rf"[^\x00-\x1f\x7f]{{1,{MAX_NAME}}}")
OWN_TOOL = re.compile(
    r"(?:.*[^A-Za-z0-9])?tool_output(?:_grep|_lines|_query)?"
    r"|(?:mcp__(?:plugin_spillgate_)?spillgate__|mcp_spillgate_|spillgate[_-]).*"
)
_OWN_COMMAND = re.compile(
    r"\s*(?:env\s+SPILLGATE_URL=\S+\s+)?(?:\S*/)?spillgate\s+(?:ask|grep|lines|query)\s[^;&|\n]*"
)
_ASKS_BY_SHELL = re.compile(r"(?<![\w/.-])spillgate(?= (?:ask|grep|lines|query|cat) (?:session-|HANDLE ))")

_SAVED_BY_COPILOT = re.compile(
    r"Output too large to read at once \([^()\n]{1,40}\)\. Saved to: (?P<path>/[^\n]{1,4096}?\.txt)\n"
)
_OPENING, _CLOSING = "<untrusted_context>\n", "\n</untrusted_context>"
"""Around what a command or an MCP tool returned, as Gemini CLI shows it to its model."""

_SAVED_MCP_OUTPUT = re.compile(
    r"Error: result \(.{1,200}?Output has been saved to (?P<path>/[^\n]{1,4096}?/tool-results/[^/\s]+\.\w+)",
    re.DOTALL,
)

_CUT_BY_CODEX = "Warning: truncated output (original token count: "

_MESSAGE_BYTES = 1000
"""The most bytes of a handle message for a coding agent, with its preview."""

_ANSWER_BYTES = 3072
"""An answer to a question about a stored result."""

PAYING_BYTES = 3 * (650 + _ANSWER_BYTES)
"""What an agent shows of a result that it has cut is replaced from this size on: three times a handle message
and an answer. A question costs the model a turn more, too."""

Found = tuple[list[str] | None, Callable[[str], Any]]
"""The texts of an output, None for an unknown shape, and what makes an output of that shape of one text."""


class HookCall(NamedTuple):
    """`texts` are the result, with a newline between two. `answer` makes the agent's JSON for a replacement.
    `spilled` is the file in which the agent left the whole output, if `texts` are only a part of it. `is_cut`
    is True if they are only a part, whether there is such a file or not. `structured` is what an agent shows
    its model instead of the texts: it is the result if its JSON is more than twice as large as they are.
    `client` and `project` are for the accounting."""

    tool: str
    session: str
    texts: list[str]
    answer: Callable[[str], HookAnswer]
    call_id: str | None = None
    arguments: Any = None
    is_error: bool = False
    spilled: str | None = None
    structured: dict[str, Any] | None = None
    is_cut: bool = False
    client: str | None = None
    project: str | None = None

    @property
    def is_governable(self) -> bool:
        """False for a result of Spillgate itself, and for names that POST /results does not take."""
        command = self.arguments.get("command") if isinstance(self.arguments, dict) else None
        is_own = OWN_TOOL.fullmatch(self.tool) or (
            isinstance(command, str) and _OWN_COMMAND.fullmatch(command)
        )
        named = _NAME.fullmatch(self.tool) and (self.call_id is None or len(self.call_id) <= MAX_NAME)
        return bool(self.texts or self.structured) and bool(named) and not is_own

    @property
    def may_pay(self) -> bool:
        """False if the agent has cut the result, and its model loses more by a message than it is spared. A
        notice or preview of up to two messages costs the model little to lose: the whole output is then
        stored."""
        if not (self.is_cut or self.spilled):
            return True
        shown = self._shown_bytes
        return shown >= PAYING_BYTES or (self.spilled is not None and shown <= 2 * _MESSAGE_BYTES)

    def pays(self, replacement: str) -> bool:
        """False for a replacement that is too large beside what the agent shows of a result that it has cut.
        Policies that show a part of the result write such texts."""
        size = len(replacement.encode())
        if not (self.is_cut or self.spilled) or size <= _MESSAGE_BYTES:
            return True
        return 3 * (size + _ANSWER_BYTES) <= self._shown_bytes

    @property
    def _shown_bytes(self) -> int:
        return sum(len(text.encode("utf-8", "replace")) for text in self.texts)

    @property
    def session_id(self) -> str:
        return session_id_of(self.session)


class PendingCall(NamedTuple):
    """A call of a tool that is about to run. `changed` makes the agent's JSON for other arguments, `refused`
    for a call that is not to run, with what the model reads instead."""

    tool: str
    session: str
    arguments: Any
    changed: Callable[[Any], HookAnswer]
    refused: Callable[[str], HookAnswer]

    @property
    def session_id(self) -> str:
        return session_id_of(self.session)

    @property
    def refers(self) -> bool:
        """Whether the arguments refer to stored results that are to be put in their place. A relay does so
        itself for the tools of the MCP server behind it."""
        if OWN_TOOL.fullmatch(self.tool) or not _NAME.fullmatch(self.tool):
            return False
        references = references_in(self.arguments)
        is_relayed = self.tool.startswith("mcp_") and all(map(is_of_relay, references))
        return bool(references) and not is_relayed


class Client(NamedTuple):
    """A coding agent. `read` reads the JSON of its hook: None for a shape that is not replaced. `inner_json`
    names a member of it that is JSON in a string. `before` reads the JSON of its hook before a call: None for
    any other. `outputs` are the files in which the agent leaves whole
    outputs, None if each session has a folder for them, beside its transcript."""

    read: Callable[[Any], HookCall | None]
    door: Door
    inner_json: str = ""
    before: Callable[[Any], PendingCall | None] = lambda payload: None
    outputs: re.Pattern[str] | None = None


def session_id_of(session: str) -> str:
    """The agent's session, or a digest of it if POST /results would not take it."""
    if _SESSION_ID.fullmatch(session):
        return session
    return sha256(session.encode("utf-8", "replace")).hexdigest()[:32]


def ended_session(payload: Any) -> str | None:
    """The session that a SessionEnd hook of Claude Code or Gemini CLI reports as over; None for others."""
    is_end = text_in(payload, "hook_event_name") == "SessionEnd"
    session = text_in(payload, "session_id") if is_end else None
    return None if session is None else session_id_of(session)


def session_of(session: str, payload: Any) -> str:
    """A subagent has a window of its own, and so a session of its own."""
    agent = text_in(payload, "agent_id")
    return session if agent is None else f"{session}.{agent}"


def project_in(payload: Any) -> str | None:
    """The project of the agent."""
    match payload:
        case {"workspace_roots": [str(root), *_]}:
            return project_of(root)
    return project_of(text_in(payload, "cwd") or "")


def in_shell(text: str, program: str) -> str:
    """The text, with the command that asks about a stored result as the agent's shell has to call it."""
    return _ASKS_BY_SHELL.sub(lambda found: program, text)


def text_in(value: Any, name: str) -> str | None:
    """The member of this name; None if it is no text, or empty."""
    text = value.get(name) if isinstance(value, dict) else None
    return text if isinstance(text, str) and text else None


def texts_of(blocks: Any) -> list[str] | None:
    """The texts of a list of MCP content blocks, contents of a resource, or Gemini's parts. None for any
    other shape, and for blocks without text."""
    if not isinstance(blocks, list):
        return None
    texts = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
                texts.append(text)
            case {"text": str(text)} if "type" not in block:
                texts.append(text)
            case _ if not isinstance(block, dict):
                return None
    return texts or None


def only_texts(blocks: Any) -> list[str] | None:
    """The texts of such a list; None also if something else, such as a picture, would be lost."""
    texts = texts_of(blocks)
    return texts if texts is not None and len(texts) == len(blocks) else None


def in_blocks(blocks: list[Any], text: str) -> list[Any]:
    """The blocks with `text` in place of their texts; pictures and others stay."""
    others = [block for block in blocks if texts_of([block]) is None]
    return [{"type": "text", "text": text}, *others]


def codex(payload: Any) -> HookCall | None:
    """PostToolUse. The reason of a "block" becomes the tool's output; the tool itself has run. Of the result
    of an MCP tool, the model is shown the structured content alone, if there is any."""
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
                structured=structured,
                is_cut=isinstance(response, str) and response.startswith(_CUT_BY_CODEX),
            )
    return None


def copilot(payload: Any) -> HookCall | None:
    """postToolUse. It names no call. Of an output of more than about 20 KB it shows the beginning, and names
    the file that holds the whole."""
    match payload:
        case {
            "sessionId": str(session),
            "toolName": str(tool),
            "toolResult": {"resultType": "success", "textResultForLlm": str(text)},
        }:
            saved = _SAVED_BY_COPILOT.match(text)
            return HookCall(
                tool=tool,
                session=session,
                texts=[text],
                spilled=None if saved is None else saved["path"],
                answer=lambda text: {"modifiedResult": {"resultType": "success", "textResultForLlm": text}},
                arguments=payload.get("toolArgs"),
            )
    return None


def gemini(payload: Any) -> HookCall | None:
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
                arguments=payload.get("tool_input"),
                is_error=response.get("error") is not None,
            )
    return None


def cursor(payload: Any) -> HookCall | None:
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
                call_id=text_in(payload, "tool_use_id"),
                arguments=payload.get("tool_input"),
                is_error=output.get("isError") is True,
            )
    return None


def opencode(payload: Any) -> HookCall | None:
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
                call_id=text_in(call, "callID"),
                arguments=call.get("args"),
                is_error=output.get("isError") is True,
                spilled=text_in(output.get("metadata"), "outputPath"),
            )
    return None


def pi(payload: Any) -> HookCall | None:
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
                call_id=text_in(payload, "toolCallId"),
                arguments=payload.get("input"),
                is_error=payload.get("isError") is True,
                spilled=text_in(payload.get("details"), "fullOutputPath"),
            )
    return None


def _unwrapped(text: str) -> str:
    """JSON can be queried only without the tags. A LongText stays as it is."""
    if text.startswith(_OPENING) and text.endswith(_CLOSING):
        return text[len(_OPENING) : -len(_CLOSING)]
    return text


def claude_code(payload: Any) -> HookCall | None:
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
                spilled=_spilled(response),
            )
    return None


def is_other_agent(payload: Any) -> bool:
    """Whether the JSON of Claude Code's hooks is that of Cursor."""
    return isinstance(payload, dict) and bool({"cursor_version", "conversation_id"} & payload.keys())


def _mcp(response: Any) -> Found:
    """A list of content blocks; a string if the result was structured or too large."""
    if isinstance(response, str):
        return [response], lambda text: text
    return texts_of(response), lambda text: in_blocks(response, text)


def _built_in(tool: str, response: Any) -> Found:
    match tool, response:
        case "Bash", {"stdout": str(out), "stderr": str(err)} if not response.get("isImage"):
            members = {name: value for name, value in response.items() if not name.startswith("persisted")}
            return [out, err] if err else [out], lambda text: {**members, "stdout": text, "stderr": ""}
        case "Read", {"type": "text", "file": {"content": str(content)} as file}:
            return [content], lambda text: {
                **response,
                "file": {**file, "content": text, "numLines": text.count("\n") + 1, "startLine": 1},
            }
        case "Grep", {"mode": "content", "content": str(content)}:
            # With a limit left in place, Claude Code would add a line about paging.
            paging = ("appliedLimit", "appliedOffset")
            members = {name: value for name, value in response.items() if name not in paging}
            return [content], lambda text: {**members, "content": text, "numLines": text.count("\n") + 1}
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


def before_claude_code(payload: Any) -> PendingCall | None:
    """PreToolUse. Without a decision, the agent asks for its permissions as ever, about the new arguments."""
    return None if is_other_agent(payload) else _before("PreToolUse", payload, {})


def before_codex(payload: Any) -> PendingCall | None:
    """PreToolUse. Codex takes new arguments only with a decision; its approvals and sandbox hold all the
    same."""
    return _before("PreToolUse", payload, {"permissionDecision": "allow"})


def _before(event: str, payload: Any, decision: HookAnswer) -> PendingCall | None:
    match payload:
        case {
            "hook_event_name": name,
            "session_id": str(session),
            "tool_name": str(tool),
            "tool_input": {**arguments},
        } if name == event:
            head = {"hookEventName": event}
            return PendingCall(
                tool,
                session_of(session, payload),
                arguments,
                lambda given: {"hookSpecificOutput": {**head, **decision, "updatedInput": given}},
                lambda why: {
                    "hookSpecificOutput": {
                        **head,
                        "permissionDecision": "deny",
                        "permissionDecisionReason": why,
                    }
                },
            )
    return None


def before_gemini(payload: Any) -> PendingCall | None:
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
                lambda given: {"hookSpecificOutput": {"hookEventName": "BeforeTool", "tool_input": given}},
                lambda why: {"decision": "deny", "reason": why},
            )
    return None


# Gemini's `read_many_files` is governed: it has no limit of its own.
_CLAUDE_CODE_READS = frozenset({"Read", "NotebookRead"})

CLIENTS = {
    "claude-code": Client(
        claude_code,
        Door(
            "mcp__spillgate__",
            has_shell=True,
            passes_on="any",
            reads=_CLAUDE_CODE_READS,
            own_limit_bytes=CLAUDE_CODE_CHARS,
        ),
        before=before_claude_code,
    ),
    "claude-code-plugin": Client(
        claude_code,
        Door(
            "mcp__plugin_spillgate_spillgate__",
            has_shell=True,
            passes_on="any",
            reads=_CLAUDE_CODE_READS,
            own_limit_bytes=CLAUDE_CODE_CHARS,
        ),
        before=before_claude_code,
    ),
    # Codex shows 2,500 tokens of a hook's reason, and finds the tools of MCP servers only by a search.
    "codex": Client(
        codex,
        Door(
            "mcp__spillgate__",
            has_shell=True,
            most_bytes=8000,
            needs_search="tool_search",
            passes_on="any",
            reads=frozenset({"read_file"}),
            own_limit_bytes=CODEX_BYTES,
        ),
        before=before_codex,
    ),
    "copilot": Client(
        copilot,
        Door("spillgate-", has_shell=True, reads=frozenset({"view", "str_replace_editor"})),
        outputs=re.compile(r"/.*/[0-9]+-copilot-tool-output-[^/]+\.txt"),
    ),
    "cursor": Client(
        cursor, Door(has_shell=True, reads=frozenset({"Read", "read_file"})), inner_json="tool_output"
    ),
    "gemini": Client(
        gemini,
        Door("mcp_spillgate_", has_shell=True, passes_on="any", reads=frozenset({"read_file"})),
        before=before_gemini,
    ),
    "opencode": Client(
        opencode,
        Door(
            "spillgate_",
            has_shell=True,
            passes_on="any",
            reads=frozenset({"read"}),
            own_limit_bytes=OPENCODE_BYTES,
        ),
        outputs=re.compile(r"/.*/tool-output/[^/]+"),
    ),
    "pi": Client(
        pi,
        Door(has_shell=True, passes_on="any", reads=frozenset({"read"}), own_limit_bytes=PI_BYTES),
        outputs=re.compile(r"/.*/pi-bash-[^/]+\.log"),
    ),
}

DOORS = {name: client.door for name, client in CLIENTS.items()} | {
    "pipe": Door(has_shell=True, has_tools=False)
}
"""By the name that POST /results takes as `door`."""
