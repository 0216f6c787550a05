"""Segments: pieces of a body of a fixed size, each a zstd frame with its size and checksum."""

import asyncio
import threading

from backports import zstd

from storage.base.info import DamagedInfo

SEGMENT = 1 << 20
_INLINE = 1 << 17
"""Larger pieces take more than 0.25 ms to pack: a worker thread packs them."""

_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 1,
    zstd.CompressionParameter.checksum_flag: 1,
}

_own = threading.local()


async def pack(pieces: list[memoryview]) -> bytes:
    """Packs pieces as one segment."""
    if sum(map(len, pieces)) <= _INLINE:
        return _pack(pieces)
    return await asyncio.to_thread(_pack, pieces)


async def unpack(segment: bytes, size: int) -> bytes:
    """Raises DamagedInfo if the segment is damaged or does not have `size` bytes."""
    try:
        # A damaged frame may claim any size.
        if zstd.get_frame_info(segment).decompressed_size != size:
            raise DamagedInfo("a segment has another size")
        is_small = size <= _INLINE
        body = zstd.decompress(segment) if is_small else await asyncio.to_thread(zstd.decompress, segment)
    except zstd.ZstdError:
        raise DamagedInfo("a segment cannot be unpacked") from None
    if len(body) != size:
        raise DamagedInfo("a segment has another size")
    return body


def _pack(pieces: list[memoryview]) -> bytes:
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    compressor = getattr(_own, "compressor", None)
    if compressor is None:
        compressor = _own.compressor = zstd.ZstdCompressor(options=_OPTIONS)
    packed: bytes = compressor.compress(body, mode=zstd.ZstdCompressor.FLUSH_FRAME)
    return packed
