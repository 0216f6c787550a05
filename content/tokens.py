"""Tokens: encodings, exact and estimated counts of text in chunks; and the measure of a whole body."""

import hashlib
import math
import re
from functools import cache
from typing import TYPE_CHECKING

from content.text import Utf8Chunks, decode_utf8, line_count
from domain.errors import ConfigError
from domain.ports import Tokenizer
from domain.results import Measure

if TYPE_CHECKING:
    from splintr import AnyTokenizer

_WINDOW = 384
_WINDOWS = 32
_SAMPLED_CHARS = 5 * 1024
_WHOLE_CHARS = 6 * 1024

# No token spans a letter or digit and ASCII punctuation or space after it: see `_AFTER`. The set is spelled
# out: compiling `[^A-Za-z0-9'\x80-\U0010ffff]`, which is the same, takes 4 ms.
_GAP = r"(?=[\x00-&(-/:-@\[-`{-\x7f])"
_WHOLE = re.compile(rf"[A-Za-z0-9]({_GAP}.*[A-Za-z0-9]){_GAP}", re.DOTALL)


class TokenSample:
    """Estimates the tokens of a text by a sample of windows spread over it. Keeps every window until there
    are too many, then every second one, and so on. Keeps at most 12 Ki characters and tokenises 5 Ki of
    them, once, at the end; a text of at most 6 Ki whole."""

    def __init__(self, encoding: Tokenizer) -> None:
        self._encoding = encoding
        self._windows = [""]
        self._stride = _WINDOW
        self._next = 0
        self._seen = 0

    def feed(self, text: str) -> None:
        end = self._seen + len(text)
        if self._seen == 0 and text:
            # All windows at once, with the stride that this much text needs.
            while (_WINDOWS - 1) * self._stride + _WINDOW <= end:
                self._stride *= 2
            self._windows = [text[at : at + _WINDOW] for at in range(0, end, self._stride)]
            self._next = (len(self._windows) - 1) * self._stride + len(self._windows[-1])
            if len(self._windows[-1]) == _WINDOW:
                self._open()
        while self._next < end:
            at = self._next - self._seen
            missing = _WINDOW - len(self._windows[-1])
            piece = text[at : at + missing]
            self._windows[-1] += piece
            self._next += len(piece)
            if len(piece) == missing:
                self._open()
        self._seen = end

    def _open(self) -> None:
        if len(self._windows) == _WINDOWS:
            del self._windows[1::2]
            self._stride *= 2
        self._next = len(self._windows) * self._stride
        self._windows.append("")

    def finish(self) -> tuple[int, bool]:
        """Returns the tokens of all that was fed, and True if they are exact."""
        if self._stride == _WINDOW and self._seen <= _WHOLE_CHARS:
            return self._encoding.count("".join(self._windows)), True
        size = _SAMPLED_CHARS // len(self._windows)
        # Pieces that begin and end where tokens do: joined, they have as many.
        found = [(_WHOLE.search(window, 0, size), window) for window in self._windows]
        sampled = "".join([whole[1] if whole else window[:size] for whole, window in found])
        return round(self._encoding.count(sampled) / len(sampled) * self._seen), False


ENCODINGS = ("o200k_base", "cl100k_base")

# Same ranks and pattern, so the same count of ordinary text; only its special tokens differ.
_SAME_COUNT = {"o200k_harmony": "o200k_base"}

# Characters after which the cache of the tokenizer is cleared: its own bound counts entries, not bytes.
_REMEMBERED = 4 << 20

# PCRE2 takes it for a contraction, as tiktoken does; the faster pattern library does not fold this case.
_LONG_S = "'\u017f"

SLICE_CHARS = 16 * 1024
_HARD = 64 * 1024

# A pre-token of letters or digits ends before such a character, in both vocabularies; "'" may go on with
# a contraction. Cut here, the parts' counts add up to the whole's: measured on 46 kinds of text.
_AFTER = r"[^\W_](?=[\x00-&(-/:-@\[-`{-\x7f、。，])"
_LAST_CUT = re.compile(rf".*{_AFTER}", re.DOTALL)
_NEXT_CUT = re.compile(_AFTER)


