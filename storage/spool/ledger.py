"""Sessions and accounting in Redis; while it is away, in memory and in a journal for Redis."""

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from domain.accounting import AccountingEntry, EntryFilter, EntryPage, GroupBy, Missing, Summary
from domain.budget import Reported, Session, SessionChange
from domain.errors import InvalidField, SpillgateError, StorageError, StoreFull, StoreUnavailable
from domain.handles import Handle, SessionKey
from domain.ports import Call, Charge, Entered, Ledger, Load, Receipt, SessionPage
from domain.quotas import LedgerUsage, Purged
from domain.results import UsageReport
from storage.base.places import InPlace
from storage.base.summaries import GroupedSums, matches
from storage.memory import MemoryLedger
from storage.redis.ledger import RedisLedger
from storage.spool import Outage, refuse

log = logging.getLogger("spillgate.spool")

_REMEMBERED = 10_000
_BATCH = 200
R = TypeVar("R", Receipt, Receipt | None)
S = TypeVar("S", Session, Session | None)


class Declared(msgspec.Struct, tag=True, frozen=True):
    key: SessionKey
    change: SessionChange


class Charged(msgspec.Struct, tag=True, frozen=True):
    charge: Charge


class Appended(msgspec.Struct, tag=True, frozen=True):
    entry: AccountingEntry


Line = Declared | Charged | Appended
_decode = msgspec.json.Decoder(Line).decode


