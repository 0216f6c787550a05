"""What other ways of handling a large result would have shown: the limits of clients, and truncation."""

from collections.abc import Callable
from dataclasses import dataclass

from content.text import cut_head, cut_tail
from domain.doors import CLAUDE_CODE_CHARS, CODEX_BYTES

CLAUDE_CODE_PREVIEW_BYTES = 2048
TRUNCATION_BYTES = 12_288
KEPT_RESULTS = 3
"""The number of results that Anthropic's clearing of tool results keeps by default."""

CLEARED = "[Old tool result content cleared]"


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a result that is shown. `has_file`: the whole result is in a file that a shell can
    search."""

    text: str
    has_file: bool = False


def claude_code(text: str) -> Cut | None:
    """30,000 characters; of more, a preview of 2 KB and the path of a file."""
    if len(text) <= CLAUDE_CODE_CHARS:
        return None
    preview = cut_head(text.encode(), CLAUDE_CODE_PREVIEW_BYTES).decode()
    note = f"Output too large ({len(text) / 1024:.1f}KB). Full output saved to: /tmp/tool-results/output.txt"
    return Cut(
        f"<persisted-output>\n{note}\n\nPreview (first 2KB):\n{preview}\n...\n</persisted-output>",
        has_file=True,
    )


def codex(text: str) -> Cut | None:
    """10,000 tokens: the beginning and the end."""
    return _ends(text, CODEX_BYTES, "…{} tokens truncated…", 4)


def truncation(text: str) -> Cut | None:
    """12 KB: the beginning and the end."""
    return _ends(text, TRUNCATION_BYTES, "\n... [{} bytes truncated] ...\n", 1)


def _ends(text: str, most: int, marker: str, unit: int) -> Cut | None:
    data = text.encode()
    if len(data) <= most:
        return None
    head, tail = cut_head(data, most // 2).decode(), cut_tail(data, most // 2).decode()
    return Cut(f"{head}{marker.format((len(data) - most) // unit)}{tail}")


BASELINES: dict[str, Callable[[str], Cut | None]] = {
    "Claude Code's own": claude_code,
    "Codex's own": codex,
    "truncate to 12 KB": truncation,
}
"""The baselines by label. Each returns None for a result that it shows whole."""
