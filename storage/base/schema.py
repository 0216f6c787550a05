"""The schema of a store or a ledger, and the version that wrote it. Another schema is refused."""

from dataclasses import dataclass

import msgspec

from domain import __version__
from domain.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Schema:
    """The mark that a store or a ledger keeps. `written_by` is "" if the mark names no version."""

    number: int
    written_by: str = __version__


_decode = msgspec.json.Decoder(Schema).decode


def mark(number: int) -> bytes:
    """The schema of this version, as JSON."""
    return msgspec.json.encode(Schema(number))


def check_mark(owner: str, name: str, text: bytes, known: int) -> None:
    """`text` is the mark of the `owner`, in the file or object `name`. Raises ConfigError for the mark of
    another schema, and for a damaged one."""
    try:
        refused = refusal(owner, _decode(text), known)
    except msgspec.DecodeError:
        refused = f"{name} is damaged. Restore it from a backup."
    if refused is not None:
        raise ConfigError(refused)


def refusal(owner: str, schema: Schema, known: int) -> str | None:
    """Returns why this version must not use the `owner` of the schema, and what to do; None if it may."""
    if schema.number == known:
        return None
    writer = f"Spillgate {schema.written_by}" if schema.written_by else "another version of Spillgate"
    says = (
        f"{owner} was written by {writer} (schema {schema.number}). This is Spillgate {__version__}, which "
        f"reads schema {known}."
    )
    if schema.number > known:
        return f"{says} Start that version or a newer one, or restore a backup from before the upgrade."
    return (
        f"{says} It cannot be migrated. Start the version that wrote it until its results have expired, or "
        "use another path or URL."
    )
