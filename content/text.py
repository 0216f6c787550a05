"""UTF-8 text: decoding in chunks, cutting between characters, clipping, previews."""

import codecs
import re
from collections.abc import Iterable
from enum import StrEnum

from domain.errors import InvalidUtf8

IN_DOUBLE_QUOTES = rb'[^"\\]*+(?>(?:\\.[^"\\]*+)*)'
IN_SINGLE_QUOTES = rb"[^'\\]*+(?>(?:\\.[^'\\]*+)*)"
"""Patterns, for re.DOTALL, of what is between the quotes of a string in JSON or a similar literal."""

DOUBLE_QUOTED = rb'"%b(?:"|\\?\Z)' % IN_DOUBLE_QUOTES
SINGLE_QUOTED = rb"'%b(?:'|\\?\Z)" % IN_SINGLE_QUOTES
"""Patterns of the string with its quotes. It may be cut at the end of the text."""


BOM = b"\xef\xbb\xbf"

TERMINAL_CODE = re.compile(
    rb"\x1b(?:\[[0-9;?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)|[@-Z\\^_=>78])"
)
"""A colour or movement of a terminal. It begins with a literal, which is looked for 20 times as fast as a
choice."""


def cut_head(data: bytes, max_bytes: int) -> bytes:
    """The longest beginning of at most `max_bytes`."""
    if len(data) <= max_bytes:
        return data
    end = max(0, max_bytes)
    while end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    if data[end - 1 : end + 1] == b"\r\n":
        end -= 1
    return data[:end]


def cut_tail(data: bytes, max_bytes: int) -> bytes:
    """The longest end of at most `max_bytes`."""
    if len(data) <= max_bytes:
        return data
    start = len(data) - max(0, max_bytes)
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    if data[start - 1 : start + 1] == b"\r\n":
        start += 1
    return data[start:]


def decode_utf8(data: bytes) -> str:
    """Raises InvalidUtf8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _invalid(error.start) from None


class Utf8Chunks:
    """Turns chunks of bytes into text. A character cut at the end of a chunk waits for the next chunk."""

    def __init__(self) -> None:
        self._cut = b""
        self._offset = 0

    def feed(self, chunk: bytes) -> str:
        """Raises InvalidUtf8."""
        data = self._cut + chunk if self._cut else chunk
        try:
            text, used = codecs.utf_8_decode(data, "strict", False)
        except UnicodeDecodeError as error:
            raise _invalid(self._offset + error.start) from None
        self._offset += used
        self._cut = data[used:]
        return text

    def finish(self) -> None:
        """Raises InvalidUtf8 if the last character is incomplete."""
        if self._cut:
            raise _invalid(self._offset)


def _invalid(offset: int) -> InvalidUtf8:
    return InvalidUtf8(
        f"The text is not valid UTF-8 at byte {offset}. "
        "Send text encoded as UTF-8; binary data can be sent as base64."
    )


def without_surrogates(value: object) -> object:
    """The text, or the JSON value, with U+FFFD in place of each lone surrogate."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return value


def decode_part(data: bytes) -> str:
    """The text without the bytes of a character that was cut at either end."""
    return data.decode("utf-8", "ignore")


def clip(text: str | bytes, most: int = 160) -> str:
    """The text on one line of at most `most` characters."""
    if isinstance(text, bytes):
        text = decode_part(text[: 4 * most])
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(names: Iterable[str], most_chars: int) -> str:
    """The names that fit, and how many more there are."""
    names = list(names)
    room, count = most_chars, 0
    for name in names:
        room -= len(name) + 2
        if room < 0 and count:
            break
        count += 1
    more = f", and {len(names) - count:,} more" if count < len(names) else ""
    return ", ".join(names[:count]) + more


def line_count(data: bytes) -> int:
    """The newlines, plus one where text follows the last of them."""
    return data.count(b"\n") + (data[-1:] not in (b"", b"\n"))


def count_of(number: int, noun: str) -> str:
    """For example `1 line` and `2,000 lines`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Preview(StrEnum):
    NONE = "none"
    SKETCH = "sketch"
    HEAD = "head"
    HEAD_TAIL = "head-tail"
    OUTLINE = "outline"


SKETCHED_BYTES = 128 << 10
"""For a sketch. A result of this size is looked at whole; of a larger one the first 16 KiB and
the end."""

SAMPLE_BYTES = 16 << 10
SAMPLE_TAIL_BYTES = 4096

TRUNCATED = "\n... [{} bytes truncated; head + tail kept] ...\n"
"""The contract's marker between the beginning and the end of a text."""

# Room for the marker of a preview with the longest number.
_MARKER_BYTES = 48


def preview(kind: Preview, head: bytes, tail: bytes, total_bytes: int, max_bytes: int) -> str:
    """At most `max_bytes` of UTF-8; "" for an overview, which is made elsewhere. `head` and `tail` are the
    first and last bytes of the result. They may overlap, and may be cut within a character."""
    if kind not in (Preview.HEAD, Preview.HEAD_TAIL) or max_bytes <= 0:
        return ""
    if kind == Preview.HEAD or total_bytes <= min(max_bytes, len(head)) or max_bytes < 2 * _MARKER_BYTES:
        return decode_part(cut_head(head, max_bytes))
    return _head_tail(head, tail, total_bytes, max_bytes)


def _head_tail(head: bytes, tail: bytes, total_bytes: int, max_bytes: int) -> str:
    room = (max_bytes - _MARKER_BYTES) // 2
    first = decode_part(cut_head(head, room))
    last = decode_part(cut_tail(tail, min(room, total_bytes - len(first.encode()))))
    omitted = total_bytes - len(first.encode()) - len(last.encode())
    if omitted <= 0:
        return first + last
    return f"{first}\n[... {omitted} bytes omitted ...]\n{last}"


def decode_escapes(escapes: bytes) -> bytes:
    """Decodes UTF-16 escapes of JSON, `\\uXXXX` after `\\uXXXX`, to UTF-8. A lone surrogate becomes
    U+FFFD."""
    units = bytes.fromhex(escapes.replace(b"\\u", b"").decode())
    return units.decode("utf-16-be", "replace").encode()
