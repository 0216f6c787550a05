"""The policies in force: merges the layers of documents for a tool."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from content.redaction.detector import SECRETS, Detector
from content.redaction.known import is_available
from domain.budget import Window, window_of
from domain.doors import Door
from domain.errors import ConfigError, InvalidPolicy
from domain.quotas import TenantQuota
from policies.documents import (
    CEILINGS,
    PolicyDocument,
    PolicyPath,
    PolicyValue,
    Profile,
    SetKeys,
    from_json,
    header_of,
)
from policies.oversized import within_door
from policies.policy import Policy

_CACHED = 1024
_UNKNOWN_MODEL = (
    "`extract_models` may name only `session`, the models of SPILLGATE_LLM_MODELS, and models that have a "
    "`base_url` in the policy file."
)
_SESSION_MODEL = "session"
_UNKNOWN_PATTERN = (
    "`redact` may name only `secrets` and the patterns of the policy file, each under [redact.NAME]."
)
_NO_RULES = "`secrets` needs the extra `redact`. docs/policies.md says how to install it."

Profiles = Callable[[Profile], Sequence[PolicyDocument]]
"""The layers of a profile, lowest first. They are read when a document names the profile."""


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """The window of a session's model. `enforce`: the budget is enforced even if the session declared no
    window and reported no usage: the model's window is known, or SPILLGATE_REQUIRE_BUDGET is set."""

    window: Window
    enforce: bool


@dataclass(frozen=True, slots=True)
class Reason:
    """A key in force, its value, and where it was set."""

    key: str
    value: object
    set_by: str


