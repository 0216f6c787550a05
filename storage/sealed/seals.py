"""Seals short texts with AES-256-GCM, each under a key derived from one of the key file; and checks keys."""

import base64
import binascii
import secrets
from contextlib import suppress
from dataclasses import replace

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from domain.errors import ConfigError, StorageError, StoreUnavailable
from domain.handles import Handle, new_handle
from domain.ports import Clock, ResultStore
from domain.results import Measure, StoredResult
from storage.sealed.keys import (
    CHECKS,
    KEY_BYTES,
    KEY_SETTING,
    PREFIX,
    KeyRing,
    KeyUse,
    KeyUses,
    StorageKey,
    UnknownKey,
)

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
    def writing(self) -> StorageKey:
        return next(iter(self.ring.in_force.values()))

    def key(self, key_id: str) -> StorageKey:
        """Raises UnknownKey."""
        key = self.ring.in_force.get(key_id)
        if key is None:
            raise UnknownKey(key_id)
        return key

    def seal(self, data: bytes, *about: str, key: StorageKey) -> str:
        """Returns `PREFIX id:base64`."""
        return f"{PREFIX}{key.id}:{base64.b64encode(wrap(key, data, *about)).decode()}"

    def open(self, text: str, *about: str, key: StorageKey | None = None) -> bytes:
        """With `key` instead of the one that the text names. Raises DamagedSeal, UnknownKey."""
        key_id, _, sealed = text.removeprefix(PREFIX).partition(":")
        try:
            data = base64.b64decode(sealed, validate=True)
        except (binascii.Error, ValueError):
            raise DamagedSeal("it is not base64") from None
        return unwrap(key or self.key(key_id), data, *about)


def about_info(stored: StoredResult) -> tuple[str, ...]:
    """All fields of an info that are not hidden, but `expires_at`, which each use of the result moves. Raises
    UnicodeEncodeError."""
    shown = replace(stored, tool_arguments=None, sha256="", expires_at=0)
    return "info", msgspec.json.encode(shown).decode()


def wrap(key: StorageKey, data: bytes, *about: str) -> bytes:
    """Returns a random salt, and the data under a key that is derived with it. SALT + TAG bytes longer."""
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


class KeyChecks:
    """For each key id, one empty result in `store`, which is not sealed, that only its key opens. It lives as
    long as what is sealed with its key, because each use of the key restarts its retention, too."""

    def __init__(self, store: ResultStore, ring: KeyRing, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._used: set[StorageKey] = set()
        self._verified: dict[str, StorageKey] | None = None
        self._fault: tuple[str, ...] = ()
        self.seals = Seals(ring)

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self.seals.ring.warnings, *self._fault)

    async def writing(self) -> StorageKey:
        """The key that seals now; its use is noted. Raises StoreUnavailable if the store knows its id by
        another key."""
        key = self.seals.writing
        try:
            await self._note_use(key)
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from None
        return key

    async def note_opened(self, key_id: str) -> None:
        # Another key of its id is reported by `check`, and by `writing`.
        with suppress(ConfigError):
            await self._note_use(self.seals.key(key_id))

    async def _note_use(self, key: StorageKey) -> None:
        """Restarts the retention of the key's check, once between two sweeps. Makes it if there is none.
        Raises ConfigError if the store knows the id by another key."""
        if key in self._used:
            return
        # In a store that is away or full, the next use tries again.
        with suppress(StorageError):
            check = await self._check_of(key)
            if check is not None:
                await self._store.touch(check)
            else:
                async with self._store.draft(CHECKS.tenant) as draft:
                    await draft.publish(self._new_check(key, self._clock()))
            self._used.add(key)

    async def sweep(self) -> None:
        used, self._used = self._used, set()
        for key in used:
            with suppress(StorageError):
                await self._store.touch(self._new_check(key, 0))

    async def check(self) -> None:
        """Verifies keys that are not verified yet. Raises StoreUnavailable if none ever were."""
        fault: tuple[str, ...] = ()
        try:
            # A store that is away is verified later, before anything is sealed under a new key.
            with suppress(StorageError):
                if self._verified != self.seals.ring.in_force:
                    await self.verify()
        except ConfigError as error:
            if self._verified is None:
                raise StoreUnavailable(str(error)) from None
            fault = (str(error),)
        self._fault = fault

    async def verify(self) -> None:
        """Raises ConfigError if the store knows a key id by another key, or holds results of a key id that
        is not in the file."""
        keys = self.seals.ring.in_force
        unused = [key for key in keys.values() if await self._check_of(key) is None]
        known = len(keys) - len(unused)
        (checks,) = await self._store.count_results([CHECKS])
        if checks > known:
            # A check that is damaged is counted, and not found.
            for key in unused:
                await self._store.delete(CHECKS.tenant, _handle(key))
            (checks,) = await self._store.count_results([CHECKS])
        if checks > known:
            raise ConfigError(
                f"{KEY_SETTING}: results are stored under key ids that the file does not have "
                f"({checks - known}). Put the lines back that were taken out: a key is needed until its "
                "last result has expired."
            )
        self._verified = keys

    async def uses(self) -> KeyUses:
        """Which keys are in use. Raises StorageError."""
        keys, writing = self.seals.ring.in_force.values(), self.seals.writing
        checks = [await self._store.find(CHECKS.tenant, _handle(key)) for key in keys]
        (known,) = await self._store.count_results([CHECKS])
        uses = [
            KeyUse(key.id, key is writing, None if check is None else check.expires_at)
            for key, check in zip(keys, checks, strict=True)
        ]
        return KeyUses(uses, known - sum(check is not None for check in checks))

    async def _check_of(self, key: StorageKey) -> StoredResult | None:
        """Raises ConfigError if it was made with another key."""
        check = await self._store.find(CHECKS.tenant, _handle(key))
        if check is None:
            return None
        try:
            # The file may lack the key by now.
            self.seals.open(check.tool_arguments or "", *about_info(check), key=key)
        except DamagedSeal:
            self._verified = None
            raise ConfigError(
                f"{KEY_SETTING}: what is stored was encrypted with another key of the id {key.id}. Put that "
                "key back, and give the new one an id of its own."
            ) from None
        return check

    def _new_check(self, key: StorageKey, at: int) -> StoredResult:
        check = StoredResult(
            tenant=CHECKS.tenant,
            handle=_handle(key),
            tool_name="key",
            tool_arguments=None,
            tool_kind=None,
            provider=None,
            is_error=False,
            measure=Measure(0, 0, 0, 0, True),
            sha256="",
            stored_at=at,
            expires_at=0,
            epoch=0,
        )
        return replace(check, tool_arguments=self.seals.seal(b"", *about_info(check), key=key))


def _handle(key: StorageKey) -> Handle:
    return new_handle(CHECKS, 0, key.id, "")
