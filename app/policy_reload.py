"""Watches the policy file, and puts the policies of a changed file in force."""

import asyncio
import logging
from dataclasses import replace

from starlette.datastructures import State

from app.files import stamp_of
from app.models.known_models import KnownModels
from app.operations.policy_file import load_policies
from app.runtime import Runtime
from app.seen_messages import SeenMessages
from content.redaction.known import load_rules
from domain.errors import ConfigError

POLL_SECONDS = 0.5
"""Between two checks of the policy file."""

log = logging.getLogger("spillgate.policies")


async def follow_policies(state: State) -> None:
    """Forever. A changed file is read once two checks in a row have seen the same state: before, it may still
    be in the middle of a write."""
    rt: Runtime = state.runtime
    path, seen = rt.settings.policy_file, rt.policy_stamp
    while path is not None:
        await asyncio.sleep(POLL_SECONDS)
        stamp = await asyncio.to_thread(stamp_of, path)
        if stamp == seen != state.runtime.policy_stamp:
            await reload_policies(state)
        seen = stamp


async def reload_policies(state: State) -> None:
    """Puts a new runtime in the old one's place. A request takes its runtime once, and so sees one book
    throughout."""
    rt: Runtime = state.runtime
    path = rt.settings.policy_file
    stamp = None if path is None else await asyncio.to_thread(stamp_of, path)
    try:
        fresh = await asyncio.to_thread(_revised, rt)
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


def _revised(rt: Runtime) -> Runtime:
    """The same ports under the policies as their files are now. Raises ConfigError."""
    policies = load_policies(rt.settings)
    known = KnownModels(rt.settings, policies)
    models = rt.model_pool.revised(known.configs(), known.default_models, known.tokenizer)
    if policies.may_redact_secrets:
        load_rules()
    # What was seen may have been shown without masks that the policies now want.
    fresh = SeenMessages()
    redactions = rt.redactions.revised(policies)
    return replace(
        rt,
        policies=policies,
        known_models=known,
        model_pool=models,
        redactions=redactions,
        seen_messages=fresh,
    )
