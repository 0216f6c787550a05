"""The settings, policy and model terms in force, each with what set it."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.models.known_models import model_terms
from app.models.model_windows import context_window
from app.settings import PREFIX, Settings
from content.tokens import encoding_for_model
from domain.quotas import SETTINGS
from machine.tables import table
from policies.book import PolicyBook, Reason

_LOCAL = re.compile(r"(disk|sqlite):(//)?(/[^/].*)?", re.DOTALL)
# Up to the last @: a password that is not percent-encoded may hold any of :/?#@.
_LOGIN = re.compile(r"^(?P<scheme>[a-z][a-z0-9+.-]*:/{0,2})?(?P<login>.*)@", re.DOTALL | re.IGNORECASE)
_OPTION = re.compile(r"([?&])([^=&]*)(=?)[^&]*", re.DOTALL)
_SHOWN_OPTIONS = frozenset(
    """max_connections allow_eviction wait_aof tls ssl_ca_certs ssl_certfile ssl_keyfile ssl_cert_reqs
    ssl_check_hostname timeout region endpoint account_name schema prepared host sslmode sslrootcert sslcert
    sslkey""".split()  # noqa: SIM905
)
ANY = "*"
_HEADS = ("key", "value", "set by")


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """`tool` is "*" for a tool that no glob names. `quotas` are by tenant; "*" is a tenant that the
    policy file does not name."""

    settings: Sequence[Reason]
    tool: str
    policy: Sequence[Reason]
    model: str | None
    terms: Sequence[Reason]
    quotas: Mapping[str, Sequence[Reason]]

    def as_dict(self) -> dict[str, Any]:
        parts = {"settings": self.settings, "policy": self.policy, "terms": self.terms}
        return {
            "settings": _values(self.settings),
            "tool": self.tool,
            "policy": _values(self.policy),
            "model": self.model,
            "terms": _values(self.terms),
            "quotas": {tenant: _values(reasons) for tenant, reasons in self.quotas.items()},
            "set_by": {
                **{name: _set_by(reasons) for name, reasons in parts.items()},
                "quotas": {tenant: _set_by(reasons) for tenant, reasons in self.quotas.items()},
            },
        }

    def as_text(self, with_settings: bool) -> str:
        """A table for each part; the settings only on request."""
        named = "any other tool" if self.tool == ANY else self.tool
        parts = [("Settings", self.settings)] if with_settings else []
        parts.append((f"Policy for {named}", self.policy))
        if self.model is not None:
            parts.append((f"Model {self.model}", self.terms))
        for tenant, reasons in self.quotas.items():
            whose = "any tenant that the policy file does not name" if tenant == ANY else f"tenant {tenant}"
            parts.append((f"Quotas of {whose}; 0 = none", reasons))
        shown = []
        for title, reasons in parts:
            rows = [(one.key, json.dumps(one.value, ensure_ascii=False), one.set_by) for one in reasons]
            shown.append(f"{title}\n{table(rows, _HEADS, indent='  ')}")
        return "\n\n".join(shown)


def report_on(
    settings: Settings, policies: PolicyBook, tool: str, model: str | None, tenants: Iterable[str]
) -> ConfigReport:
    """What is in force under these policies, with the quotas of these tenants. No value is a secret:
    passwords in URLs are masked."""
    return ConfigReport(
        settings=[
            _setting(name, value, settings) for name, value in settings.model_dump(mode="json").items()
        ],
        tool=tool,
        policy=policies.reasons(tool),
        model=model,
        terms=_terms(model, settings, policies) if model is not None else (),
        quotas={tenant: _quota(tenant, policies) for tenant in tenants},
    )


def mask_url(url: str) -> str:
    """The URL with `***` for its password, for a user without one, and for each option that may be a secret.
    It need not be a valid URL."""
    if _LOCAL.fullmatch(url):
        return url
    return _OPTION.sub(_masked_option, _LOGIN.sub(_masked_login, url))


def _setting(name: str, value: object, settings: Settings) -> Reason:
    shown = {"storage_url": settings.store, "ledger_url": settings.ledger}.get(name, value)
    origin = _origin_of(name, settings)
    is_url = isinstance(shown, str) and (name.endswith("_url") or "://" in shown)
    masked = mask_url(str(shown)) if is_url else shown
    return Reason(f"{PREFIX}{name.upper()}", masked, origin)


def _origin_of(name: str, settings: Settings) -> str:
    if name not in settings.model_fields_set:
        return "default"
    known = {f"{PREFIX}{name}".upper(), "TOOL_RESULT_BYPASS_TOOLS" if name == "bypass_tools" else ""}
    return "environment" if any(variable.upper() in known for variable in os.environ) else "option"


def _masked_login(match: re.Match[str]) -> str:
    user, colon, password = match["login"].partition(":")
    return f"{match['scheme'] or ''}{user + colon if password else ''}***@"


def _masked_option(match: re.Match[str]) -> str:
    start, name, equals = match[1], match[2], match[3]
    if name in _SHOWN_OPTIONS:
        return match[0]
    return f"{start}{name}{equals}***" if equals else f"{start}***"


def _terms(model: str, settings: Settings, policies: PolicyBook) -> list[Reason]:
    """The budget's window, the encoding, and the prices of extraction; the policy file goes first."""
    keys = policies.model_keys(model)
    known = model_terms(model, keys, settings)
    encoding = encoding_for_model(model, "")
    terms = [
        Reason("context_window", window, "known of the model")
        if (window := context_window(model))
        else Reason("context_window", settings.context_window, _assumed(settings)),
        Reason("max_output_tokens", settings.max_output_tokens, f"{PREFIX}MAX_OUTPUT_TOKENS"),
        Reason("encoding", encoding, "known of the model")
        if encoding
        else Reason("encoding", settings.encoding, f"{PREFIX}ENCODING"),
        Reason("input_price", known.price.input, "known prices; 0 if unknown"),
        Reason("output_price", known.price.output, "known prices; 0 if unknown"),
        Reason("cached_price", known.price.cached, "known prices; 0 if unknown"),
        Reason("base_url", settings.llm_base_url or "", f"{PREFIX}LLM_BASE_URL"),
        Reason("api_key_file", str(settings.llm_api_key_file or ""), f"{PREFIX}LLM_API_KEY_FILE"),
    ]
    declared = {one.key: one for one in policies.reasons_of("models", model)}
    return [declared.get(one.key, one) for one in terms]


def _assumed(settings: Settings) -> str:
    """Where the window of a model comes from that no table knows."""
    is_set = "context_window" in settings.model_fields_set
    return f"{PREFIX}CONTEXT_WINDOW" + ("" if is_set else "; not known, so that no session is held to it")


def _quota(tenant: str, policies: PolicyBook) -> list[Reason]:
    quota = asdict(policies.quota(tenant))
    named = {one.key: one for one in policies.reasons_of("tenants", tenant)}
    return [named.get(key) or Reason(key, value, SETTINGS[key]) for key, value in quota.items()]


def _values(reasons: Iterable[Reason]) -> dict[str, object]:
    return {one.key: one.value for one in reasons}


def _set_by(reasons: Iterable[Reason]) -> dict[str, str]:
    return {one.key: one.set_by for one in reasons}
