"""Decodes and validates UTF-8 that arrives in chunks cut anywhere."""

import codecs

from domain.errors import InvalidUtf8


def decoded(data: bytes) -> str:
    """Raises InvalidUtf8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _invalid(error.start) from None


class Utf8Chunks:
    """Turns chunks of bytes into text. A character cut at the end of a chunk waits for the next chunk."""

    __slots__ = ("_cut", "_offset")

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
