"""Measures a body in one pass over its chunks: bytes, lines, characters, tokens, SHA-256."""

import hashlib
import math

from content.text import Utf8Chunks, decode_utf8
from content.tokens.encodings import TokenMeter
from domain.ports import Tokenizer
from domain.results import Measure


def measure(data: bytes, tokenizer: Tokenizer, text: str | None = None) -> Measure:
    """Measures a small body exactly. `text` is `data` decoded, if the caller has it. Raises InvalidUtf8."""
    text = decode_utf8(data) if text is None else text
    lines = data.count(b"\n") + 1 if data else 0
    return Measure(len(data), lines, len(text), tokenizer.count(text), True)


class Meter:
    """Measures chunks cut anywhere. A chunk above 256 KiB would hold the GIL for too long."""

    __slots__ = ("_digest", "_newlines", "_text", "_tokens", "bytes", "chars")

    def __init__(self, tokenizer: Tokenizer, enough: float = math.inf) -> None:
        """After more than `enough` tokens the rest is estimated."""
        self._digest = hashlib.sha256()
        self._text = Utf8Chunks()
        self._tokens = TokenMeter(tokenizer, enough)
        self._newlines = 0
        self.bytes = 0
        self.chars = 0

    def feed(self, chunk: bytes, text: str | None = None) -> None:
        """`text` is the chunk decoded, if the caller has it and the chunk cuts no character. Raises
        InvalidUtf8."""
        text = self._text.feed(chunk) if text is None else text
        self._digest.update(chunk)
        self._newlines += chunk.count(b"\n")
        self.bytes += len(chunk)
        self.chars += len(text)
        self._tokens.feed(text)

    def estimate_tokens(self) -> None:
        """Estimates tokens from here on: see TokenMeter."""
        self._tokens.estimate()

    @property
    def estimates(self) -> bool:
        """True if tokens are estimated from here on, which is cheap."""
        return self._tokens.estimates

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes so far, in hex."""
        return self._digest.hexdigest()

    def finish(self) -> Measure:
        """Returns the measure. Call it once. Raises InvalidUtf8 if the last character is incomplete."""
        self._text.finish()
        tokens, exact = self._tokens.finish()
        lines = self._newlines + 1 if self.bytes else 0
        return Measure(self.bytes, lines, self.chars, tokens, exact)
