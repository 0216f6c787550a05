"""Seals the bodies of any store, with the tool's arguments and the SHA-256 in their infos."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from domain.errors import InvalidField, ResultExpired, StorageError, StoreUnavailable
from domain.handles import Handle
from domain.ports import Draft, ResultStore
from domain.results import Durability, StoredResult
from storage.base.damage import Notices
from storage.sealed.checks import KeyChecks
from storage.sealed.chunks import CHUNK, FOOTER, UNIT, BodyKey, chunks_size, open_footer, sealed_size
from storage.sealed.keys import Key, is_sealed
from storage.sealed.seals import DamagedSeal, about_info, key_id_of

_WHOLE = 1 << 20
"""A body up to this size is read whole, footer and all, by one command."""


@dataclass(frozen=True, slots=True)
class _Hidden:
    """What the info of a sealed result hides: `size` is that of the body before sealing."""

    size: int
    sha256: str
    tool_arguments: str | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Hidden).decode


class SealedStore:
    """Owns `inner`, and has all else as `inner` has it. Results that were stored before encryption are found
    and read as they are."""

    def __init__(self, inner: ResultStore, checks: KeyChecks) -> None:
        self._inner = inner
        self._seals = checks.seals
        self._notices = Notices()
        self.checks = checks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self._inner.warnings, *self.checks.warnings)

    @asynccontextmanager
    async def draft(self, tenant: str) -> AsyncIterator[Draft]:
        async with self._inner.draft(tenant) as inner:
            yield _SealedDraft(self, inner)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        """Raises UnknownKey."""
        found = await self._inner.find(tenant, handle)
        if found is None or not is_sealed(found.tool_arguments):
            return found
        try:
            hidden = self._hidden(found)
        except DamagedSeal as damage:
            self._notices.warn(f"{tenant}/{handle}", f"is damaged ({damage}): it is not found. Delete it.")
            return None
        await self.checks.note_opened(key_id_of(found.tool_arguments or ""))
        return replace(found, sha256=hidden.sha256, tool_arguments=hidden.tool_arguments)

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Raises UnknownKey."""
        position = max(0, start)
        # A body over 1 MiB is read in parts, between which another send of its call may have published it
        # under another key. So the rest is read once more.
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
        # `stored` may be what was published, which does not tell whether its body is sealed.
        found = await self._inner.find(stored.tenant, stored.handle)
        if found is None:
            raise ResultExpired
        is_plain = not is_sealed(found.tool_arguments)
        async for piece in (self._inner.read if is_plain else self._opened)(found, start, end):
            yield piece

    async def _opened(self, found: StoredResult, start: int, end: int | None) -> AsyncIterator[bytes]:
        """Raises DamagedSeal, UnknownKey."""
        size = self._hidden(found).size
        total, end = sealed_size(size), size if end is None else min(end, size)
        if start >= end:
            return
        first, last = start // CHUNK, -(-end // CHUNK)
        span = first * UNIT, min(last * UNIT, chunks_size(size))
        if total <= _WHOLE:
            whole = b"".join([piece async for piece in self._inner.read(found, 0, total)])
            footer, pieces = whole[-FOOTER:], _one(whole[slice(*span)])
        else:
            read = self._inner.read
            footer = b"".join([piece async for piece in read(found, total - FOOTER, total)])
            pieces = read(found, *span)
        key = open_footer(footer, self._seals, found, size)
        position = first * CHUNK
        async for piece in key.open(pieces, first):
            if shown := piece[max(0, start - position) : end - position]:
                yield shown
            position += len(piece)
        if position < end:
            raise DamagedSeal("it is shorter than it was stored")

    def _hidden(self, found: StoredResult) -> _Hidden:
        """Raises DamagedSeal, UnknownKey."""
        try:
            return _decode(self._seals.open(found.tool_arguments or "", *about_info(found)))
        except msgspec.DecodeError:
            raise DamagedSeal("its fields are not those of an info") from None

    def hide(self, key: Key, stored: StoredResult, size: int) -> StoredResult:
        """Returns what `inner` gets to see. Its SHA-256 differs each time, so that no store takes an earlier
        body, sealed or not, for the same one."""
        try:
            hidden = _encode(_Hidden(size, stored.sha256, stored.tool_arguments))
        except UnicodeEncodeError:
            raise InvalidField("tool_arguments is not valid Unicode. Send valid Unicode.") from None
        sealed = self._seals.seal(hidden, *about_info(stored), key=key)
        return replace(stored, tool_arguments=sealed, sha256=hashlib.sha256(sealed.encode()).hexdigest())

    async def sweep(self) -> int:
        await self.checks.sweep()
        return await self._inner.sweep()

    async def check(self) -> None:
        await self._inner.check()
        await self.checks.check()


class _SealedDraft:
    """What does not fill a chunk waits in memory."""

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
        """Raises StoreUnavailable if the store knows the id of the key by another key."""
        key = await self._store.checks.writing()
        if not self._is_complete:
            tail = await self._key.seal(bytes(self._waiting), self._sealed)
            await self._inner.write(tail + self._key.footer(key, stored, self._size))
            self._is_complete = True
        return await self._inner.publish(self._store.hide(key, stored, self._size))


async def _one(piece: bytes) -> AsyncIterator[bytes]:
    yield piece
