"""The schema of a store or a ledger: its number, and the version of Spillgate that wrote it."""

from dataclasses import dataclass

from domain import __version__


@dataclass(frozen=True, slots=True)
class Schema:
    """What a place says of itself. `written_by` is "" if it does not say which version that was."""

    number: int
    written_by: str


def refusal(place: str, found: Schema, known: int) -> str | None:
    """Returns why this version must not use the place, and what to do; None if it may."""
    if found.number == known:
        return None
    writer = f"Spillgate {found.written_by}" if found.written_by else "another version of Spillgate"
    says = (
        f"{place} was written by {writer} (schema {found.number}). This is Spillgate {__version__}, which "
        f"reads schema {known}."
    )
    if found.number > known:
        return f"{says} Start that version or a newer one, or restore a backup from before the upgrade."
    return (
        f"{says} It cannot be migrated. Start the version that wrote it until its results have expired, or "
        "use another place."
    )
