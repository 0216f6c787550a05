"""The operator's policies: the packaged ones, the policy file and the settings, read into one book."""

from dataclasses import replace
from functools import cache
from importlib.resources import files

from app.files import read_text
from app.models.model_windows import context_window
from app.settings import HOOK_CAP, PREFIX, Settings
from domain.budget import Window, window_of
from policies.book import PolicyBook, Profiles
from policies.documents import PolicyDocument, Profile, from_toml


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
        hook_profiles=_hook_profiles(settings),
        known_window=context_window,
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
    """The size cap of the settings is that of `default` and `ai-agent`; the other profiles have caps of their
    own."""
    is_capped = "max_bytes" in settings.model_fields_set
    return _capped(settings.max_bytes if is_capped else None, f"{PREFIX}MAX_BYTES")


def _hook_profiles(settings: Settings) -> Profiles:
    """Those of results that come by a coding agent's hook."""
    cap, name = settings.hook_max_bytes, f"{PREFIX}HOOK_MAX_BYTES"
    if cap is None and "max_bytes" in settings.model_fields_set:
        return _profiles(settings)
    return _capped(HOOK_CAP if cap is None else cap, name)


def _capped(most: int | None, source: str) -> Profiles:
    """`most`: the size cap of `default` and `ai-agent`, None for that of their files."""
    cap = PolicyDocument({"max_bytes": most or 0}, source=source)

    def layers(name: Profile) -> list[PolicyDocument]:
        packaged = _packaged(f"profiles/{name}.toml", f"profile {name}")
        return (
            [packaged, cap]
            if most is not None and name in (Profile.DEFAULT, Profile.AI_AGENT)
            else [packaged]
        )

    return layers


@cache
def _packaged(path: str, name: str) -> PolicyDocument:
    return from_toml(files("policies").joinpath(path).read_text(encoding="utf-8"), name)
