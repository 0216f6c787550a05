"""What is asked about a stored result, and whether the answers cost more tokens than storing it saved."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec

from domain.accounting import AccountingEntry, EntryType
from domain.errors import StorageError
from domain.ports import Ledger
from domain.results import StoredResult

T = TypeVar("T")


class _Net(msgspec.Struct, array_like=True):
    """`tokens` that a stored result has saved so far, less what was asked about it. `is_asked`: a question or
    a reading back was answered; calls of models come before the answer that they are for."""

    tokens: int
    is_asked: bool = False


class FollowUps:
    """Marks the entries about stored results. The net of each result is a finding of its session. Replicas
    that answer about one result at the same moment may both mark their entry as the first."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def write(
        self,
        ledger: Ledger,
        stored: StoredResult,
        entry: AccountingEntry,
        write: Callable[[AccountingEntry], Awaitable[T]],
    ) -> T:
        """Calls `write` with the marked entry. It returns None if it did not write."""
        about = str(stored.handle)
        name = f"net {about}"
        async with self._locks.setdefault(about, asyncio.Lock()):
            before = _net_of(await ledger.finding(stored.key, stored.epoch, name)) or _Net(
                stored.tokens_saved
            )
            is_question = entry.type is not EntryType.LLM
            after = _Net(before.tokens + entry.tokens_saved, before.is_asked or is_question)
            details = replace(
                entry.details,
                first_question=is_question and not before.is_asked,
                costs_more=before.tokens >= 0 > after.tokens,
            )
            written = await write(replace(entry, details=details))
            if written is not None:
                # The entry is written: the answer must not fail for the sake of a count.
                with suppress(StorageError):
                    text = msgspec.json.encode(after).decode()
                    await ledger.keep_finding(stored.key, stored.epoch, name, text)
            return written

    async def append(self, ledger: Ledger, stored: StoredResult, entry: AccountingEntry) -> None:
        async def append(marked: AccountingEntry) -> bool:
            await ledger.append(marked)
            return True

        await self.write(ledger, stored, entry, append)


def _net_of(text: str | None) -> _Net | None:
    """None for a finding that is damaged, too."""
    try:
        return None if text is None else msgspec.json.decode(text, type=_Net)
    except msgspec.DecodeError:
        return None
