"""Everything that is measured of a body, in one pass over its chunks."""

import hashlib

from content.text.utf8 import Utf8Chunks, decoded
from content.tokens.encodings import TokenMeter
from domain.ports import Tokenizer
from domain.results import Measure


def measure(data: bytes, tokenizer: Tokenizer, text: str | None = None) -> Measure:
    """Of a small body at hand, all of it, exactly. `text` is `data` decoded, where it is at hand.
    Raises InvalidUtf8."""
    text = decoded(data) if text is None else text
    lines = data.count(b"\n") + 1 if data else 0
    return Measure(len(data), lines, len(text), tokenizer.count(text), True)


class Meter:
    """Feed it chunks cut anywhere; those beyond 256 KiB hold the GIL for too long."""

    __slots__ = ("_digest", "_newlines", "_text", "_tokens", "bytes", "chars")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._digest = hashlib.sha256()
        self._text = Utf8Chunks()
        self._tokens = TokenMeter(tokenizer)
        self._newlines = 0
        self.bytes = 0
        self.chars = 0

    def feed(self, chunk: bytes, text: str | None = None) -> None:
        """`text` is the chunk decoded, where it is at hand and cut between characters. Raises InvalidUtf8."""
        text = self._text.feed(chunk) if text is None else text
        self._digest.update(chunk)
        self._newlines += chunk.count(b"\n")
        self.bytes += len(chunk)
        self.chars += len(text)
        self._tokens.feed(text)

    def estimate_tokens(self) -> None:
        """From here on the tokens may be sampled: see TokenMeter."""
        self._tokens.estimate()

    @property
    def tokens(self) -> int:
        """Those counted exactly so far: no more than there are."""
        return self._tokens.tokens

    @property
    def estimates(self) -> bool:
        """What is still fed costs little: it is sampled, and not all of it tokenised."""
        return self._tokens.estimates

    @property
    def sha256(self) -> str:
        """Of what was fed so far, in hex."""
        return self._digest.hexdigest()

    def finish(self) -> Measure:
        """To be called once. Raises InvalidUtf8 when the last character is incomplete."""
        self._text.finish()
        tokens, exact = self._tokens.finish()
        lines = self._newlines + 1 if self.bytes else 0
        return Measure(self.bytes, lines, self.chars, tokens, exact)
