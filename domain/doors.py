"""The client through which a result comes, and how its model calls our tools. Light: hooks import it."""

import re
from typing import NamedTuple

from domain.file_reads import reads_one_file


class Door(NamedTuple):
    """`tool_prefix` stands before the names of Spillgate's tools as the client's model sees them;
    `needs_search` names the tool that the model must call first to find them. Without `has_tools` the model
    has none of them. `has_shell`: it can run `spillgate ask`. `passes_on`: whose tools
    may be given references to stored results (`domain.references`): `any`, or those of the `server` that the
    result is from; "" for none. `most_bytes` of a replacement are shown whole,
    0 for any number. `own_limit_bytes`: what the client itself shows of a larger result, 0 if that is not
    known. `call`: what the model calls instead of our tools, as the texts are to say it. `reads` are the
    client's own tools that read a file to edit it: their results pass. `passes` are others whose results
    pass: the report of a sub-agent, which was written for the model that reads it. `shells` are the tools
    with whose commands the client's model reads files to edit them. `hooked` is a pattern of the tools whose
    results the client's hooks may replace, "" for all; those of failed calls only with `hooks_failures`.
    `is_hook`: it is that of a coding agent's hook. `tool_name`: what the client calls
    `tool_output`. Without `knows_tools` nothing is known of what the model has: texts name the handle and the
    file, and a tool only if the policy's `tool_names` does. Without `keeps_budget` the results are held to
    size caps alone, unless their session declares a window."""

    tool_prefix: str = ""
    call: str = ""
    needs_search: str = ""
    has_tools: bool = True
    has_shell: bool = False
    passes_on: str = ""
    most_bytes: int = 0
    reads: frozenset[str] = frozenset()
    passes: frozenset[str] = frozenset()
    shells: frozenset[str] = frozenset()
    hooked: str = ""
    hooks_failures: bool = True
    is_hook: bool = False
    own_limit_bytes: int = 0
    tool_name: str = ""
    knows_tools: bool = True
    keeps_budget: bool = True

    def of_call(self, tool: str, arguments: str | None) -> "Door":
        """The door for the result of this call: one of a command that only reads a file passes."""
        is_read = tool in self.shells and reads_one_file(arguments)
        return self._replace(passes=self.passes | {tool}) if is_read else self


CLAUDE_CODE_CHARS = 30_000
CODEX_BYTES = 40_000
"""Codex counts 10,000 tokens as four bytes each."""
OPENCODE_BYTES = PI_BYTES = 50 << 10


_PROJECT = re.compile(r"[^\x00-\x1f\x7f]{1,128}")


def project_of(folder: str) -> str | None:
    """The name of the folder that a client works in: the accounting has no more of its path."""
    name = re.split(r"[/\\]", folder.rstrip("/\\"))[-1]
    return name if _PROJECT.fullmatch(name) else None


MCP_META = "io.modelcontextprotocol/"
"""What the names of MCP's own members of `_meta` begin with."""

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that MCP's header Mcp-Name repeats, of each method that has one."""

TOOL_NAMES = frozenset({"tool_output", "tool_output_grep", "tool_output_lines", "tool_output_query"})
"""The tools that a service may offer to a model."""


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
