"""The operator's policies: their files read into one book, which a changed file replaces."""

import asyncio
import logging
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from app.extracting.known_models import KnownModels, default_models, known_window, model_configs
from app.files import read_text, stamp_of
from app.settings import PREFIX, Settings
from domain.budget import Window, window_of
from domain.errors import ConfigError
from policies.book import PolicyBook, Profiles
from policies.documents import PolicyDocument, Profile, from_toml

if TYPE_CHECKING:
    from starlette.datastructures import State

    from app.runtime import Runtime

POLL_SECONDS = 0.5
"""Between two looks at the policy file."""

log = logging.getLogger("spillgate.policies")


def load_policies(settings: Settings) -> PolicyBook:
    """Built-in, policy file, bypassed tools, each over the one before. Raises ConfigError, with a line for
    each fault."""
    layers = [_packaged("default.toml", "built-in")]
    if (path := settings.policy_file) is not None:
        layers.append(from_toml(read_text(path, f"{PREFIX}POLICY_FILE"), path.name))
    bypassed = {glob: {"bypass": True} for glob in settings.bypass_tools}
    layers.append(PolicyDocument(tools=bypassed, source=f"{PREFIX}BYPASS_TOOLS"))
    return PolicyBook(
        layers,
        _window(settings),
        required=settings.require_budget,
        overrides=settings.allow_request_overrides,
        models=settings.llm_models,
        profiles=_profiles(settings),
        known_window=known_window,
        quota=settings.quota,
    )


def _window(settings: Settings) -> Window:
    size, buffer, output = settings.context_window, settings.buffer_tokens, settings.max_output_tokens
    declared = settings.model_fields_set
    window = window_of(
        size,
        buffer if "buffer_tokens" in declared else None,
        output if "max_output_tokens" in declared else None,
        Window(size, buffer, output),
    )
    return replace(window, is_known="context_window" in declared)


def _profiles(settings: Settings) -> Profiles:
    """The size cap of the settings is the built-in profile's; the others have caps of their own."""
    cap = PolicyDocument({"max_bytes": settings.max_bytes}, source=f"{PREFIX}MAX_BYTES")
    is_capped = "max_bytes" in settings.model_fields_set

    def layers(name: Profile) -> list[PolicyDocument]:
        packaged = _packaged(f"profiles/{name}.toml", f"profile {name}")
        return [packaged, cap] if is_capped and name is Profile.AI_AGENT else [packaged]

    return layers


@cache
def _packaged(path: str, name: str) -> PolicyDocument:
    return from_toml(files("policies").joinpath(path).read_text(encoding="utf-8"), name)


async def follow_policies(state: "State") -> None:
    """Forever. A file that changed is read once it stood still from one look to the next: somebody may still
    be writing it."""
    rt: Runtime = state.runtime
    path, seen = rt.settings.policy_file, rt.policy_stamp
    while path is not None:
        await asyncio.sleep(POLL_SECONDS)
        stamp = await asyncio.to_thread(stamp_of, path)
        if stamp == seen != state.runtime.policy_stamp:
            await reload_policies(state)
        seen = stamp


async def reload_policies(state: "State") -> None:
    """Puts a new runtime in the old one's place. A request takes its runtime once: from its first look to its
    last it sees one book."""
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


def _revised(rt: "Runtime") -> "Runtime":
    """The same ports under the policies as their files are now. Raises ConfigError."""
    settings, policies = rt.settings, load_policies(rt.settings)
    known = KnownModels(settings, policies)
    models = rt.model_pool.revised(
        model_configs(settings, policies), default_models(settings, policies), known.tokenizer
    )
    return replace(rt, policies=policies, known_models=known, model_pool=models)
