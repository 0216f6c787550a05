"""The keys of encryption at rest, and how a sealed text is recognised."""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from domain.errors import StoreUnavailable
from domain.results import StoredResult

PREFIX = "spillgate-sealed-1:"
"""How a sealed text begins."""

KEY_SETTING = "SPILLGATE_STORAGE_KEY_FILE"
KEY_BYTES = 32
MOST_ID = 32
"""The most characters of a key's id, for which every sealed body has a field of this size."""

_MARK_CHARS = 8

_ID = rf"[A-Za-z0-9_.-]{{1,{MOST_ID}}}"
_LINE = re.compile(rf"(?P<id>{_ID}):(?P<secret>.*)")


class UnknownKey(StoreUnavailable):
    """The text was sealed with a key that is not in the key file, or whose id there names another key."""

    def __init__(self, key_id: str, *, has_another: bool = False) -> None:
        name = key_id if re.fullmatch(_ID, key_id) else "unreadable"
        another = ", of which the file has another key" if has_another else ""
        super().__init__(
            "This was encrypted with a key that SPILLGATE_STORAGE_KEY_FILE does not have. The operator can "
            "put the line of that key back into the file.",
            cause=f"key id {name}{another}",
        )


@dataclass(frozen=True)
class StorageKey:
    id: str
    secret: bytes = field(repr=False)

    @cached_property
    def mark(self) -> str:
        """Distinguishes this key from another key with the same id."""
        return hashlib.sha256(b"spillgate storage key" + self.secret).hexdigest()[:_MARK_CHARS]


class KeyRing(Protocol):
    @property
    def in_force(self) -> dict[str, StorageKey]:
        """The keys by their ids; there is at least one. The first key seals; each key opens what it
        sealed."""
        ...

    @property
    def warnings(self) -> list[str]:
        """Messages for the operator."""
        ...


class KeyLines(NamedTuple):
    """The keys of a file by their ids, and for each line that is not in force its number and the reason."""

    keys: dict[str, StorageKey]
    faults: list[str]


def is_sealed(text: str | None) -> bool:
    return text is not None and text.startswith(PREFIX)


def refuse_sealed(stored: StoredResult) -> None:
    """For a process without keys. Raises UnknownKey for a result that another process sealed."""
    text = stored.tool_arguments or ""
    # Arguments may begin with PREFIX, too. The SHA-256 of a sealed info is that of its sealed text.
    if is_sealed(text) and hashlib.sha256(text.encode()).hexdigest() == stored.sha256:
        raise UnknownKey(text.removeprefix(PREFIX).partition(":")[0])


def parse_keys(text: str) -> KeyLines:
    """Reads lines `id:key`. Ignores empty lines and lines that begin with #. An error repeats no input."""
    lines = KeyLines({}, [])
    for number, line in enumerate(text.splitlines(), 1):
        if not (line := line.strip()) or line.startswith("#"):
            continue
        try:
            key = _parse_key(line)
            if lines.keys.setdefault(key.id, key) != key:
                raise ValueError("an id that another line has with another key. Give each key its own id")
        except ValueError as error:
            lines.faults.append(f"line {number}: {error}.")
    return lines


def _parse_key(line: str) -> StorageKey:
    """Raises ValueError, which repeats nothing of the line."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"write `id:key`; an id has 1 to {MOST_ID} letters, digits and _.-")
    try:
        text = match["secret"].strip()
        is_hex = len(text) == 2 * KEY_BYTES
        secret = bytes.fromhex(text) if is_hex else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise ValueError(f"a key is {KEY_BYTES} bytes in hex or base64; `openssl rand -hex 32` makes one")
    return StorageKey(match["id"], secret)
