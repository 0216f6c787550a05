"""Background work: sweeps what has expired, and takes up a changed policy file."""

import logging
from dataclasses import replace

import anyio
from starlette.datastructures import State

from app.files import stamp_of
from app.runtime import Runtime, revised
from domain.errors import ConfigError, StorageError

SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
"""Between two sweeps; a quarter of the retention where that is in between."""

sweeper_log = logging.getLogger("spillgate.sweeper")

LOOK_SECONDS = 0.5

policies_log = logging.getLogger("spillgate.policies")


async def sweep_forever(rt: Runtime) -> None:
    pause = max(SHORTEST_SECONDS, min(LONGEST_SECONDS, rt.settings.retention_seconds / 4))
    left_behind = True
    while True:
        try:
            await sweep(rt, left_behind)
            left_behind = False
            await rt.readiness.check()
        except StorageError as error:
            rt.readiness.invalidate()
            sweeper_log.warning("sweep failed, tried again later", extra={"fields": {"code": error.code}})
        await anyio.sleep(pause)


async def sweep(rt: Runtime, left_behind: bool) -> int:
    """Returns how many results were deleted. `left_behind`: also what a crash left of ended sessions."""
    deleted = await rt.store.sweep()
    ended = await rt.ledger.sweep()
    for key in ended if left_behind else ():
        session = await rt.ledger.session(key)
        if session is not None:
            deleted += await rt.store.delete_session(key, session.first_live_epoch)
    await rt.indexes.sweep(rt.store)
    await rt.spend_caps.daily.learn_of(await rt.ledger.usage())
    return deleted


async def follow_policies(state: State) -> None:
    """Forever. A file that changed is read once it stood still from one look to the next: somebody may still
    be writing it."""
    rt: Runtime = state.runtime
    path, seen = rt.settings.policy_file, rt.policy_stamp
    while path is not None:
        await anyio.sleep(LOOK_SECONDS)
        stamp = await anyio.to_thread.run_sync(stamp_of, path)
        if stamp == seen != state.runtime.policy_stamp:
            await reload_policies(state)
        seen = stamp


async def reload_policies(state: State) -> None:
    """Puts a new runtime in the old one's place. A request takes its runtime once: from its first look to its
    last it sees one book."""
    rt: Runtime = state.runtime
    path = rt.settings.policy_file
    stamp = None if path is None else await anyio.to_thread.run_sync(stamp_of, path)
    try:
        fresh = await anyio.to_thread.run_sync(revised, rt)
    except ConfigError as error:
        fields = {"errors": str(error).splitlines()}
        policies_log.error(
            "policy file not reloaded, the one before stays in force", extra={"fields": fields}
        )
        fresh = replace(rt, policy_stale=True)
    else:
        policies_log.info("policy file reloaded")
        fresh = replace(fresh, policy_stale=False)
        rt.quota_of.policies = fresh.policies
    rt.metrics.reloaded(not fresh.policy_stale)
    state.runtime = replace(fresh, policy_stamp=stamp)