class Journal:
    """Changes for Redis as JSON lines, each synced before it is acknowledged."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._place = InPlace(path, "The journal of the spool")
        self._turn = asyncio.Lock()
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            # A crash cut the last line, which was not acknowledged: end it, so that the next line is whole.
            os.write(self._fd, b"\n")

    async def write(self, line: Line) -> None:
        """Raises StoreFull, StoreUnavailable, InvalidField."""
        try:
            packed = msgspec.json.encode(line) + b"\n"
        except UnicodeEncodeError:
            raise InvalidField("A text in it cannot be kept. Use valid Unicode.") from None
        async with self._turn:
            await asyncio.to_thread(self._write, packed)

    async def each(self, act: Callable[[Line], Awaitable[None]], offset: int = 0) -> int:
        """Calls `act` with each line from `offset` on, oldest first. Returns the offset of the end."""
        while lines := await asyncio.to_thread(self._read, offset):
            for line in lines:
                try:
                    decoded = _decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    log.error("a line of the spool's journal is damaged: it is skipped")
                else:
                    await act(decoded)
                offset += len(line)
        return offset

    async def replay(self, act: Callable[[Line], Awaitable[None]]) -> None:
        """Calls `act` with each line, oldest first, then empties the journal. After a crash or an error of
        `act`, lines may be replayed again."""
        offset = 0
        while True:
            offset = await self.each(act, offset)
            async with self._turn:
                if offset == os.fstat(self._fd).st_size:
                    os.ftruncate(self._fd, 0)
                    return

    @property
    def is_empty(self) -> bool:
        return os.fstat(self._fd).st_size == 0

    def check(self) -> None:
        """Raises StoreUnavailable if its file was deleted or replaced."""
        self._place.check()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, packed: bytes) -> None:
        self.check()
        size = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, packed) < len(packed):
                raise OSError
            os.fsync(self._fd)
        except OSError as error:
            os.ftruncate(self._fd, size)
            raise StoreFull("The journal of the spool cannot be written. Free space on its disk.") from error

    def _read(self, offset: int) -> list[bytes]:
        try:
            with open(os.dup(self._fd), "rb") as file:
                file.seek(offset)
                lines = [line for _, line in zip(range(_BATCH), file, strict=False)]
                # The last line may be incomplete while it is written.
                return [line for line in lines if line.endswith(b"\n")]
        except OSError as error:
            raise StoreUnavailable("The journal of the spool cannot be read. Check its disk.") from error


class SpoolLedger:
    """Owns the ledger and the journal. `judge` makes an empty ledger in memory for the time of an outage."""

    def __init__(
        self, primary: RedisLedger, judge: Callable[[], MemoryLedger], journal: Journal, outage: Outage
    ) -> None:
        self._primary = primary
        self._new_judge = judge
        self._judge = judge()
        self._journal = journal
        self._outage = outage
        self._known: OrderedDict[SessionKey, Session] = OrderedDict()
        self._unwritten: dict[str, Charge] = {}
        outage.ends_after(primary.check)
        outage.ends_with(self._replay)

    async def restore(self) -> None:
        """Reads the journal of an earlier process that Redis does not have yet."""

        async def judge(line: Line) -> None:
            with suppress(SpillgateError):
                if isinstance(line, Charged):
                    await (await self._judging(line.charge.key, line.charge.epoch)).settle(line.charge)
                elif isinstance(line, Declared):
                    await self._judge.put_session(line.key, line.change)

        if await self._journal.each(judge):
            self._outage.watch()

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._primary.warnings

    @property
    def load(self) -> Load:
        return self._primary.load

    async def enter(self, call: Call) -> Entered:
        async def spooled(call: Call) -> Entered:
            entered = await (await self._judging(call.key)).enter(call)
            if entered.receipt is None:
                return entered
            await self._write_charge(entered.receipt.entry.id)
            return replace(entered, receipt=replace(entered.receipt, degraded=True))

        entered = await self._outage.first(self._primary.enter, spooled, call)
        self._remember(entered.session)
        return entered

    async def reserve(self, charge: Charge) -> Receipt | None:
        return await self._charge(charge, lambda ledger: ledger.reserve(charge))

    async def settle(self, charge: Charge) -> Receipt:
        return await self._charge(charge, lambda ledger: ledger.settle(charge))

    async def _charge(self, charge: Charge, act: Callable[[Ledger], Awaitable[R]]) -> R:
        async def spooled(_: Ledger) -> R:
            receipt = await act(await self._judging(charge.key, charge.epoch))
            if receipt is None:
                return receipt
            if not receipt.replayed:
                self._unwritten[charge.entry.id] = charge
            await self._write_charge(receipt.entry.id)
            return replace(receipt, degraded=True)

        receipt = await self._outage.first(act, spooled, self._primary)
        known = self._known.get(charge.key)
        if known is not None and receipt is not None:
            self._remember(replace(known, reserved_tokens=receipt.budget.reserved_tokens))
        return receipt

    async def append(self, entry: AccountingEntry) -> None:
        await self._outage.first(self._primary.append, lambda entry: self._write(Appended(entry)), entry)

    async def session(self, key: SessionKey) -> Session | None:
        """None while Redis is away also for a session that only Redis knows."""

        async def spooled(key: SessionKey) -> Session | None:
            return await (await self._judging(key)).session(key)

        return self._remember(await self._outage.first(self._primary.session, spooled, key))

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        async def spooled(key: SessionKey, change: SessionChange) -> Session:
            session = await (await self._judging(key)).put_session(key, change)
            await self._write(Declared(key, change))
            return session

        return self._remember(await self._outage.first(self._primary.put_session, spooled, key, change))

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        """While Redis is away, only this instance applies the report: the next one corrects Redis."""

        async def spooled(key: SessionKey, report: UsageReport) -> Reported:
            return await (await self._judging(key)).report(key, report)

        reported = await self._outage.first(self._primary.report, spooled, key, report)
        self._remember(reported.session)
        return reported

    async def end(self, key: SessionKey) -> Session | None:
        """This and the next methods, up to `stored_at`, raise StoreUnavailable while Redis is away; not so
        `summary`."""
        return self._remember(await self._outage.first(self._primary.end, refuse, key))

    async def sessions(self, tenant: str, limit: int, cursor: str | None) -> SessionPage:
        return await self._outage.first(self._primary.sessions, refuse, tenant, limit, cursor)

    async def entries(
        self, wanted: EntryFilter, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> EntryPage:
        read = partial(self._primary.entries, newest_first=newest_first)
        return await self._outage.first(read, refuse, wanted, limit, cursor)

    async def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        """While Redis is away, the sums of what is in the journal."""

        async def primary() -> Summary:
            return await self._primary.summary(wanted, *group_by)

        async def spooled() -> Summary:
            sums = GroupedSums(group_by)

            async def add(line: Line) -> None:
                entry = line.charge.entry if isinstance(line, Charged) else getattr(line, "entry", None)
                if entry is not None and matches(entry, wanted):
                    sums.add_entry(entry)

            await self._journal.each(add)
            return sums.summary(Missing.OUTAGE)

        found = await self._outage.first(primary, spooled)
        # Redis may be back, but lack the end of the journal.
        return found if self._journal.is_empty else replace(found, missing=found.missing | {Missing.OUTAGE})

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        return await self._outage.first(self._primary.stored_at, refuse, tenant, handle)

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        return await self._outage.first(self._primary.finding, self._judge.finding, key, epoch, name)

    async def keep_finding(self, key: SessionKey, epoch: int, name: str, text: str) -> None:
        first = self._outage.first
        await first(self._primary.keep_finding, self._judge.keep_finding, key, epoch, name, text)

    async def sweep(self) -> list[SessionKey]:
        return await self._outage.first(self._primary.sweep, self._judge.sweep)

    async def delete_tenant(self, tenant: str) -> Purged:
        """Raises StoreUnavailable while Redis is away, with nothing deleted. Is not done while the journal
        holds anything: replaying it may bring the tenant back."""
        was_empty = self._journal.is_empty
        purged = await self._outage.first(self._primary.delete_tenant, refuse, tenant)
        for key in [key for key in self._known if key.tenant == tenant]:
            del self._known[key]
        return purged._replace(is_done=purged.is_done and was_empty)

    async def usage(self) -> dict[str, LedgerUsage]:
        return await self._outage.first(self._primary.usage, self._judge.usage)

    async def entry_count(self) -> int:
        return await self._outage.first(self._primary.entry_count, refuse)

    async def check(self) -> None:
        async def spooled() -> None:
            await asyncio.to_thread(self._journal.check)

        await self._outage.first(self._primary.check, spooled)

    async def close(self) -> None:
        await self._outage.close()
        await self._primary.close()
        self._journal.close()

    async def _judging(self, key: SessionKey, epoch: int = 0) -> MemoryLedger:
        """Returns the judge, which adopts the session that this instance knows, unless it is older."""
        if await self._judge.session(key) is None:
            known = self._known.get(key)
            if known is not None and known.epoch >= epoch:
                self._judge.adopt(known)
        return self._judge

    async def _write_charge(self, entry_id: str) -> None:
        """Writes a charge unless it is in the journal: an earlier try may have failed, or not have ended."""
        charge = self._unwritten.get(entry_id)
        if charge is None:
            return
        try:
            await self._write(Charged(charge))
        except StorageError:
            if charge.call_id is None:
                # Sent again, it is another call.
                self._unwritten.pop(entry_id, None)
            raise
        self._unwritten.pop(entry_id, None)

    async def _write(self, line: Line) -> None:
        await self._journal.write(line)
        # The outage may have ended during the write: make sure that the line is replayed.
        self._outage.watch()

    async def _replay(self) -> None:
        await self._journal.replay(self._enter)
        self._judge = self._new_judge()
        self._unwritten.clear()

    async def _enter(self, line: Line) -> None:
        try:
            match line:
                case Declared():
                    await self._primary.put_session(line.key, line.change)
                case Charged():
                    await self._primary.replay(line.charge)
                case Appended():
                    await self._primary.replay(line.entry)
        except StorageError:
            raise
        except SpillgateError as error:
            # Redis would refuse it every time.
            log.error("a line of the spool's journal is refused", extra={"reason": error.detail})

    def _remember(self, session: S) -> S:
        if session is not None:
            self._known[session.key] = session
            self._known.move_to_end(session.key)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return session
