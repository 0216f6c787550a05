"""The table that `make release-check` prints at its end."""

lines: list[str] = []


def report(what: str, figure: float, wanted: float, unit: str) -> None:
    """Adds a line. A time beyond what is wanted fails nothing: the machine may be slow or busy."""
    lines.append(f"{what:<64}{figure:>8.2f} {unit:<3} wanted <= {wanted} {unit}")
