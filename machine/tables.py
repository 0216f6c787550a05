"""Tables of plain text for a terminal."""

from collections.abc import Collection, Iterable, Sequence


def table(
    rows: Iterable[Sequence[str]], heads: Sequence[str], *, right: Collection[int] = (), indent: str = ""
) -> str:
    """Columns are as wide as their longest cell. `right`: the indexes of the right-aligned columns."""
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(cells)
        ]
        for cells in (zip(line, widths, strict=True) for line in lines)
    )
    return "\n".join(f"{indent}{'  '.join(cells)}".rstrip() for cells in padded)
