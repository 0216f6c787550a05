"""The info of a stored result as JSON with a checksum."""

import zlib
from collections.abc import Callable
from typing import TypeVar

import msgspec

from domain.errors import InvalidField

T = TypeVar("T")
_CHECKSUM_BYTES = len(b'{"crc32":"00000000",')
_encode_json = msgspec.json.Encoder().encode


class DamagedInfo(ValueError):
    """The bytes are not an info, or are incomplete. The message quotes nothing from them."""


def encode_info(info: object) -> bytes:
    """Raises InvalidField for text that is not valid Unicode."""
    try:
        line = _encode_json(info)
    except UnicodeEncodeError:
        raise InvalidField("tool_name or tool_arguments is not valid Unicode. Send valid Unicode.") from None
    return _checksum(line) + line[1:]


def decode_info(data: bytes, decode: Callable[[bytes], T]) -> T:
    """`decode` is the method of a msgspec JSON decoder. Raises DamagedInfo."""
    line = b"{" + data[_CHECKSUM_BYTES:]
    if data[:_CHECKSUM_BYTES] != _checksum(line):
        raise DamagedInfo("its checksum does not match")
    try:
        return decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise DamagedInfo("its fields are not those of an info") from None


def _checksum(line: bytes) -> bytes:
    """Returns the first bytes of an info; they replace the brace that opens `line`."""
    return b'{"crc32":"%08x",' % zlib.crc32(line)
