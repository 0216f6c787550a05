"""Detects damaged infos of results by a checksum, and warns once in the log about each damaged place."""

import logging
import threading
import zlib
from collections.abc import Callable
from typing import TypeVar

import msgspec

from domain.errors import InvalidField

T = TypeVar("T")
_CHECKSUM_BYTES = len(b'{"crc32":"00000000",')
_MOST_NAMES = 10_000
_encode_json = msgspec.json.Encoder().encode

log = logging.getLogger("spillgate.storage")


class DamagedInfo(ValueError):
    """The bytes are not an info, or are incomplete. The message quotes nothing from them."""


class TornInfo(DamagedInfo):
    """The checksum does not match: the info was not written to its end, or was changed since."""


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
        raise TornInfo("its checksum does not match")
    try:
        return decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise DamagedInfo("its fields are not those of an info") from None


def _checksum(line: bytes) -> bytes:
    """Returns the first bytes of an info; they replace the brace that opens `line`."""
    return b'{"crc32":"%08x",' % zlib.crc32(line)


class Notices:
    """Warns about each name once. Thread-safe. Remembers the last 10,000 names."""

    def __init__(self) -> None:
        self._warned: dict[str, None] = {}
        self._lock = threading.Lock()

    def warn(self, path: str, what: str) -> None:
        """`path`, relative to the root, or a key of Redis, is the subject of the message; `what` is the rest
        of the sentence."""
        with self._lock:
            if path in self._warned:
                return
            self._warned[path] = None
            if len(self._warned) > _MOST_NAMES:
                del self._warned[next(iter(self._warned))]
        log.warning("%s %s", path, what, extra={"fields": {"path": path}})
