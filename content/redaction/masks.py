"""The masks of a body's secrets, and the body with its masks."""

import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import blake2b

import anyio.lowlevel

from content.redaction.escapes import as_read

_NUMBERS = 900_000
_DIGEST_BYTES = 16
AT_A_TIME = 256
"""So many masks are written in 0.6 ms; then other requests have their turn."""

MASK = re.compile(r"\[redacted: ([a-z0-9][a-z0-9_-]{0,63}) #\d{6}\]")
MASK_BYTES = 84
"""A mask has at most so many."""

NOT_SEARCHED = "not_searched"
"""The kind of a part whose search took too long: all of it is masked."""


class Masks:
    """Where the secrets of a body are, in order, with a digest of each. A mask has as many line ends as its
    secret, so that line numbers stay the same. A million take 50 MB."""

    def __init__(self) -> None:
        self.starts, self.ends = array("Q"), array("Q")
        self.shown = array("Q")
        """Where each mask begins in the body with masks."""
        self.counts: dict[str, int] = {}
        """How many secrets there are of each kind."""
        self._kinds: list[str] = []
        self._kind_of = array("H")
        self._digests = bytearray()
        self._breaks = array("I")

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, start: int, end: int, kind: str, value: bytes) -> None:
        if self.ends and start < self.ends[-1]:
            # Found again in the margin of the next block, perhaps longer there.
            if end <= self.ends[-1]:
                return
            value = value[self.ends[-1] - start :]
            self.ends[-1] = end
            self._breaks[-1] += value.count(b"\n")
            return
        self.shown.append(self.shown_bytes(start))
        self.starts.append(start)
        self.ends.append(end)
        if kind not in self.counts:
            self._kinds.append(kind)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._kind_of.append(self._kinds.index(kind))
        read = value if kind == NOT_SEARCHED else as_read(value).strip()
        self._digests += blake2b(read, digest_size=_DIGEST_BYTES).digest()
        self._breaks.append(value.count(b"\n"))

    def shown_bytes(self, size: int) -> int:
        """The size with masks of the first `size` bytes, which end behind all masks."""
        if not self.starts:
            return size
        return self.shown[-1] + self.mask_bytes(len(self) - 1) + size - self.ends[-1]

    def kind(self, number: int) -> str:
        return self._kinds[self._kind_of[number]]

    def mask_bytes(self, number: int) -> int:
        """The size of a mask with its line ends."""
        return len("[redacted:  #123456]") + len(self.kind(number)) + self._breaks[number]

    def line_ends(self, number: int) -> bytes:
        """Those that follow the mask."""
        return b"\n" * self._breaks[number]

    def mask(self, number: int, key: bytes) -> bytes:
        """`[redacted: github_token #482913]`. The same value has the same number in a session, whose key it
        is. Without the key nothing can be learned of the value from its number."""
        kind, at = self.kind(number), number * _DIGEST_BYTES
        named = kind.encode() + b"\0" + self._digests[at : at + _DIGEST_BYTES]
        keyed = blake2b(named, key=key, digest_size=8).digest()
        return f"[redacted: {kind} #{100_000 + int.from_bytes(keyed) % _NUMBERS}]".encode()


def masks_in(text: str) -> dict[str, int] | None:
    """How many masks of each kind a text has; None if it has none."""
    return dict(Counter(MASK.findall(text))) or None


def masks_beside(text: str, whole: str) -> dict[str, int] | None:
    """The same of what a whole has more than a text within it."""
    return dict(Counter(MASK.findall(whole)) - Counter(MASK.findall(text))) or None


ReadRange = Callable[[int, int], AsyncIterator[bytes]]
"""The bytes of a body from a start to before an end, in chunks."""


class Masked:
    """A body with masks in place of its secrets. Offsets into it count its own bytes."""

    def __init__(self, masks: Masks, size: int, key: bytes) -> None:
        """`size` is that of the body as it is stored."""
        self._masks, self._key = masks, key
        self.size = masks.shown_bytes(size)

    def apply(self, chunk: bytes, at: int) -> bytes:
        """A chunk that begins at `at` of the stored body. A mask is where its secret begins."""
        return b"".join(self._pieces(chunk, at))

    async def pieces(self, chunk: bytes, at: int) -> AsyncIterator[bytes]:
        """The same in pieces. Between two of them others have their turn on the event loop."""
        for number, piece in enumerate(self._pieces(chunk, at)):
            if number:
                await anyio.lowlevel.checkpoint()
            yield piece

    def _pieces(self, chunk: bytes, at: int) -> Iterator[bytes]:
        starts, ends = self._masks.starts, self._masks.ends
        number = max(bisect_right(starts, at) - 1, 0)
        parts, done, stop = list[bytes](), at, at + len(chunk)
        while number < len(starts) and starts[number] < stop:
            start, end = starts[number], ends[number]
            if start >= at:
                mask = self._masks.mask(number, self._key)
                parts += [chunk[done - at : start - at], mask, self._masks.line_ends(number)]
            done = max(done, end)
            number += 1
            if len(parts) >= 3 * AT_A_TIME:
                yield b"".join(parts)
                parts.clear()
        yield b"".join([*parts, chunk[done - at :]])

    async def read(self, read: ReadRange, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`."""
        end = min(end, self.size)
        if start >= end:
            return
        at, skip = self._stored(start)
        # One byte more than the last that is shown: a mask comes with the first byte of its secret.
        last = self._stored(end - 1)[0] + 1
        left = end - start
        async for chunk in read(at, last):
            async for masked in self.pieces(chunk, at):
                piece = masked[skip : skip + left]
                skip = max(0, skip - len(masked))
                left -= len(piece)
                if piece:
                    yield piece
            at += len(chunk)

    def _stored(self, at: int) -> tuple[int, int]:
        """Where the stored byte is that the byte at `at` comes from, and how far into a mask it is."""
        shown, masks = self._masks.shown, self._masks
        number = bisect_right(shown, at) - 1
        if number < 0:
            return at, 0
        inside, size = at - shown[number], masks.mask_bytes(number)
        if inside < size:
            return masks.starts[number], inside
        return masks.ends[number] + inside - size, 0
