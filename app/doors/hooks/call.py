"""One call of a tool, as an agent's hook reports it, and what all agents' hooks have in common.

The service and `spillgate hook` both import this module and the agents, which therefore use the standard
library only. What reads the JSON of a hook goes by names and shapes, never by the text of a result: in the
service, a position may stand for it (see `app.edge.documents.Document`).
"""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

Answer = dict[str, Any]

MAX_NAME = 256
"""Characters of a tool's name and of a call id, as POST /results takes them."""

_SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@=+~-]{0,127}")
_NAME = re.compile(rf"[^\x00-\x1f\x7f]{{1,{MAX_NAME}}}")
OWN_TOOL = re.compile(
    r"(?:.*[^A-Za-z0-9])?tool_output(?:_grep|_lines|_query)?"
    r"|(?:mcp__(?:plugin_spillgate_)?spillgate__|mcp_spillgate_|spillgate[_-]).*"
)
_OWN_COMMAND = re.compile(r"\s*(?:\S*/)?spillgate\s+(?:ask|grep|lines|query)\s[^;&|\n]*")


class Call(NamedTuple):
    """`texts` are the result, with a newline between two. `answer` makes the agent's JSON for a replacement.
    `spilled` is the file in which the agent left the whole output, if `texts` are only a part of it."""

    tool: str
    session: str
    texts: list[str]
    answer: Callable[[str], Answer]
    call_id: str | None = None
    arguments: Any = None
    is_error: bool = False
    spilled: str | None = None

    @property
    def is_governable(self) -> bool:
        """False for a result of Spillgate itself, and for names that POST /results does not take."""
        command = self.arguments.get("command") if isinstance(self.arguments, dict) else None
        is_own = OWN_TOOL.fullmatch(self.tool) or (
            isinstance(command, str) and _OWN_COMMAND.fullmatch(command)
        )
        named = _NAME.fullmatch(self.tool) and (self.call_id is None or len(self.call_id) <= MAX_NAME)
        return bool(self.texts) and bool(named) and not is_own

    @property
    def session_id(self) -> str:
        return session_id_of(self.session)


class Client(NamedTuple):
    """A coding agent. `read` reads the JSON of its hook: None for a shape that is not replaced. `inner_json`
    names a member of it that is JSON in a string. `outputs` are the files in which the agent leaves whole
    outputs, None if each session has a folder for them, beside its transcript."""

    read: Callable[[Any], Call | None]
    inner_json: str = ""
    outputs: re.Pattern[str] | None = None


def session_id_of(session: str) -> str:
    """The agent's session, or a digest of it if POST /results would not take it."""
    if _SESSION_ID.fullmatch(session):
        return session
    return sha256(session.encode("utf-8", "replace")).hexdigest()[:32]


def session_of(session: str, payload: Any) -> str:
    """A subagent has a window of its own, and so a session of its own."""
    agent = text_in(payload, "agent_id")
    return session if agent is None else f"{session}.{agent}"


def text_in(value: Any, name: str) -> str | None:
    """The member of this name; None if it is no text, or empty."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) and found else None


def texts_of(blocks: Any) -> list[str] | None:
    """The texts of a list of MCP content blocks, contents of a resource, or Gemini's parts. None for any
    other shape, and for blocks without text."""
    if not isinstance(blocks, list):
        return None
    texts = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "resource", "resource": {"text": str(text)}}:
                texts.append(text)
            case {"text": str(text)} if "type" not in block:
                texts.append(text)
            case dict():
                continue
            case _:
                return None
    return texts or None


def only_texts(blocks: Any) -> list[str] | None:
    """As `texts_of`; None too if a picture, say, would be lost with the texts."""
    texts = texts_of(blocks)
    return texts if texts is not None and len(texts) == len(blocks) else None


def in_blocks(blocks: list[Any], text: str) -> list[Any]:
    """The blocks with `text` in place of their texts; pictures and others stay."""
    others = [block for block in blocks if texts_of([block]) is None]
    return [{"type": "text", "text": text}, *others]
