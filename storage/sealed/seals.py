"""Seals short texts with AES-256-GCM, each under a key that is derived from a key of the key file."""

import base64
import binascii
import secrets
from dataclasses import replace

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from domain.results import StoredResult
from storage.sealed.keys import KEY_BYTES, PREFIX, KeyRing, StorageKey, UnknownKey

SALT = 32
TAG = 16
# A derived key seals only once, so its nonce may always be the same.
_NONCE = bytes(12)


class DamagedSeal(ValueError):
    """The bytes are not what was sealed for this place. The message quotes nothing from them."""


class Seals:
    """`about` names what is sealed and where it belongs: opened with another `about`, it is a DamagedSeal."""

    def __init__(self, ring: KeyRing) -> None:
        self.ring = ring

    @property
    def writing(self) -> StorageKey:
        return next(iter(self.ring.in_force.values()))

    def key_of(self, text: str) -> StorageKey:
        """The key that sealed the text. Raises UnknownKey."""
        key_id, _, rest = text.removeprefix(PREFIX).partition(":")
        key = self.ring.in_force.get(key_id)
        if key is None:
            raise UnknownKey(key_id)
        if rest.partition(":")[0] != key.mark:
            raise UnknownKey(key_id, has_another=True)
        return key

    def seal(self, data: bytes, *about: str, key: StorageKey) -> str:
        """Returns `PREFIX id:mark:base64`."""
        return f"{PREFIX}{key.id}:{key.mark}:{base64.b64encode(wrap(key, data, *about)).decode()}"

    def open(self, text: str, *about: str) -> bytes:
        """Raises DamagedSeal, UnknownKey."""
        key = self.key_of(text)
        try:
            data = base64.b64decode(text.rpartition(":")[2], validate=True)
        except (binascii.Error, ValueError):
            raise DamagedSeal("it is not base64") from None
        return unwrap(key, data, *about)


def about_info(stored: StoredResult) -> tuple[str, ...]:
    """All fields of an info that are not hidden, except `expires_at`, which each use of the result changes.
    Raises UnicodeEncodeError."""
    shown = replace(stored, tool_arguments=None, sha256="", expires_at=0)
    return "info", msgspec.json.encode(shown).decode()


def wrap(key: StorageKey, data: bytes, *about: str) -> bytes:
    """Returns a random salt, and the data encrypted under a key that is derived with it: SALT + TAG bytes
    more."""
    salt = secrets.token_bytes(SALT)
    return salt + _derived(key, salt).encrypt(_NONCE, data, _joined(about))


def unwrap(key: StorageKey, data: bytes, *about: str) -> bytes:
    """Raises DamagedSeal."""
    try:
        return _derived(key, data[:SALT]).decrypt(_NONCE, data[SALT:], _joined(about))
    except InvalidTag:
        raise DamagedSeal("its authentication tag does not match") from None


def _derived(key: StorageKey, salt: bytes) -> AESGCM:
    return AESGCM(HKDF(SHA256(), KEY_BYTES, salt, b"spillgate-sealed-1").derive(key.secret))


def _joined(about: tuple[str, ...]) -> bytes:
    # No part can hold a null character: they are names, handles, call ids, numbers and JSON.
    return "\0".join(about).encode()
