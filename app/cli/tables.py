"""Tables of plain text for a terminal."""

from collections.abc import Iterable, Sequence


def table(rows: Iterable[Sequence[str]], heads: Sequence[str]) -> str:
    """Columns as wide as their longest cell, indented by two."""
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(f"  {line}".rstrip() for line in padded)
