"""Doors: what is known of the client through which a result comes, and what follows for its texts."""

from domain.results import Door
from policies.facts import Policy

DOORS: dict[str, Door] = {
    "claude-code": Door(tool_prefix="mcp__spillgate__", has_shell=True),
    "claude-code-plugin": Door(tool_prefix="mcp__plugin_spillgate_spillgate__", has_shell=True),
    # Codex shows 2,500 tokens of a hook's reason, and finds the tools of MCP servers only by a search.
    "codex": Door(
        tool_prefix="mcp__spillgate__", has_shell=True, most_bytes=8000, needs_search="tool_search"
    ),
    "copilot": Door(tool_prefix="spillgate-", has_shell=True),
    "cursor": Door(has_shell=True),
    "gemini": Door(tool_prefix="mcp_spillgate_", has_shell=True),
    "opencode": Door(tool_prefix="spillgate_", has_shell=True),
    "pi": Door(has_shell=True),
    "pipe": Door(has_shell=True, has_tools=False),
}
"""By the name that POST /results takes as `door`. Client names are those of POST /hooks/{client}."""


def bounded(policy: Policy, door: Door | None) -> Policy:
    """The policy, with a size cap that the door's client shows whole."""
    if door is None or not door.most_bytes or 0 < policy.max_bytes <= door.most_bytes:
        return policy
    return policy.model_copy(update={"max_bytes": door.most_bytes})