class Encoding:
    """One vocabulary, loaded by the first count: 0.05 s and 35 MB. Counts equal those of tiktoken's
    `encode_ordinary`. Counting holds the GIL at 10 to 100 MB/s: use TokenMeter for more than a few hundred
    KiB."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tokenizer: AnyTokenizer | None = None
        self._remembered = 0

    @property
    def name(self) -> str:
        return self._name

    def count(self, text: str) -> int:
        usual = self._tokenizer
        if usual is None:
            from splintr import Tokenizer as Splintr

            # Compiling the pattern to machine code gains nothing here, and hardened kernels forbid it.
            usual = self._tokenizer = Splintr.from_pretrained(self._name).jit(False)
        self._remembered += len(text)
        if self._remembered > _REMEMBERED:
            usual.clear_cache()
            self._remembered = len(text)
        tokenizer = _folding(self._name) if _LONG_S in text else usual
        try:
            return _count(tokenizer, text)
        except UnicodeEncodeError:
            # What tiktoken does with a lone surrogate: U+FFFD.
            return _count(tokenizer, text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _count(tokenizer: "AnyTokenizer", text: str) -> int:
    # Special tokens are text here. encode_flat (four bytes a token) would count each as one token. One
    # character is found 20 times as fast as two.
    if "<" in text and "<|" in text:
        return len(tokenizer.encode_ordinary(text))
    return len(tokenizer.encode_flat(text)) // 4


@cache
def _folding(name: str) -> "AnyTokenizer":
    from splintr import Tokenizer as Splintr

    return Splintr.from_pretrained(name).pcre2(True)


@cache
def load_encoding(name: str) -> Encoding:
    """Raises ConfigError for an unknown name."""
    if name not in ENCODINGS:
        raise ConfigError(f"SPILLGATE_ENCODING: unknown encoding. Use one of: {', '.join(ENCODINGS)}.")
    return Encoding(name)


def encoding_for_model(model: str, default: str) -> str:
    """The encoding of a model's name, with or without `provider/` before it; `default` if unknown."""
    from tiktoken.model import encoding_name_for_model

    for name in (model, model.rpartition("/")[2]):
        try:
            found = encoding_name_for_model(name)
        except KeyError:
            continue
        found = _SAME_COUNT.get(found, found)
        if found in ENCODINGS:
            return found
    return default


class TokenMeter:
    """Counts text in slices of at most 16 Ki characters, with the same result however it was split. After
    more than `enough` tokens it estimates the rest.

    Text without a safe cut for more than 64 Ki characters is cut anyway; the count is then not exact.
    """

    def __init__(self, encoding: Tokenizer, enough: float = math.inf) -> None:
        self._encoding = encoding
        self._enough = enough
        self._pending: list[str] = []
        self._length = 0
        self._wanted = SLICE_CHARS
        self._exact = True
        self._sample: TokenSample | None = None
        self.tokens = 0

    def feed(self, text: str) -> None:
        if self._sample is not None:
            self._sample.feed(text)
            return
        self._pending.append(text)
        self._length += len(text)
        if self._length > self._wanted:
            self._count("".join(self._pending), more=True)

    def estimate(self) -> None:
        """Estimates the tokens from here on; `tokens` stays the exact count so far."""
        if self._sample is None:
            self._sample = TokenSample(self._encoding)
            self._sample.feed("".join(self._pending))
            self._pending.clear()

    @property
    def estimates(self) -> bool:
        return self._sample is not None

    def finish(self) -> tuple[int, bool]:
        """Returns the tokens, and True if they are exact. Call it once."""
        if self._sample is None and self._pending:
            self._count("".join(self._pending), more=False)
        if self._sample is not None:
            tokens, exact = self._sample.finish()
            self.tokens += tokens
            self._exact = self._exact and exact
        return self.tokens, self._exact

    def _count(self, text: str, more: bool) -> None:
        start = 0
        self._wanted = SLICE_CHARS
        while start < len(text) and self.tokens <= self._enough and (end := self._cut(text, start, more)):
            self.tokens += self._encoding.count(text[start:end])
            start = end
        self._pending = [text[start:]]
        self._length = len(text) - start
        if self.tokens > self._enough:
            self.estimate()

    def _cut(self, text: str, start: int, more: bool) -> int:
        """The end of the slice at `start`; 0: more text is needed."""
        left = len(text) - start
        if left <= SLICE_CHARS:
            return 0 if more else len(text)
        if found := _LAST_CUT.match(text, start, start + SLICE_CHARS + 1):
            return found.end()
        if left <= _HARD and more:
            self._wanted = _HARD
            return 0
        if found := _NEXT_CUT.search(text, start + SLICE_CHARS - 1, start + _HARD + 1):
            return found.end()
        if left <= _HARD:
            return len(text)
        self._exact = False
        return start + _HARD


def count_in_slices(tokenizer: Tokenizer, *texts: str) -> int:
    """Counts the tokens of long texts, each exactly: see TokenMeter."""
    tokens = 0
    for text in texts:
        meter = TokenMeter(tokenizer)
        meter.feed(text)
        tokens += meter.finish()[0]
    return tokens


def measure(data: bytes, tokenizer: Tokenizer, text: str | None = None) -> Measure:
    """Measures a small body exactly. `text` is `data` decoded, if the caller has it. Raises InvalidUtf8."""
    text = decode_utf8(data) if text is None else text
    return Measure(len(data), line_count(data), len(text), tokenizer.count(text), True)


class Meter:
    """Measures chunks cut anywhere. A chunk above 256 KiB would hold the GIL for too long."""

    def __init__(self, tokens: TokenMeter) -> None:
        self._digest = hashlib.sha256()
        self._text = Utf8Chunks()
        self._tokens = tokens
        self._newlines = 0
        self._is_open = False
        self.bytes = 0
        self.chars = 0

    def feed(self, chunk: bytes, text: str | None = None) -> None:
        """`text` is the chunk decoded, if the caller has it and the chunk cuts no character. Raises
        InvalidUtf8."""
        text = self._text.feed(chunk) if text is None else text
        self._digest.update(chunk)
        self._newlines += chunk.count(b"\n")
        self._is_open = not chunk.endswith(b"\n") if chunk else self._is_open
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
        return Measure(self.bytes, self._newlines + self._is_open, self.chars, tokens, exact)
