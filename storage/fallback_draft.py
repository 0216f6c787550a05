"""A body on its way to Redis and, beside it, to the spool: whenever Redis goes away, the spool has all of it.

The spool holds up to 1 MiB of it in memory, more in a file that is synced only if it is published there.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from domain.errors import StorageError, StoreUnavailable
from domain.ports import Draft
from domain.results import Durability, StoredResult
from storage.outage import Outage

Opening = AbstractAsyncContextManager[Draft]


@dataclass(slots=True)
class Doubled:
    """Bytes of drafts that the spool holds beside Redis."""

    bytes: int = 0


class FallbackDraft:
    """`abandon` leaves a draft of Redis without its caller waiting for that. Without `primary` it is the
    spool's alone."""

    def __init__(
        self,
        primary: Opening | None,
        spool: Opening,
        outage: Outage,
        doubled: Doubled,
        abandon: Callable[[Opening], None],
    ) -> None:
        self._to_primary = primary
        self._to_spool = spool
        self._outage = outage
        self._doubled = doubled
        self._abandon = abandon
        self._own_doubled = 0
        self._is_spooled = True

    async def __aenter__(self) -> Self:
        self._spool = await self._to_spool.__aenter__()
        self._primary = None if self._to_primary is None else await self._to_primary.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count_once()
        try:
            if self._to_primary is not None:
                await self._to_primary.__aexit__(kind, error, trace)
        finally:
            await self._to_spool.__aexit__(kind, error, trace)

    async def write(self, chunk: bytes) -> None:
        if (primary := self._sending()) is not None:
            try:
                await primary.write(chunk)
            except StoreUnavailable as error:
                self._give_up(error)
        if self._is_spooled:
            await self._spool_up(chunk)

    def read(self) -> AsyncIterator[bytes]:
        if self._is_spooled or self._primary is None:
            return self._spool.read()
        return self._primary.read()

    async def publish(self, stored: StoredResult) -> Durability:
        if (primary := self._sending()) is not None:
            try:
                return await primary.publish(stored)
            except StoreUnavailable as error:
                self._give_up(error)
        return await self._spool.publish(stored)

    def _sending(self) -> Draft | None:
        """The draft in Redis, unless the spool has all and Redis is known to be away."""
        if self._outage.is_on and self._is_spooled:
            self._leave_primary()
        return self._primary

    async def _spool_up(self, chunk: bytes) -> None:
        try:
            await self._spool.write(chunk)
        except StorageError:
            # While Redis takes it, a full disk here is no reason to refuse it.
            if self._primary is None:
                raise
            self._is_spooled = False
            return
        if self._primary is not None:
            self._own_doubled += len(chunk)
            self._doubled.bytes += len(chunk)

    def _give_up(self, error: StoreUnavailable) -> None:
        self._outage.begin(error)
        if not self._is_spooled:
            raise error
        self._leave_primary()

    def _leave_primary(self) -> None:
        self._count_once()
        if self._to_primary is not None:
            self._abandon(self._to_primary)
        self._primary = self._to_primary = None

    def _count_once(self) -> None:
        self._doubled.bytes -= self._own_doubled
        self._own_doubled = 0
