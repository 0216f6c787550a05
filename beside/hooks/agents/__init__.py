"""Coding agents, a file each: what the JSON of their hooks means, the answer to it, and their settings files.

The service and `spillgate hook` both import this package, which therefore uses the standard library only.
What reads the JSON of a hook goes by names and shapes, never by the text of a result: in the service, that
may still be JSON (see `content.json_text.LongText`).
"""

from typing import Protocol

from beside.hooks.agents import claude_code, codex, copilot, cursor, gemini, opencode, pi
from beside.hooks.files import InstallPlan
from domain.doors import Door
from domain.hooks.call import Client


class Agent(Protocol):
    """The module of an agent."""

    CLIENT: Client
    PLAN: InstallPlan


AGENTS: dict[str, Agent] = {
    "claude-code": claude_code,
    "codex": codex,
    "copilot": copilot,
    "cursor": cursor,
    "gemini": gemini,
    "opencode": opencode,
    "pi": pi,
}

PLANS = {name: agent.PLAN for name, agent in AGENTS.items()}

_CLIENTS = {
    "claude-code": claude_code.CLIENT,
    "claude-code-plugin": claude_code.PLUGIN,
    **{name: agent.CLIENT for name, agent in AGENTS.items()},
}

CLIENTS: dict[str, Client] = {
    name: client._replace(door=client.door._replace(is_hook=True)) for name, client in _CLIENTS.items()
}

DOORS = {name: client.door for name, client in CLIENTS.items()} | {
    "pipe": Door(has_shell=True, has_tools=False)
}
"""By the name that POST /results takes as `door`."""
