"""Sessions, entries and receipts as msgpack, which Redis's Lua reads too, and back."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from domain.accounting import AccountingEntry, EntryDetails
from domain.budget import Reported, ReportWarning, Session
from domain.errors import InvalidField, StoreUnavailable
from domain.handles import SessionKey
from domain.results import UsageReport

T = TypeVar("T")

# Lua counts in doubles: up to here they are exact.
_LARGEST = 1 << 53
_UNKEEPABLE = (OverflowError, UnicodeEncodeError)


class _Session(msgspec.Struct):
    """The fields of Session in their order, without its key; what is absent is None."""

    epoch: int
    created_at: int
    last_used_at: int
    context_window: int | None = None
    buffer_tokens: int | None = None
    max_output_tokens: int | None = None
    model: str | None = None
    policy: str | None = None
    used_tokens: int | None = None
    turn: int | None = None
    reserved_tokens: int = 0
    ended_at: int | None = None
    reports: list[tuple[int, int]] = []
    warning: str | None = None


class Kept(msgspec.Struct, array_like=True):
    """What a named call was told."""

    entry: AccountingEntry
    fingerprint: str
    text: str | None


class Charged(msgspec.Struct, array_like=True):
    """The budget that a charge was taken from, and its entry's number in the outbox."""

    limit_tokens: int
    used_tokens: int
    reserved_tokens: int
    enforced: bool
    number: int


class Sums(msgspec.Struct, array_like=True):
    """One row of entry_scan.lua. `earliest` and `latest` are times in ms; days that an earlier version kept
    do not have what comes after them."""

    group: list[str]
    entries: int
    failed: int
    bytes: int
    tokens_in: int
    tokens_out: int
    tokens_saved: int
    cost_usd: float
    latency: float
    latency_max: float
    earliest: int
    latest: int
    tokens_saved_observed: int = 0


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    decode = msgspec.msgpack.Decoder(kind).decode

    def decoded(packed: bytes) -> T:
        try:
            return decode(packed)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise StoreUnavailable(
                "What Redis answered is not one of our records: it was damaged, there or on its way."
            ) from None

    return decoded


_encoder = msgspec.msgpack.Encoder()
_decode_session = _decoder(_Session)
decode_entry = _decoder(AccountingEntry)
decode_charged = _decoder(Charged)
decode_kept = _decoder(Kept)
decode_sums = _decoder(list[Sums])


def session_of(key: SessionKey, packed: bytes) -> Session:
    return reported_of(key, packed).session


def reported_of(key: SessionKey, packed: bytes) -> Reported:
    *fields, reports, warning = msgspec.structs.astuple(_decode_session(packed))
    fields.append(tuple(UsageReport(used, turn) for turn, used in reports))
    session = Session(key, *fields)
    return Reported(session, None if warning is None else ReportWarning(warning))


def merge(groups: dict[tuple[str, ...], Sums], rows: Iterable[Sums]) -> None:
    """Adds each row to its group's."""
    for row in rows:
        name = tuple(row.group)
        before = groups.get(name)
        groups[name] = row if before is None else _added(before, row)


def _added(one: Sums, other: Sums) -> Sums:
    return Sums(
        group=one.group,
        entries=one.entries + other.entries,
        failed=one.failed + other.failed,
        bytes=one.bytes + other.bytes,
        tokens_in=one.tokens_in + other.tokens_in,
        tokens_out=one.tokens_out + other.tokens_out,
        tokens_saved=one.tokens_saved + other.tokens_saved,
        cost_usd=one.cost_usd + other.cost_usd,
        latency=one.latency + other.latency,
        latency_max=max(one.latency_max, other.latency_max),
        earliest=min(one.earliest, other.earliest),
        latest=max(one.latest, other.latest),
        tokens_saved_observed=one.tokens_saved_observed + other.tokens_saved_observed,
    )


def pack(value: object) -> bytes:
    """Raises InvalidField for a text that is not Unicode and a number past 64 bits."""
    try:
        return _encoder.encode(value)
    except _UNKEEPABLE:
        raise unkeepable() from None


def pack_entry(entry: AccountingEntry) -> bytes:
    return pack(_given(entry))


def pack_kept(entry: AccountingEntry, fingerprint: str, text: str | None) -> bytes:
    return pack((_given(entry), fingerprint, text))


def check_counts(*numbers: int | None) -> None:
    """Raises InvalidField for a number that Lua would not count exactly."""
    if any(number is not None and abs(number) > _LARGEST for number in numbers):
        raise unkeepable()


def check_text(text: str) -> None:
    """Raises InvalidField for a text that is not Unicode: a key has to be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise unkeepable() from None


def unkeepable() -> InvalidField:
    return InvalidField("A number or a text in it cannot be kept. Use numbers up to 2^53 and valid Unicode.")


def _sparse(kind: type[Any]) -> Callable[[Any], dict[str, object]]:
    """What differs from the defaults, by name: half the bytes, and a new field does no harm."""
    defaults = tuple((field.name, field.default) for field in fields(kind))
    values = attrgetter(*(name for name, _ in defaults))

    def given(one: object) -> dict[str, object]:
        pairs = zip(defaults, values(one), strict=True)
        return {name: value for (name, default), value in pairs if value != default}

    return given


_of_entry = _sparse(AccountingEntry)
_of_details = _sparse(EntryDetails)


def _given(entry: AccountingEntry) -> Mapping[str, object]:
    given = _of_entry(entry)
    if "details" in given:
        given["details"] = _of_details(entry.details)
    return given
