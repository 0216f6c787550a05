"""Searches for secrets. Long searches run in threads."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TypeVar

from anyio.to_thread import run_sync

from content.redaction.detector import Detector
from content.redaction.masked_json import masked_json
from content.redaction.masks import Masks
from content.redaction.search import SecretSearch
from extraction.tenant_gate import TenantGate

T = TypeVar("T")

_THREADS = 2


class SearchThreads:
    """Each tenant has one thread, which it holds for one block at a time, so that others wait at most a
    second."""

    def __init__(self) -> None:
        self._gate = TenantGate(_THREADS)

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        async with self._gate.turn(tenant):
            return await run_sync(work)

    async def look(self, tenant: str, search: SecretSearch) -> None:
        """Searches the blocks that are complete."""
        while search.has_block:
            await self.run(tenant, search.look)

    async def finish(self, tenant: str, search: SecretSearch) -> Masks:
        masks = search.finish_at_once()
        return await self.run(tenant, search.finish) if masks is None else masks

    async def masks(self, tenant: str, detector: Detector, chunks: AsyncIterator[bytes]) -> Masks:
        """The masks of a body."""
        search = SecretSearch(detector)
        async for chunk in chunks:
            search.hold(chunk)
            await self.look(tenant, search)
        return await self.finish(tenant, search)

    async def masks_of(self, tenant: str, detector: Detector, data: bytes) -> Masks:
        """The masks of a text that is in memory."""
        search = SecretSearch(detector)
        search.hold(data)
        await self.look(tenant, search)
        return await self.finish(tenant, search)

    async def masked_json(
        self, tenant: str, data: bytes, masks: Masks, key: bytes, *, keeps_numbers: bool = False
    ) -> bytes:
        """See `masked_json`."""
        work = partial(masked_json, data, masks, key, keeps_numbers=keeps_numbers)
        return await self.run(tenant, work)
