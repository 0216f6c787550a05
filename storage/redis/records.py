"""Records of sessions, receipts, entries and sums as msgpack. Lua scripts read only the sums of a day."""

import hashlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from domain.accounting import AccountingEntry
from domain.budget import Session
from domain.errors import InvalidField, StorageError
from domain.handles import SessionKey
from storage.base.sparse import set_fields
from storage.base.steps import CallRecord
from storage.base.summaries import GROUPED, Group, Sums

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

T = TypeVar("T")

SEAL = 16
"""The digits of the checksum of a session."""

# Lua counts in doubles: integers are exact up to here.
LARGEST = 1 << 53
_encoder = msgspec.msgpack.Encoder()


class DamagedRecord(StorageError):
    """A record in Redis is damaged, or was not written by Spillgate."""


class DayRecord(msgspec.Struct, array_like=True):
    """The sums of a day of all shards of a tenant. `deleted`: some of its entries up to that time (Unix ms)
    are missing. `is_damaged`: the sums of a shard could not be read, and are left out."""

    deleted: int
    is_damaged: bool
    sums: list[tuple[Group, Sums]]


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    decode = msgspec.msgpack.Decoder(kind).decode

    def decoded(packed: bytes) -> T:
        try:
            return decode(packed)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise DamagedRecord from None

    return decoded


_decode_map = _decoder(dict[str, Any])
decode_entry = _decoder(AccountingEntry)
decode_call = _decoder(CallRecord)
decode_sums = _decoder(Sums)
_decode_group = _decoder(Group)
_decode_day = _decoder(DayRecord)


def seal(session: Session) -> bytes:
    """Packs a session, after SEAL digits of its SHA-1, without the fields that each charge changes."""
    fields = {name: value for name, value in _set_fields_of_session(session).items() if name not in _BESIDE}
    packed = pack(fields)
    return _checksum(packed) + packed


def unseal(key: SessionKey, sealed: bytes, reserved: bytes, used_at: bytes) -> Session:
    """Raises DamagedRecord."""
    if _checksum(sealed[SEAL:]) != sealed[:SEAL] or not (reserved.isdigit() and used_at.isdigit()):
        raise DamagedRecord
    beside = {"key": key, "reserved_tokens": int(reserved), "last_used_at": int(used_at)}
    try:
        return msgspec.convert({**_decode_map(sealed[SEAL:]), **beside}, Session)
    except msgspec.ValidationError:
        raise DamagedRecord from None


def _checksum(packed: bytes) -> bytes:
    return hashlib.sha1(packed, usedforsecurity=False).hexdigest()[:SEAL].encode()


def pack(value: object) -> bytes:
    """Raises InvalidField for a text that is not Unicode and a number past 64 bits."""
    try:
        return _encoder.encode(value)
    except (OverflowError, UnicodeEncodeError):
        raise _not_storable() from None


def encoded(text: str) -> bytes:
    """Raises InvalidField for a text that is not Unicode."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _not_storable() from None


def decode_group(packed: bytes) -> Group:
    """Raises DamagedRecord, also for a group of other fields than GROUPED."""
    group = _decode_group(packed)
    if len(group) != len(GROUPED):
        raise DamagedRecord
    return group


def pack_day(day: DayRecord) -> bytes:
    return zstd.compress(pack(day))


def unpack_day(packed: bytes) -> DayRecord:
    """Raises DamagedRecord."""
    try:
        return _decode_day(zstd.decompress(packed))
    except zstd.ZstdError:
        raise DamagedRecord from None


def check_count(number: int) -> None:
    """Raises InvalidField for a number that Lua would not count exactly."""
    if abs(number) > LARGEST:
        raise _not_storable()


_BESIDE = {"key", "reserved_tokens", "last_used_at"}
_set_fields_of_session = set_fields(Session)


def _not_storable() -> InvalidField:
    return InvalidField("A number or a text in it cannot be kept. Use numbers up to 2^53 and valid Unicode.")
