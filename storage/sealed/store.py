"""Seals what any store and any ledger keep: bodies, arguments and SHA-256 of results, texts and findings.

A sealed body is chunks of 64 KiB, sealed under the body's own key, and a footer with that key.

chunk    nonce (12 bytes, random), ciphertext, tag (16). The tag covers the chunk's number.
footer   mark (8), id of the key in the key file (32, padded with zeros), and the body's key, sealed under it:
         salt (32), ciphertext (32), tag (16). The tag covers the body's tenant, handle and size.

So a chunk cannot be moved, nor a body's length or handle be changed, unnoticed. A range is found by
arithmetic.

The arguments of an info hold its hidden fields, sealed. The tag covers its other fields, except `expires_at`.
"""

import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from content.threads import in_thread_if_long
from domain.errors import InvalidField, ResultExpired, StorageError, StoreUnavailable
from domain.handles import Handle, SessionKey
from domain.ports import Call, Charge, Draft, Entered, Ledger, Receipt, ResultStore
from domain.results import Durability, StoredResult
from domain.wrappers import LedgerAround, StoreAround
from storage.base.damage import Notices
from storage.sealed.keys import KEY_BYTES, MOST_ID, KeyRing, StorageKey, is_sealed
from storage.sealed.seals import SALT, TAG, DamagedSeal, Seals, about_info, unwrap, wrap

CHUNK = 1 << 16
NONCE = 12
UNIT = NONCE + CHUNK + TAG
_MARK = b"SPGSEAL1"
_HEAD = len(_MARK) + MOST_ID
FOOTER = _HEAD + SALT + KEY_BYTES + TAG
_BATCH = 8 * UNIT
"""The most bytes that are opened at a time, so that a reader holds only a small part of a body."""

_ONE_READ_BYTES = 1 << 20
"""A body up to this size is read whole, with its footer, by one command."""


def sealed_size(size: int) -> int:
    return chunks_size(size) + FOOTER


