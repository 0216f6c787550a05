"""What the hook of any coding agent says: a call that has ended, or one that is about to run."""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

from domain.doors import Door, project_of
from domain.hooks.texts import text_in
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
    r"\s*(?:env\s+SPILLGATE_(?:URL|UDS)=\S+\s+)?(?:\S*/)?spillgate\s+(?:ask|grep|lines|query)\s[^;&|\n]*"
)
_ASKS_BY_SHELL = re.compile(r"(?<![\w/.-])spillgate(?= (?:ask|grep|lines|query|cat) (?:session-|HANDLE ))")

_MESSAGE_BYTES = 1000
"""The most bytes of a handle message for a coding agent, with its preview."""

_ANSWER_BYTES = 3072
"""The usual size of an answer to a question about a stored result."""

PAYING_BYTES = 3 * (650 + _ANSWER_BYTES)
"""What an agent shows of a result that it has cut is replaced from this size on: three times a handle message
and an answer. A question costs the model a turn more, too."""


def cut_may_pay(shown: int, *, has_file: bool) -> bool:
    """Whether a message may cost the model less than the bytes that the agent shows of a result that it has
    cut. A notice or preview of up to two messages costs the model little to lose: the whole output, if it is
    in a file, is then stored."""
    return shown >= PAYING_BYTES or (has_file and shown <= 2 * _MESSAGE_BYTES)


def cut_pays(shown: int, replacement: int) -> bool:
    """False for a replacement of so many bytes that is too large beside what the agent shows. Policies that
    show a part of the result write such texts."""
    return replacement <= _MESSAGE_BYTES or 3 * (replacement + _ANSWER_BYTES) <= shown


class HookCall(NamedTuple):
    """`texts` are the result, with a newline between two. `answer` makes the agent's JSON for a replacement.
    `shown` is all that the agent shows its model, with the texts in it. `spilled` is the file in which the
    agent left the whole output, if `texts` are only a part of it. `is_cut` is True if they are only a part,
    whether there is such a file or not. `status_in`: the transcript that alone has the exit status of the
    command, "" if the agent names none. A replacement would hide a failure that it does not tell, so that the
    result then passes. `structured` is what an agent shows its model instead of the texts:
    it is the result if its JSON is more than twice as large as they are. `client` and `project` are for the
    accounting."""

    tool: str
    session: str
    texts: list[str]
    answer: Callable[[str], HookAnswer]
    shown: Any
    call_id: str | None = None
    arguments: Any = None
    is_error: bool = False
    spilled: str | None = None
    structured: dict[str, Any] | None = None
    is_cut: bool = False
    status_in: str | None = None
    client: str | None = None
    project: str | None = None

    @property
    def is_governable(self) -> bool:
        """False for a result of Spillgate itself, and for a tool name or call id that POST /results
        rejects."""
        command = self.arguments.get("command") if isinstance(self.arguments, dict) else None
        is_own = OWN_TOOL.fullmatch(self.tool) or (
            isinstance(command, str) and _OWN_COMMAND.fullmatch(command)
        )
        named = _NAME.fullmatch(self.tool) and (self.call_id is None or len(self.call_id) <= MAX_NAME)
        return bool(self.texts or self.structured) and bool(named) and not is_own

    @property
    def may_pay(self) -> bool:
        """False if the agent has cut the result, and a message would cost its model more than it saves."""
        is_whole = not (self.is_cut or self.spilled)
        return is_whole or cut_may_pay(self._shown_bytes, has_file=self.spilled is not None)

    def pays(self, replacement: str) -> bool:
        """False for a replacement that is too large beside what the agent shows of a result that it has
        cut."""
        is_whole = not (self.is_cut or self.spilled)
        return is_whole or cut_pays(self._shown_bytes, len(replacement.encode()))

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
        try:
            references = references_in(self.arguments)
        except RecursionError:
            return True  # The call is then refused.
        is_relayed = self.tool.startswith("mcp_") and all(map(is_of_relay, references))
        return bool(references) and not is_relayed


class Client(NamedTuple):
    """A coding agent. `read` reads the JSON of its hook: None for a shape that is not replaced. `inner_json`
    names a member of it that is JSON in a string. `before` reads the JSON of its hook before a call: None for
    any other. `outputs` are the files in which the agent leaves whole outputs, None if each session has a
    folder for them, beside its transcript. `with_status` returns a call whose exit status stands in a line of
    one of the `transcripts` with that status; None if the line does not have it."""

    read: Callable[[Any], HookCall | None]
    door: Door
    inner_json: str = ""
    before: Callable[[Any], PendingCall | None] = lambda payload: None
    outputs: re.Pattern[str] | None = None
    transcripts: re.Pattern[str] | None = None
    with_status: Callable[[HookCall, bytes], HookCall | None] = lambda call, line: None


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
    """A subagent has its own window, and so its own session."""
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
