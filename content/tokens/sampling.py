"""Estimates the tokens of a text from windows spread evenly over it, at a bounded cost."""

import re

from domain.ports import Tokenizer

_WINDOW = 384
_WINDOWS = 32
_BUDGET = 6 * 1024

# No token spans a letter or digit and ASCII punctuation or space after it: see encodings.py.
_WHOLE = re.compile(
    r"[A-Za-z0-9]((?=[^A-Za-z0-9'\x80-\U0010ffff]).*[A-Za-z0-9])(?=[^A-Za-z0-9'\x80-\U0010ffff])", re.DOTALL
)


class Sample:
    """Keeps every window until there are too many, then every second one, and so on. Keeps at most 12 Ki
    characters and tokenises 6 Ki of them, once, at the end."""

    __slots__ = ("_encoding", "_next", "_seen", "_stride", "_windows")

    def __init__(self, encoding: Tokenizer) -> None:
        self._encoding = encoding
        self._windows = [""]
        self._stride = _WINDOW
        self._next = 0
        self._seen = 0

    def feed(self, text: str) -> None:
        end = self._seen + len(text)
        if self._seen == 0:
            # Starts with the stride that this much text needs.
            while (_WINDOWS - 1) * self._stride + _WINDOW <= end:
                self._stride *= 2
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
        if self._stride == _WINDOW and self._seen <= _BUDGET:
            return self._encoding.count("".join(self._windows)), True
        size = _BUDGET // len(self._windows)
        chars = tokens = 0
        for window in self._windows:
            whole = _WHOLE.search(window[:size])
            piece = whole[1] if whole else window[:size]
            chars += len(piece)
            tokens += self._encoding.count(piece)
        return round(tokens / chars * self._seen), False
