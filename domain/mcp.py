"""What is known of the Model Context Protocol and of its clients. Light: the relay imports it."""

from typing import NamedTuple

MCP_META = "io.modelcontextprotocol/"
"""What the names of MCP's own members of `_meta` begin with."""

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that MCP's header Mcp-Name repeats, of each method that has one."""


class McpClient(NamedTuple):
    """A client of MCP that runs one conversation, and its subagents, in a process. `prefix` is what its model
    sees before the name of a tool, with the server's name in the client's settings for `{}`. `relists`: it
    asks for the tools again within a run when a server says that they have changed."""

    prefix: str
    relists: bool = False


MCP_CLIENTS = {
    "claude-code": McpClient("mcp__{}__", relists=True),
    "copilot-cli": McpClient("{}-", relists=True),
    "gemini-cli-mcp-client": McpClient("mcp_{}_"),
    "opencode": McpClient("{}_", relists=True),
}
"""By the name in its `clientInfo`. Seen with the versions that docs/reference/compatibility.md names."""
