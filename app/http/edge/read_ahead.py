"""Bounds downloads of stored results: the bytes that all of them read before their clients take them."""

from collections.abc import AsyncIterator, Callable

from domain.errors import ResultExpired

READ_AHEAD_BYTES = 16 << 20
MOST_CHUNK_BYTES = 1 << 19
LEAST_CHUNK_BYTES = 1 << 12


class ReadAhead:
    """All downloads together hold about READ_AHEAD_BYTES, and LEAST_CHUNK_BYTES each beyond that."""

    def __init__(self) -> None:
        self.held = 0

    def next_size(self) -> int:
        """Returns the bytes of the next chunk. The more bytes are held, the smaller the chunk."""
        return max(LEAST_CHUNK_BYTES, min(MOST_CHUNK_BYTES, (READ_AHEAD_BYTES - self.held) // 8))

    async def chunks(
        self, read: Callable[[int, int], AsyncIterator[bytes]], start: int, end: int
    ) -> AsyncIterator[bytes]:
        """The bytes from `start` to `end`. `read` opens the body for each chunk: a client that does not read
        holds no file. When a chunk is asked for, the server may still hold the one before."""
        held = [0, 0]
        try:
            while start < end:
                chunk = b"".join([part async for part in read(start, min(end, start + self.next_size()))])
                if not chunk:
                    raise ResultExpired
                start += len(chunk)
                held = [held[1], len(chunk)]
                self.held += len(chunk)
                yield chunk
                self.held -= held[0]
                held[0] = 0
        finally:
            self.held -= sum(held)
