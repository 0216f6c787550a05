"""The table that `make release-check` prints at its end."""

lines: list[str] = []


def report(what: str, figure: float, wanted: float, unit: str) -> None:
    """Adds a line. Fails above three times what is wanted: on a busy machine, a time may double."""
    lines.append(f"{what:<64}{figure:>8.2f} {unit:<3} wanted <= {wanted} {unit}")
    assert figure <= 3 * wanted, lines[-1]