class PolicyBook:
    """Merges the operator's layers (lowest first), the session's override and the request's override. A layer
    that names a profile includes all keys of that profile, which override those of lower layers."""

    def __init__(
        self,
        layers: Iterable[PolicyDocument],
        window: Window,
        *,
        required: bool,
        overrides: bool = True,
        models: Iterable[str] = (),
        profiles: Profiles | None = None,
        hook_profiles: Profiles | None = None,
        known_window: Callable[[str], int] = lambda model: 0,
        quota: TenantQuota = TenantQuota(),  # noqa: B008
    ) -> None:
        """`models` are those of the settings. `extract_models` may name these, `session`, and models to which
        a layer gives a backend; any name if there are neither. `known_window` returns a model's context
        window in tokens, 0 if it is unknown. `hook_profiles` are the profiles for results from a coding
        agent's hook. `quota` is that of a tenant that no layer names. Raises ConfigError."""
        self._profiles = profiles or (lambda profile: ())
        self._hook_profiles = hook_profiles or self._profiles
        documents = tuple(layers)
        self._layers, self._hook_layers = (
            tuple(part for layer in documents for part in self._based(layer, is_hook=is_hook))
            for is_hook in (False, True)
        )
        self._window = window
        self._required = required
        self._overrides = overrides
        backends = (
            name for layer in self._layers for name, keys in layer.models.items() if keys.get("base_url")
        )
        self.own_backends = tuple(dict.fromkeys(backends))
        """The models to which the policy file gives a backend, in the order of the file."""
        named = frozenset((*models, *self.own_backends))
        self._models = named | {_SESSION_MODEL} if named else named
        self._known_window = known_window
        self.default_quota = quota
        self._quotas: dict[str, TenantQuota] = {}
        for layer in self._layers:
            for tenant, keys in layer.tenants.items():
                set_keys: dict[str, Any] = {**keys}
                self._quotas[tenant] = replace(self._quotas.get(tenant, quota), **set_keys)
        self._look_up = lru_cache(maxsize=_CACHED)(self._resolve)
        self._parsed = lru_cache(maxsize=_CACHED)(from_json)
        self.terms = lru_cache(maxsize=_CACHED)(self._terms)
        self._patterns = {name: one for layer in self._layers for name, one in layer.patterns.items()}
        self.detector = lru_cache(maxsize=_CACHED)(self._detector)
        faults = [(layer, fault) for layer in self._layers for fault in self._faults(layer)]
        if faults:
            raise ConfigError("\n".join(f"{layer.location(path)}: {text}" for layer, (path, text) in faults))

    def policy(
        self,
        tool_name: str,
        session: str | None = None,
        request: str | None = None,
        door: Door | None = None,
    ) -> Policy:
        """A request's override takes precedence over a session's, and that over the operator's layers; in
        each layer, tools over defaults. The size cap is at most what the door's client shows whole. Results
        of tools with which the client reads files to edit them (the door's `reads`) pass without redaction;
        results of its `passes` pass with redaction. An operator's table for the tool that sets `bypass`
        decides instead.

        Raises InvalidPolicy for an override that is wrong or not allowed.
        """
        return self._look_up(tool_name, session, request, door)

    def check_override(self, text: str) -> None:
        """Raises InvalidPolicy unless the JSON text is an override that could be in force."""
        document = self._parsed(text)
        for section, tables in (("models", document.models), ("tenants", document.tenants)):
            if tables:
                raise InvalidPolicy(f"`policy.{section}` is the operator's: it goes into the policy file.")
        if document.patterns:
            raise InvalidPolicy("`policy.redact` is a list of names: patterns go into the policy file.")
        for _, fault in self._faults(document):
            raise InvalidPolicy(fault)

    def check_request(self, text: str) -> None:
        """Raises InvalidPolicy unless a request may carry this override."""
        if not self._overrides:
            raise InvalidPolicy("The operator allows no `policy` in a request. Leave it out.")
        self.check_override(text)

    def check_session(self, text: str, is_agent: bool) -> None:
        """Raises InvalidPolicy unless a session may get this override. `is_agent`: an agent's key sends
        it."""
        if is_agent and not self._overrides:
            raise InvalidPolicy(
                "The operator allows no `policy` from a key with the role `agent`. Leave it out, or "
                "set it with a key with the role `admin`."
            )
        self.check_override(text)

    def reasons(self, tool_name: str) -> list[Reason]:
        """The profile and the keys that the operator's layers set for a tool, each with what set it."""
        named = [
            Reason("profile", one.profile, one.location(("profile",))) for one in self._layers if one.profile
        ]
        reasons = {one.key: one for one in named}
        for layer in self._layers:
            for table, keys in layer.tables(tool_name):
                for name, value in keys.items():
                    reasons[name] = Reason(name, value, layer.location((*table, name)))
        return list(reasons.values())

    def reasons_of(self, section: Literal["models", "tenants"], name: str) -> list[Reason]:
        """The keys that the policy file sets for a model or a tenant, each with what set it."""
        reasons = {
            key: Reason(key, value, layer.location((section, name, key)))
            for layer in self._layers
            for key, value in getattr(layer, section).get(name, {}).items()
        }
        return list(reasons.values())

    def quota(self, tenant: str) -> TenantQuota:
        """The quota of the policy file over that of the settings, key by key."""
        return self._quotas.get(tenant, self.default_quota)

    def quota_table(self, tenant: str, quota: str) -> str | None:
        """`[tenants.TENANT]` if the policy file sets this quota of the tenant."""
        if not any(quota in layer.tenants.get(tenant, {}) for layer in self._layers):
            return None
        return f"`[{header_of(('tenants', tenant))}]` in the policy file"

    @property
    def named_tenants(self) -> list[str]:
        """The tenants with a quota of their own in the policy file."""
        return sorted(self._quotas)

    def model_keys(self, model: str | None) -> dict[str, PolicyValue]:
        """The keys that the policy file sets for a model."""
        tables = (layer.models.get(model or "", {}) for layer in self._layers)
        return {name: value for table in tables for name, value in table.items()}

    def _based(self, document: PolicyDocument, *, is_hook: bool = False) -> list[PolicyDocument]:
        """The layers of the document's profile, then the document."""
        profiles = self._hook_profiles if is_hook else self._profiles
        return [*(profiles(document.profile) if document.profile else ()), document]

    def _faults(self, document: PolicyDocument) -> Iterator[tuple[PolicyPath, str]]:
        """Yields each place where the document names a model or pattern that is not configured, and what is
        wrong."""
        tables: dict[PolicyPath, SetKeys] = {("defaults",): document.defaults}
        tables |= {("tools", glob): keys for glob, keys in document.tools.items()}
        for path, keys in tables.items():
            models = keys.get("extract_models", ())
            if self._models and isinstance(models, tuple) and not self._models.issuperset(models):
                yield (*path, "extract_models"), _UNKNOWN_MODEL
            names = keys.get("redact", ())
            if isinstance(names, tuple) and not {SECRETS, *self._patterns}.issuperset(names):
                yield (*path, "redact"), _UNKNOWN_PATTERN
            elif isinstance(names, tuple) and SECRETS in names and not is_available():
                yield (*path, "redact"), _NO_RULES

    @property
    def may_redact_secrets(self) -> bool:
        """Whether a layer of the operator redacts `secrets`, for which the rules must be loaded."""
        tables = (keys for layer in self._layers for keys in (layer.defaults, *layer.tools.values()))
        return any(SECRETS in names for one in tables if isinstance(names := one.get("redact"), tuple))

    def _detector(self, names: frozenset[str]) -> Detector | None:
        """Returns the detector of the secrets that `redact` names; None if it names none. A pattern that the
        policy file no longer has is left out."""
        patterns = {name: self._patterns[name] for name in sorted(names) if name in self._patterns}
        if not patterns and SECRETS not in names:
            return None
        return Detector(patterns, secrets=SECRETS in names)

    def _terms(self, model: str | None) -> SessionTerms:
        """The window from the policy file, else the known window of the model, else that of the settings,
        which may not be the model's.

        A buffer and an output that the policy file does not set take together at most a third of a model's
        window.
        """
        keys = self.model_keys(model)
        size = _whole(keys.get("context_window", 0)) or (self._known_window(model) if model else 0)
        output = _whole(keys["max_output_tokens"]) if "max_output_tokens" in keys else None
        if size:
            return SessionTerms(window_of(size, None, output, self._window), True)
        window = self._window if output is None else replace(self._window, max_output_tokens=output)
        if not model:
            window = replace(window, is_known=True)
        return SessionTerms(window, self._required)

    def _resolve(self, tool_name: str, session: str | None, request: str | None, door: Door | None) -> Policy:
        if request is not None:
            self.check_request(request)
        keys: dict[str, Any] = {}
        is_hook = door is not None and door.is_hook
        for layer in self._hook_layers if is_hook else self._layers:
            keys |= layer.for_tool(tool_name)
        always_passes = keys.get("bypass", False)
        if door is not None and tool_name in door.reads | door.passes:
            named = (table for layer in self._layers for _, table in layer.tables(tool_name)[1:])
            if not any("bypass" in table for table in named):
                keys["bypass"] = True
        operator, reveals = keys.get("redact", ()), keys.get("reveal", False)
        for text in (session, request):
            if text is not None:
                self.check_override(text)
                for document in self._based(self._parsed(text), is_hook=is_hook):
                    keys |= _within(keys, document.for_tool(tool_name))
                    # An override may add to what the operator redacts, but remove nothing.
                    keys["redact"] = tuple(dict.fromkeys((*operator, *keys.get("redact", ()))))
                    keys["reveal"] = reveals
                    keys["bypass"] = always_passes or keys.get("bypass", False)
        if door is not None and tool_name in door.reads:
            keys["redact"] = ()
        return within_door(Policy(**keys), door)


def _within(operator: dict[str, PolicyValue], override: dict[str, PolicyValue]) -> dict[str, PolicyValue]:
    """The override, with its ceilings lowered to the operator's."""
    for name in CEILINGS:
        ceiling = operator.get(name)
        if ceiling and name in override and not 0 < _number(override[name]) <= _number(ceiling):
            override[name] = ceiling
    return override


def _number(value: PolicyValue) -> float:
    return value if isinstance(value, int | float) else 0.0


def _whole(value: PolicyValue) -> int:
    return int(_number(value))
