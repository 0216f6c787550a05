"""The keys of encryption at rest; and the store and the ledger of a process without keys."""

import base64
import binascii
import hashlib
import re
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from domain.errors import ConfigError, StorageError, StoreUnavailable
from domain.handles import RESERVED_TENANT, Handle, SessionKey
from domain.ports import Call, Charge, Entered, Receipt
from domain.results import StoredResult
from domain.wrappers import LedgerAround, StoreAround

PREFIX = "spillgate-sealed-1:"
"""How a sealed text begins."""

KEY_SETTING = "SPILLGATE_STORAGE_KEY_FILE"
KEY_BYTES = 32
MOST_ID = 32
"""Characters of a key id, which has a place of this size in every sealed body."""

CHECKS = SessionKey(RESERVED_TENANT, "keys")
"""The tenant and session of the checks of keys."""

_ID = rf"[A-Za-z0-9_.-]{{1,{MOST_ID}}}"
_LINE = re.compile(rf"(?P<id>{_ID}):(?P<secret>.*)")
_SEALED = re.compile(rf"{PREFIX}{_ID}:[A-Za-z0-9+/]+=*")


class UnknownKey(StoreUnavailable):
    """Sealed with a key that the key file does not have."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            "This was encrypted with a key that SPILLGATE_STORAGE_KEY_FILE does not have. The operator can "
            "put the line of that key back into the file.",
            cause=f"key id {key_id if re.fullmatch(_ID, key_id) else 'unreadable'}",
        )


@dataclass(frozen=True, slots=True)
class StorageKey:
    id: str
    secret: bytes = field(repr=False)


class KeyRing(Protocol):
    @property
    def in_force(self) -> dict[str, StorageKey]:
        """The keys by their ids, never empty. The first one seals; each opens what it sealed."""
        ...

    @property
    def warnings(self) -> list[str]:
        """Messages for the operator."""
        ...


class KeyLines(NamedTuple):
    """The keys by their ids, and for each line that is not in force its number and why."""

    keys: dict[str, StorageKey]
    faults: list[str]


class KeyUse(NamedTuple):
    """Whether a key of the file `encrypts` what is stored now, and until when (Unix ms) something that it
    encrypted may be stored; None: nothing is, and its line can be taken out."""

    id: str
    encrypts: bool
    needed_until: int | None


class KeyUses(NamedTuple):
    """`missing`: how many more key ids are in use that the file does not have."""

    keys: list[KeyUse]
    missing: int


def is_sealed(text: str | None) -> bool:
    return text is not None and text.startswith(PREFIX)


def key_id_of(text: str) -> str:
    """The id in a sealed text."""
    return text.removeprefix(PREFIX).partition(":")[0]


def parse_keys(text: str) -> KeyLines:
    """Reads lines `id:key`; empty lines and lines that begin with # say nothing. A fault repeats no input."""
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


class KeylessStore(StoreAround):
    """A store of a process without keys: what others keep encrypted is refused."""

    _is_verified = False

    async def verify(self) -> None:
        """Raises ConfigError if the store holds what is encrypted."""
        (checks,) = await self._inner.count_results([CHECKS])
        if checks:
            raise ConfigError(
                f"{KEY_SETTING} is not set, and what is stored is encrypted. Name the key file."
            )
        self._is_verified = True

    async def check(self) -> None:
        """Raises StoreUnavailable, also for what `verify` finds in a store that was away at the start."""
        await self._inner.check()
        try:
            with suppress(StorageError):
                if not self._is_verified:
                    await self.verify()
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from None

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        """Raises UnknownKey."""
        stored = await self._inner.find(tenant, handle)
        text = "" if stored is None else stored.tool_arguments or ""
        # Arguments may begin with PREFIX, too. The SHA-256 of a sealed info is that of its sealed text.
        if stored and is_sealed(text) and hashlib.sha256(text.encode()).hexdigest() == stored.sha256:
            raise UnknownKey(key_id_of(text))
        return stored


class KeylessLedger(LedgerAround):
    """A ledger of a process without keys. Raises UnknownKey for a text that is sealed."""

    def enter(self, call: Call) -> Coroutine[Any, Any, Entered]:
        # Only a call with an id may be a retry.
        return self._inner.enter(call) if call.call_id is None else self._enter(call)

    async def _enter(self, call: Call) -> Entered:
        entered = await self._inner.enter(call)
        if entered.receipt is not None:
            _readable(entered.receipt.text)
        return entered

    def reserve(self, charge: Charge) -> Coroutine[Any, Any, Receipt | None]:
        return self._inner.reserve(charge) if charge.call_id is None else self._reserve(charge)

    async def _reserve(self, charge: Charge) -> Receipt | None:
        receipt = await self._inner.reserve(charge)
        if receipt is not None and receipt.is_retry:
            _readable(receipt.text)
        return receipt

    async def settle(self, charge: Charge) -> Receipt:
        receipt = await self._inner.settle(charge)
        # The text of a call that is charged now is this process's own, whatever it begins with.
        if receipt.is_retry:
            _readable(receipt.text)
        return receipt

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        return _readable(await self._inner.finding(key, epoch, name))


def _readable(text: str | None) -> str | None:
    # A text may begin with a result that begins with PREFIX.
    if text is not None and _SEALED.fullmatch(text):
        raise UnknownKey(key_id_of(text))
    return text
