"""The client through which a result comes, and how its model calls our tools. Light: hooks import it."""

import re
from typing import NamedTuple

from domain.file_reads import reads_one_file


class Door(NamedTuple):
    """What is known of the client that a result comes through, and of what its model can do."""

    # The model's tools.
    has_tools: bool = True
    """The model has Spillgate's tools."""
    knows_tools: bool = True
    """It is known which tools the model has. Otherwise texts name the handle and the file, and a tool only if
    the policy's `tool_names` does."""
    tool_prefix: str = ""
    """Stands before the names of Spillgate's tools as the model sees them."""
    tool_name: str = ""
    """The client's own name for `tool_output`."""
    needs_search: str = ""
    """The tool that the model must call first to find Spillgate's tools."""
    call: str = ""
    """The call that the texts name instead of Spillgate's tools."""
    has_shell: bool = False
    """The model can run `spillgate ask`."""
    passes_on: str = ""
    """The tools that may be given references to stored results (`domain.references`): `any`, or those of the
    `server` that the result is from; "" for none."""

    # Results that pass.
    reads: frozenset[str] = frozenset()
    """The client's tools that read a file to edit it."""
    passes: frozenset[str] = frozenset()
    """Other tools whose results pass: the report of a sub-agent, which was written for the model that reads
    it."""
    shells: frozenset[str] = frozenset()
    """The tools with whose commands the model reads files to edit them."""

    # Hooks.
    is_hook: bool = False
    """The client is the hook of a coding agent."""
    hooked: str = ""
    """A pattern of the tools whose results the client's hooks may replace; "" for all."""
    hooks_failures: bool = True
    """The hooks may also replace the results of failed calls."""

    # Sizes and budgets.
    most_bytes: int = 0
    """The largest replacement that the client shows whole; 0 = any."""
    own_limit_bytes: int = 0
    """What the client itself shows of a larger result; 0 = unknown."""
    keeps_budget: bool = True
    """The token budget of the session holds. Otherwise only size caps hold, unless the session declares a
    window."""

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


TOOL_NAMES = frozenset({"tool_output", "tool_output_grep", "tool_output_lines", "tool_output_query"})
"""The tools that a service may offer to a model."""
