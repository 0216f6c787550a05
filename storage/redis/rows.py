"""Sessions, receipts, entries and their sums as msgpack, which Redis's Lua reads too."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from domain.accounting import AccountingEntry, EntryDetails, EntryFilter, EntryStatus, GroupBy, SummaryRow
from domain.budget import Session
from domain.errors import InvalidField, StorageError
from domain.handles import SessionKey
from domain.results import UsageReport

T = TypeVar("T")
DAY_MS = 86_400_000
GROUPED = ("type", "tool_name", "trigger", "outcome", "status", "model", "strategy", "tool_kind")
"""By what entries are summed up as they are written. A question about sessions reads the entries."""

# Lua counts in doubles: up to here they are exact.
_LARGEST = 1 << 53
_encoder = msgspec.msgpack.Encoder()


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
    reports: tuple[tuple[int, int], ...] = ()


class Kept(msgspec.Struct, array_like=True):
    """What a named call was told."""

    entry: AccountingEntry
    fingerprint: str
    text: str | None


class Sums(msgspec.Struct, array_like=True):
    """Of some entries. `latency_max` is last: the others are added up."""

    entries: int
    failed: int
    bytes: int
    tokens_in: int
    tokens_out: int
    tokens_saved: int
    latency: float
    cost_usd: float
    observed: int
    latency_max: float

    def plus(self, other: "Sums") -> "Sums":
        one, two = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        values = [a + b for a, b in zip(one[:-1], two[:-1], strict=True)]
        return msgspec.convert([*values, max(one[-1], two[-1])], Sums)

    def row(self, group: str | None) -> SummaryRow:
        return SummaryRow(
            group=group,
            entries=self.entries,
            failed=self.failed,
            bytes=self.bytes,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            tokens_saved=self.tokens_saved,
            latency_ms_mean=self.latency / self.entries,
            latency_ms_max=self.latency_max,
            cost_usd=self.cost_usd,
            tokens_saved_observed=self.observed,
        )


def sums_of(entry: AccountingEntry) -> Sums:
    details = entry.details
    return Sums(
        1,
        int(entry.status is EntryStatus.FAILED),
        details.bytes,
        entry.tokens_in,
        entry.tokens_out,
        entry.tokens_saved,
        entry.latency,
        entry.cost_usd,
        details.observed_tokens_saved,
        entry.latency,
    )


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    decode = msgspec.msgpack.Decoder(kind).decode

    def decoded(packed: bytes) -> T:
        try:
            return decode(packed)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise StorageError("A record in Redis is damaged, or was not written by Spillgate.") from None

    return decoded


_decode_session = _decoder(_Session)
decode_entry = _decoder(AccountingEntry)
decode_kept = _decoder(Kept)
decode_sums = _decoder(Sums)
decode_group = _decoder(tuple[str | None, ...])
group_of = attrgetter(*GROUPED)


def session_of(key: SessionKey, packed: bytes) -> Session:
    fields = msgspec.structs.asdict(_decode_session(packed))
    return Session(key, **{**fields, "reports": tuple(UsageReport(*one) for one in fields["reports"])})


def pack(value: object) -> bytes:
    """Raises InvalidField for a text that is not Unicode and a number past 64 bits."""
    try:
        return _encoder.encode(value)
    except (OverflowError, UnicodeEncodeError):
        raise unkeepable() from None


def pack_entry(entry: AccountingEntry) -> bytes:
    return pack(_given(entry))


def pack_kept(entry: AccountingEntry, fingerprint: str, text: str | None) -> bytes:
    return pack((_given(entry), fingerprint, text))


def check_counts(*numbers: int | None) -> None:
    """Raises InvalidField for a number that Lua would not count exactly."""
    if any(number is not None and abs(number) > _LARGEST for number in numbers):
        raise unkeepable()


def unkeepable() -> InvalidField:
    return InvalidField("A number or a text in it cannot be kept. Use numbers up to 2^53 and valid Unicode.")


def matches(entry: AccountingEntry, wanted: EntryFilter) -> bool:
    return (
        wanted.session_id in (None, entry.session_id)
        and matches_group(group_of(entry), wanted)
        and (wanted.since is None or entry.timestamp >= wanted.since)
        and (wanted.until is None or entry.timestamp < wanted.until)
    )


def matches_group(group: tuple[str | None, ...], wanted: EntryFilter) -> bool:
    asked = (wanted.type, wanted.tool_name, wanted.trigger, wanted.outcome, wanted.status)
    return all(value is None or value == part for value, part in zip(asked, group, strict=False))


def name_of(group: tuple[str | None, ...], session_id: str, day: int, group_by: GroupBy) -> str | None:
    """The row of a summary to which something belongs."""
    if group_by is GroupBy.DAY:
        return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).strftime("%Y-%m-%d")
    if group_by is GroupBy.SESSION_ID:
        return session_id
    value = group[GROUPED.index(group_by)]
    return None if value is None else str(value)


def rows_of(found: Iterable[tuple[str | None, Sums]]) -> list[SummaryRow]:
    """Most tokens saved first."""
    groups: dict[str | None, Sums] = {}
    for name, sums in found:
        groups[name] = groups[name].plus(sums) if name in groups else sums
    rows = [sums.row(name) for name, sums in groups.items()]
    return sorted(rows, key=lambda row: (-row.tokens_saved, row.group or ""))


def _sparse(kind: type[Any]) -> Callable[[Any], dict[str, object]]:
    """What differs from the defaults, by name."""
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
