"""Takes up a changed policy file: a new runtime takes the old one's place."""

import logging
from dataclasses import replace

import anyio
from starlette.datastructures import State

from app.files import stamp_of
from app.runtime import Runtime, revised
from domain.errors import ConfigError

POLL_SECONDS = 0.5
"""Between two looks at the policy file."""

log = logging.getLogger("spillgate.policies")


async def follow_policies(state: State) -> None:
    """Forever. A file that changed is read once it stood still from one look to the next: somebody may still
    be writing it."""
    rt: Runtime = state.runtime
    path, seen = rt.settings.policy_file, rt.policy_stamp
    while path is not None:
        await anyio.sleep(POLL_SECONDS)
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
        log.error("policy file not reloaded, the one before stays in force", extra={"fields": fields})
        fresh = replace(rt, policy_stale=True)
    else:
        log.info("policy file reloaded")
        fresh = replace(fresh, policy_stale=False)
        rt.quota_of.policies = fresh.policies
    rt.metrics.reloaded(not fresh.policy_stale)
    state.runtime = replace(fresh, policy_stamp=stamp)