def chunks_size(size: int) -> int:
    """Returns the bytes of the chunks of `size` bytes."""
    return size + -(-size // CHUNK) * (NONCE + TAG)


class BodyKey:
    """The key of one body: random, and used for this body only."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(KEY_BYTES)
        self._cipher = AESGCM(self._secret)

    def footer(self, key: StorageKey, stored: StoredResult, size: int) -> bytes:
        return _head(key) + wrap(key, self._secret, *_about(stored, size))

    async def seal(self, data: bytes, first: int) -> bytes:
        """Seals data of whole chunks (only the last may be shorter); `first` is the number of the first
        chunk."""
        return await in_thread_if_long(len(data), self._seal, data, first)

    def _seal(self, data: bytes, first: int) -> bytes:
        view, parts = memoryview(data), []
        for number, start in enumerate(range(0, len(data), CHUNK), first):
            nonce = secrets.token_bytes(NONCE)
            parts += [nonce, self._cipher.encrypt(nonce, view[start : start + CHUNK], _numbered(number))]
        return b"".join(parts)

    async def open(self, pieces: AsyncIterator[bytes], first: int) -> AsyncIterator[bytes]:
        """Yields the contents of the chunks from number `first` on, up to 512 KiB at a time. Raises
        DamagedSeal."""
        waiting = bytearray()
        async for piece in pieces:
            waiting += piece
            while len(waiting) >= _BATCH:
                yield await in_thread_if_long(_BATCH, self._open, bytes(waiting[:_BATCH]), first)
                del waiting[:_BATCH]
                first += _BATCH // UNIT
        if waiting:
            yield await in_thread_if_long(len(waiting), self._open, bytes(waiting), first)

    def _open(self, data: bytes, first: int) -> bytes:
        view, parts = memoryview(data), []
        try:
            for number, start in enumerate(range(0, len(data), UNIT), first):
                unit = view[start : start + UNIT]
                parts.append(self._cipher.decrypt(unit[:NONCE], unit[NONCE:], _numbered(number)))
        except (InvalidTag, ValueError):
            raise DamagedSeal("the authentication tag of a chunk does not match") from None
        return b"".join(parts)


def open_footer(footer: bytes, key: StorageKey, stored: StoredResult, size: int) -> BodyKey:
    """Raises DamagedSeal."""
    if len(footer) != FOOTER or not footer.startswith(_head(key)):
        raise DamagedSeal("its end is not that of an encrypted body")
    return BodyKey(unwrap(key, footer[_HEAD:], *_about(stored, size)))


def _head(key: StorageKey) -> bytes:
    return _MARK + key.id.encode().ljust(MOST_ID, b"\0")


def _about(stored: StoredResult, size: int) -> tuple[str, ...]:
    return "body", stored.tenant, str(stored.handle), str(size)


def _numbered(number: int) -> bytes:
    return number.to_bytes(8, "big")


@dataclass(frozen=True, slots=True)
class _Hidden:
    """What the info of a sealed result hides. `size` is the size of the body before sealing."""

    size: int
    sha256: str
    tool_arguments: str | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Hidden).decode


class SealedStore(StoreAround):
    """Owns the store that keeps the sealed results. Results that were stored before encryption are read as
    they are."""

    def __init__(self, inner: ResultStore, ring: KeyRing) -> None:
        super().__init__(inner)
        self._notices = Notices()
        self.seals = Seals(ring)

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self._inner.warnings, *self.seals.ring.warnings)

    @asynccontextmanager
    async def draft(self, tenant: str) -> AsyncIterator[Draft]:
        async with self._inner.draft(tenant) as inner:
            yield _SealedDraft(self, inner)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        """Raises UnknownKey."""
        stored = await self._inner.find(tenant, handle)
        if stored is None or not is_sealed(stored.tool_arguments):
            return stored
        try:
            hidden = self._hidden(stored)
        except DamagedSeal as damage:
            self._notices.warn(f"{tenant}/{handle}", f"is damaged ({damage}): it is not found. Delete it.")
            return None
        return replace(stored, sha256=hidden.sha256, tool_arguments=hidden.tool_arguments)

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Raises UnknownKey."""
        position = max(0, start)
        # A retry of the call may publish the body again, under another key, between two reads of its parts.
        # So a body that cannot be opened is read once more.
        for is_last in (False, True):
            try:
                async for piece in self._read(stored, position, end):
                    yield piece
                    position += len(piece)
                return
            except DamagedSeal as damage:
                if is_last:
                    name = f"{stored.tenant}/{stored.handle}"
                    self._notices.warn(name, f"is damaged ({damage}): it is not read. Delete it.")
                    raise ResultExpired from None

    async def _read(self, stored: StoredResult, start: int, end: int | None) -> AsyncIterator[bytes]:
        """Raises DamagedSeal, UnknownKey."""
        # `stored` may be the result as the caller published it, which does not say whether the body is
        # sealed.
        published = await self._inner.find(stored.tenant, stored.handle)
        if published is None:
            raise ResultExpired
        is_plain = not is_sealed(published.tool_arguments)
        async for piece in (self._inner.read if is_plain else self._opened)(published, start, end):
            yield piece

    async def _opened(self, sealed: StoredResult, start: int, end: int | None) -> AsyncIterator[bytes]:
        """Raises DamagedSeal, UnknownKey."""
        size = self._hidden(sealed).size
        total, end = sealed_size(size), size if end is None else min(end, size)
        if start >= end:
            return
        first, last = start // CHUNK, -(-end // CHUNK)
        span = first * UNIT, min(last * UNIT, chunks_size(size))
        if total <= _ONE_READ_BYTES:
            whole = b"".join([piece async for piece in self._inner.read(sealed, 0, total)])
            footer, pieces = whole[-FOOTER:], _one(whole[slice(*span)])
        else:
            read = self._inner.read
            footer = b"".join([piece async for piece in read(sealed, total - FOOTER, total)])
            pieces = read(sealed, *span)
        key = self.seals.key_of(sealed.tool_arguments or "")
        body_key = open_footer(footer, key, sealed, size)
        position = first * CHUNK
        async for piece in body_key.open(pieces, first):
            if shown := piece[max(0, start - position) : end - position]:
                yield shown
            position += len(piece)
        if position < end:
            raise DamagedSeal("it is shorter than it was stored")

    def _hidden(self, sealed: StoredResult) -> _Hidden:
        """Raises DamagedSeal, UnknownKey."""
        try:
            return _decode(self.seals.open(sealed.tool_arguments or "", *about_info(sealed)))
        except msgspec.DecodeError:
            raise DamagedSeal("its fields are not those of an info") from None

    def hide(self, key: StorageKey, stored: StoredResult, size: int) -> StoredResult:
        """Returns the result as the inner store gets it. Its SHA-256 differs each time, so that no store
        takes an earlier body, sealed or not, for the same one."""
        try:
            hidden = _encode(_Hidden(size, stored.sha256, stored.tool_arguments))
            about = about_info(stored)
        except UnicodeEncodeError:
            raise InvalidField(
                "A text beside the content is not valid Unicode. Send valid Unicode."
            ) from None
        sealed = self.seals.seal(hidden, *about, key=key)
        return replace(stored, tool_arguments=sealed, sha256=hashlib.sha256(sealed.encode()).hexdigest())


class _SealedDraft:
    """Data that does not fill a chunk waits in memory."""

    def __init__(self, store: SealedStore, inner: Draft) -> None:
        self._store = store
        self._inner = inner
        self._key = BodyKey()
        self._waiting = bytearray()
        self._size = 0
        self._sealed = 0
        self._is_complete = False

    async def write(self, chunk: bytes) -> None:
        before = len(self._waiting)
        self._waiting += chunk
        whole = len(self._waiting) // CHUNK * CHUNK
        try:
            if whole:
                sealed = await self._key.seal(bytes(self._waiting[:whole]), self._sealed)
                await self._inner.write(sealed)
        except StorageError:
            del self._waiting[before:]
            raise
        del self._waiting[:whole]
        self._sealed += whole // CHUNK
        self._size += len(chunk)

    async def read(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._key.open(self._inner.read(), 0):
                yield piece
        except DamagedSeal:
            raise StoreUnavailable("The draft was damaged in the store. Send the result again.") from None
        if self._waiting:
            yield bytes(self._waiting)

    async def publish(self, stored: StoredResult) -> Durability:
        key = self._store.seals.writing
        if not self._is_complete:
            tail = await self._key.seal(bytes(self._waiting), self._sealed)
            await self._inner.write(tail + self._key.footer(key, stored, self._size))
            self._is_complete = True
        return await self._inner.publish(self._store.hide(key, stored, self._size))


async def _one(piece: bytes) -> AsyncIterator[bytes]:
    yield piece


class SealedLedger(LedgerAround):
    """Texts that were kept before encryption are read as they are. Raises StoreUnavailable for a text that
    cannot be opened, and UnknownKey."""

    def __init__(self, inner: Ledger, ring: KeyRing) -> None:
        super().__init__(inner)
        self._seals = Seals(ring)

    async def enter(self, call: Call) -> Entered:
        entered = await self._inner.enter(call)
        if entered.receipt is None:
            return entered
        return replace(entered, receipt=self._opened(entered.receipt, call.key, call.call_id))

    async def reserve(self, charge: Charge) -> Receipt | None:
        receipt = await self._inner.reserve(self._sealed(charge))
        return None if receipt is None else self._of_charge(receipt, charge)

    async def settle(self, charge: Charge) -> Receipt:
        return self._of_charge(await self._inner.settle(self._sealed(charge)), charge)

    async def keep_finding(
        self, key: SessionKey, epoch: int, name: str, text: str, *, once: bool = False
    ) -> None:
        sealed = self._seal(text, *_of_finding(key, epoch, name))
        await self._inner.keep_finding(key, epoch, name, sealed, once=once)

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        return self._open(await self._inner.finding(key, epoch, name), *_of_finding(key, epoch, name))

    def _sealed(self, charge: Charge) -> Charge:
        if charge.text is None:
            return charge
        about = _of_call(charge.key, charge.call_id)
        if charge.kept_as is not None:
            about = _of_finding(charge.key, charge.epoch, charge.kept_as)
        return replace(charge, text=self._seal(charge.text, *about))

    def _of_charge(self, receipt: Receipt, charge: Charge) -> Receipt:
        if receipt.is_retry:
            return self._opened(receipt, charge.key, charge.call_id)
        return replace(receipt, text=charge.text)

    def _opened(self, receipt: Receipt, key: SessionKey, call_id: str | None) -> Receipt:
        return replace(receipt, text=self._open(receipt.text, *_of_call(key, call_id)))

    def _seal(self, text: str, *about: str) -> str:
        return self._seals.seal(text.encode(), *about, key=self._seals.writing)

    def _open(self, text: str | None, *about: str) -> str | None:
        if text is None or not is_sealed(text):
            return text
        try:
            return self._seals.open(text, *about).decode()
        except DamagedSeal:
            raise StoreUnavailable(
                "The text that was kept for this call is damaged. Send the result under another tool_call_id."
            ) from None


def _of_call(key: SessionKey, call_id: str | None) -> tuple[str, ...]:
    return "text", *key, call_id or ""


def _of_finding(key: SessionKey, epoch: int, name: str) -> tuple[str, ...]:
    return "finding", *key, str(epoch), name
