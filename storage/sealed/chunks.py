"""The format of a sealed body: chunks of 64 KiB, sealed under the body's own key, and a footer with that key.

chunk    nonce (12 bytes, random), ciphertext, tag (16). The tag covers the chunk's number.
footer   mark (8), id of the key in the key file (32, padded with zeros), and the body's key, sealed under it:
         salt (32), ciphertext (32), tag (16). The tag covers the body's tenant, handle and size.

So no chunk can change its place, and no body its length or its handle. A range is found by arithmetic.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from domain.results import StoredResult
from storage.sealed.keys import KEY_BYTES, MOST_ID, Key
from storage.sealed.seals import SALT, TAG, DamagedSeal, Seals, unwrap, wrap

CHUNK = 1 << 16
NONCE = 12
UNIT = NONCE + CHUNK + TAG
_MARK = b"SPGSEAL1"
_HEAD = len(_MARK) + MOST_ID
FOOTER = _HEAD + SALT + KEY_BYTES + TAG
_BATCH = 8 * UNIT
"""What is opened at a time, so that a reader holds little of a body."""

_INLINE = 2 * UNIT
"""Larger pieces take more than 50 µs: a worker thread seals and opens them."""


def sealed_size(size: int) -> int:
    return chunks_size(size) + FOOTER


def chunks_size(size: int) -> int:
    """Bytes of the chunks of `size` bytes."""
    return size + -(-size // CHUNK) * (NONCE + TAG)


class BodyKey:
    """The key of one body: random, and never used for another one."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(KEY_BYTES)
        self._cipher = AESGCM(self._secret)

    def footer(self, key: Key, stored: StoredResult, size: int) -> bytes:
        head = _MARK + key.id.encode().ljust(MOST_ID, b"\0")
        return head + wrap(key, self._secret, *_about(stored, size))

    async def seal(self, data: bytes, first: int) -> bytes:
        """Seals data of whole chunks, but for the last one; `first` is the number of its first chunk."""
        return await _worked(self._seal, data, first)

    def _seal(self, data: bytes, first: int) -> bytes:
        view, parts = memoryview(data), []
        for number, start in enumerate(range(0, len(data), CHUNK), first):
            nonce = secrets.token_bytes(NONCE)
            parts += [nonce, self._cipher.encrypt(nonce, view[start : start + CHUNK], _numbered(number))]
        return b"".join(parts)

    async def open(self, pieces: AsyncIterator[bytes], first: int) -> AsyncIterator[bytes]:
        """Yields what the chunks from number `first` on hold, up to 512 KiB at a time. Raises DamagedSeal."""
        waiting = bytearray()
        async for piece in pieces:
            waiting += piece
            while len(waiting) >= _BATCH:
                yield await _worked(self._open, bytes(waiting[:_BATCH]), first)
                del waiting[:_BATCH]
                first += _BATCH // UNIT
        if waiting:
            yield await _worked(self._open, bytes(waiting), first)

    def _open(self, data: bytes, first: int) -> bytes:
        view, parts = memoryview(data), []
        try:
            for number, start in enumerate(range(0, len(data), UNIT), first):
                unit = view[start : start + UNIT]
                parts.append(self._cipher.decrypt(unit[:NONCE], unit[NONCE:], _numbered(number)))
        except (InvalidTag, ValueError):
            raise DamagedSeal("the authentication tag of a chunk does not match") from None
        return b"".join(parts)


async def _worked(job: Callable[[bytes, int], bytes], data: bytes, first: int) -> bytes:
    return job(data, first) if len(data) <= _INLINE else await asyncio.to_thread(job, data, first)


def open_footer(footer: bytes, seals: Seals, stored: StoredResult, size: int) -> BodyKey:
    """Raises DamagedSeal, UnknownKey."""
    if len(footer) != FOOTER or not footer.startswith(_MARK):
        raise DamagedSeal("its end is not that of an encrypted body")
    key_id = footer[len(_MARK) : _HEAD].rstrip(b"\0").decode("ascii", "replace")
    return BodyKey(unwrap(seals.key(key_id), footer[_HEAD:], *_about(stored, size)))


def _about(stored: StoredResult, size: int) -> tuple[str, ...]:
    return "body", stored.tenant, str(stored.handle), str(size)


def _numbered(number: int) -> bytes:
    return number.to_bytes(8, "big")
