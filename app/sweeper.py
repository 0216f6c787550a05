"""Checks store and ledger, and sweeps what has expired in them, at intervals."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio

from app.runtime import Runtime
from domain.accounting import AccountingEntry, EntryStatus, EntryType
from domain.errors import StorageError
from domain.ports import LostWrite

SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
"""Between two sweeps; a quarter of the retention where that is in between."""

log = logging.getLogger("spillgate.sweeper")


async def sweep_forever(rt: Runtime) -> None:
    pause = max(SHORTEST_SECONDS, min(LONGEST_SECONDS, rt.settings.retention_seconds / 4))
    left_behind = True
    while True:
        # A store that is not ready is swept too: until it is ready, results pass.
        with suppress(StorageError):
            await rt.readiness.check()
        await rt.unrecorded.record()
        may_sweep = rt.clock_watch.may_sweep
        if may_sweep:
            with _logging_failure(rt):
                await sweep(rt, left_behind)
                left_behind = False
        await anyio.sleep(pause if may_sweep else SHORTEST_SECONDS)


@contextmanager
def _logging_failure(rt: Runtime) -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        rt.readiness.invalidate()
        if all(rt.readiness.is_up.values()):
            # Otherwise the log says "Not ready."
            fields = {"code": error.code, "why": error.why}
            log.warning("A sweep failed and is tried again.", extra={"fields": fields})


async def sweep(rt: Runtime, left_behind: bool) -> int:
    """Returns how many results were deleted. `left_behind`: also what a crash left of ended sessions."""
    deleted = 0
    with _logging_failure(rt):
        deleted = await rt.store.sweep()
    ended = await rt.ledger.sweep()
    for key in ended if left_behind else ():
        session = await rt.ledger.session(key)
        if session is not None:
            deleted += await rt.store.delete_session(key, session.first_live_epoch)
    await rt.indexes.sweep(rt.store)
    await rt.spend_caps.daily.learn_of(await rt.ledger.usage())
    for write in await rt.ledger.lost_writes():
        await rt.ledger.append(_entry_of(rt, write))
    return deleted


def _entry_of(rt: Runtime, lost: LostWrite) -> AccountingEntry:
    """Tells that the entry, and others before it, are lost."""
    tenant, session_id = lost.key
    log.warning("The ledger has lost entries that it acknowledged.", extra={"fields": {"tenant": tenant}})
    return AccountingEntry(
        id=rt.new_entry_id(),
        type=EntryType.LOST,
        timestamp=lost.at,
        tenant=tenant,
        session_id=session_id,
        tool_name="",
        status=EntryStatus.FAILED,
    )
