"""The hooks of coding agents, a file each: what their JSON means, and the answer to it.

The service and `spillgate hook` both import this package, which therefore uses the standard library only.
What reads the JSON of a hook goes by names and shapes, never by the text of a result: in the service, that
may still be JSON (see `content.json_text.LongText`).
"""

from domain.doors import Door
from domain.hooks import claude_code, codex, copilot, cursor, gemini, opencode, pi
from domain.hooks.call import Client

_CLIENTS = {
    "claude-code": claude_code.client("mcp__spillgate__"),
    "claude-code-plugin": claude_code.client("mcp__plugin_spillgate_spillgate__"),
    "codex": codex.CLIENT,
    "copilot": copilot.CLIENT,
    "cursor": cursor.CLIENT,
    "gemini": gemini.CLIENT,
    "opencode": opencode.CLIENT,
    "pi": pi.CLIENT,
}

CLIENTS: dict[str, Client] = {
    name: client._replace(door=client.door._replace(is_hook=True)) for name, client in _CLIENTS.items()
}

DOORS = {name: client.door for name, client in CLIENTS.items()} | {
    "pipe": Door(has_shell=True, has_tools=False)
}
"""By the name that POST /results takes as `door`."""
