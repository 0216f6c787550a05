"""Records of sessions, receipts, entries and sums as msgpack, which the Lua scripts read too."""

import hashlib
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from domain.accounting import AccountingEntry, EntryDetails
from domain.budget import Session
from domain.errors import InvalidField, StorageError
from domain.handles import SessionKey
from storage.base.summaries import Group, SummedEntry, Sums

T = TypeVar("T")
GROUPED = ("type", "tool_name", "trigger", "outcome", "status", "model", "strategy", "tool_kind")
"""The fields of a Group, by which entries are summed up when they are written."""

# Lua counts in doubles: integers are exact up to here.
_LARGEST = 1 << 53
_encoder = msgspec.msgpack.Encoder()


class DamagedRecord(StorageError):
    """A record in Redis is damaged, or was not written by Spillgate."""


class Kept(msgspec.Struct, array_like=True):
    """The receipt of a named call. `text` is the text for the model."""

    entry: AccountingEntry
    fingerprint: str
    text: str | None


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
decode_summed_entry = _decoder(SummedEntry)
decode_kept = _decoder(Kept)
decode_sums = _decoder(Sums)
decode_group = _decoder(Group)
group_of: Callable[[AccountingEntry], Group] = attrgetter(*GROUPED)


def is_receipt(packed: bytes) -> bool:
    """False if it is damaged."""
    try:
        decode_kept(packed)
    except DamagedRecord:
        return False
    return True


def session_of(key: SessionKey, packed: bytes) -> Session:
    """`packed` is a session in a reply of session.lua. Raises DamagedRecord."""
    try:
        return msgspec.convert({"key": key, **_decode_map(packed)}, Session)
    except msgspec.ValidationError:
        raise DamagedRecord from None


def kept_session(key: SessionKey, kept: bytes) -> Session:
    """`kept` is a session as Redis keeps it, after its checksum. Raises DamagedRecord."""
    if hashlib.sha1(kept[8:], usedforsecurity=False).hexdigest()[:8].encode() != kept[:8]:
        raise DamagedRecord
    return session_of(key, kept[8:])


def pack(value: object) -> bytes:
    """Raises InvalidField for a text that is not Unicode and a number past 64 bits."""
    try:
        return _encoder.encode(value)
    except (OverflowError, UnicodeEncodeError):
        raise _not_storable() from None


def pack_entry(entry: AccountingEntry) -> bytes:
    return pack(_sparse(entry))


def pack_kept(entry: AccountingEntry, fingerprint: str, text: str | None) -> bytes:
    return pack((_sparse(entry), fingerprint, text))


def check_counts(*numbers: int | None) -> None:
    """Raises InvalidField for a number that Lua would not count exactly."""
    if any(number is not None and abs(number) > _LARGEST for number in numbers):
        raise _not_storable()


def _given(kind: type[Any]) -> Callable[[Any], dict[str, object]]:
    """Returns a function that lists the fields of a `kind` which differ from their defaults."""
    defaults = tuple((field.name, field.default) for field in fields(kind))
    values = attrgetter(*(name for name, _ in defaults))

    def given(one: object) -> dict[str, object]:
        pairs = zip(defaults, values(one), strict=True)
        return {name: value for (name, default), value in pairs if value != default}

    return given


_given_of_entry = _given(AccountingEntry)
_given_of_details = _given(EntryDetails)


def _sparse(entry: AccountingEntry) -> dict[str, object]:
    given = _given_of_entry(entry)
    if "details" in given:
        given["details"] = _given_of_details(entry.details)
    return given


def _not_storable() -> InvalidField:
    return InvalidField("A number or a text in it cannot be kept. Use numbers up to 2^53 and valid Unicode.")
