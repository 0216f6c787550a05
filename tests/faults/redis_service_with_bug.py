"""The service over Redis with one fault put in, so that a test must see it: `early` or `look-first`."""

import asyncio
import sys
from types import TracebackType

from app.cli.main import main
from domain.ports import Charge, Receipt
from domain.results import StoredResult
from storage.redis import store
from storage.redis.draft import RedisDraft
from storage.redis.ledger import RedisLedger

PAUSE_SECONDS = 5.0
LOOK_SECONDS = 2.0
"""All replicas have looked by then, on a busy machine too."""


class EarlyDraft(RedisDraft):
    """Says that it is published before it is."""

    _later: asyncio.Task[None] | None = None

    async def publish(self, stored: StoredResult) -> None:
        self._later = asyncio.create_task(self._publish_later(stored))

    async def _publish_later(self, stored: StoredResult) -> None:
        await asyncio.sleep(PAUSE_SECONDS)
        await super().publish(stored)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._later is None:
            await super().__aexit__(kind, error, trace)


async def look_first(ledger: RedisLedger, charge: Charge) -> Receipt | None:
    """Get, then increment: two steps, between which others may take the rest."""
    session = await ledger.session(charge.key)
    if session is not None and not session.budget(charge.default_window, charge.enforce).fits(charge.tokens):
        return None
    await asyncio.sleep(LOOK_SECONDS)
    return await ledger.settle(charge)


FAULTS = {
    "early": (store, "RedisDraft", EarlyDraft),
    "look-first": (RedisLedger, "reserve", look_first),
}

if __name__ == "__main__":
    setattr(*FAULTS[sys.argv[1]])
    sys.exit(main(["serve", "--port", "0"]))
