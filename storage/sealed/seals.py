"""Seals short texts with AES-256-GCM. Each seal has a key of its own, derived from a key of the key file."""

import base64
import binascii
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from domain.results import StoredResult
from storage.sealed.keys import KEY_BYTES, PREFIX, Key, KeyRing, UnknownKey

SALT = 32
TAG = 16
# A derived key seals once, so its nonce need not differ.
_NONCE = bytes(12)


class DamagedSeal(ValueError):
    """The bytes are not what was sealed here. The message quotes nothing from them."""


class Seals:
    """`about` names what is sealed and where it belongs: opened anywhere else, it is a DamagedSeal."""

    def __init__(self, ring: KeyRing) -> None:
        self.ring = ring

    @property
    def writing(self) -> Key:
        return next(iter(self.ring.in_force.values()))

    def key(self, key_id: str) -> Key:
        """Raises UnknownKey."""
        found = self.ring.in_force.get(key_id)
        if found is None:
            raise UnknownKey
        return found

    def seal(self, data: bytes, *about: str, key: Key) -> str:
        """Returns `PREFIX id:base64`."""
        return f"{PREFIX}{key.id}:{base64.b64encode(wrap(key, data, *about)).decode()}"

    def open(self, text: str, *about: str) -> bytes:
        """Raises DamagedSeal, UnknownKey."""
        key_id, _, sealed = text.removeprefix(PREFIX).partition(":")
        try:
            data = base64.b64decode(sealed, validate=True)
        except (binascii.Error, ValueError):
            raise DamagedSeal("it is not base64") from None
        return unwrap(self.key(key_id), data, *about)


def about_info(stored: StoredResult) -> tuple[str, ...]:
    return "info", stored.tenant, str(stored.handle)


def key_id_of(text: str) -> str:
    return text.removeprefix(PREFIX).partition(":")[0]


def wrap(key: Key, data: bytes, *about: str) -> bytes:
    """Returns a random salt, and the data under a key that is derived with it. SALT + TAG bytes longer."""
    salt = secrets.token_bytes(SALT)
    return salt + _derived(key, salt).encrypt(_NONCE, data, _joined(about))


def unwrap(key: Key, data: bytes, *about: str) -> bytes:
    """Raises DamagedSeal."""
    try:
        return _derived(key, data[:SALT]).decrypt(_NONCE, data[SALT:], _joined(about))
    except InvalidTag:
        raise DamagedSeal("its authentication tag does not match") from None


def _derived(key: Key, salt: bytes) -> AESGCM:
    return AESGCM(HKDF(SHA256(), KEY_BYTES, salt, b"spillgate-sealed-1").derive(key.secret))


def _joined(about: tuple[str, ...]) -> bytes:
    # No part can hold a null character: they are names, handles, call ids and numbers.
    return "\0".join(about).encode()
