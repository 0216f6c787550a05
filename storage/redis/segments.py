"""Segments: pieces of a body of a fixed size, each a zstd frame with its size and checksum."""

import asyncio
import threading

import zstandard

from domain.errors import StorageError

SEGMENT = 1 << 20
_INLINE = 1 << 17
"""Larger pieces take more than 0.25 ms to pack: a worker thread packs them."""

_own = threading.local()


async def pack(pieces: list[memoryview]) -> bytes:
    """Packs pieces as one segment."""
    if sum(map(len, pieces)) <= _INLINE:
        return _pack(pieces)
    return await asyncio.to_thread(_pack, pieces)


async def unpack(segment: bytes, size: int) -> bytes:
    """Raises StorageError if the segment is damaged or does not have `size` bytes."""
    try:
        # A damaged frame may claim any size.
        if zstandard.frame_content_size(segment) != size:
            raise _damaged()
        body = _unpack(segment) if size <= _INLINE else await asyncio.to_thread(_unpack, segment)
    except zstandard.ZstdError as error:
        raise _damaged() from error
    return body


def _pack(pieces: list[memoryview]) -> bytes:
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    compressor = getattr(_own, "compressor", None)
    if compressor is None:
        compressor = _own.compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
    packed: bytes = compressor.compress(body)
    return packed


def _unpack(segment: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(segment)


def _damaged() -> StorageError:
    return StorageError("A stored result came back damaged from Redis. Call the tool again.")
