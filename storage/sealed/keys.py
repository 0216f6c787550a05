"""Keys of encryption at rest: the lines of a key file, and the ring of the keys in force."""

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from domain.errors import StoreUnavailable
from domain.handles import RESERVED_TENANT, SessionKey

PREFIX = "spillgate-sealed-1:"
"""How a sealed text begins."""

KEY_SETTING = "SPILLGATE_STORAGE_KEY_FILE"
KEY_BYTES = 32
MOST_ID = 32
"""Characters of a key id, which has a place of this size in every sealed body."""

CHECKS = SessionKey(RESERVED_TENANT, "keys")
"""The tenant and session of the checks of keys."""

_LINE = re.compile(rf"(?P<id>[A-Za-z0-9_.-]{{1,{MOST_ID}}}):(?P<secret>.*)")


class UnknownKey(StoreUnavailable):
    """Sealed with a key that the key file does not have."""

    def __init__(self) -> None:
        super().__init__(
            "This was encrypted with a key that SPILLGATE_STORAGE_KEY_FILE does not have. The operator can "
            "put the line of that key back into the file."
        )


@dataclass(frozen=True, slots=True)
class Key:
    id: str
    secret: bytes = field(repr=False)


class KeyRing(Protocol):
    @property
    def in_force(self) -> dict[str, Key]:
        """The keys by their ids, never empty. The first one seals; each opens what it sealed."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Messages for the operator."""
        ...


class KeyLines(NamedTuple):
    """The keys by their ids, and for each line that is not in force its number and why."""

    keys: dict[str, Key]
    faults: list[str]


def is_sealed(text: str | None) -> bool:
    return text is not None and text.startswith(PREFIX)


def parse_keys(text: str) -> KeyLines:
    """Reads lines `id:key`; empty lines and lines that begin with # say nothing. A fault repeats no input."""
    found = KeyLines({}, [])
    for number, line in enumerate(text.splitlines(), 1):
        if not (line := line.strip()) or line.startswith("#"):
            continue
        try:
            key = _parse_key(line)
            if found.keys.setdefault(key.id, key) != key:
                raise ValueError("an id that another line has with another key. Give each key its own id")
        except ValueError as error:
            found.faults.append(f"line {number}: {error}.")
    return found


def _parse_key(line: str) -> Key:
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
    return Key(match["id"], secret)
