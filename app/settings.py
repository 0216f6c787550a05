"""The settings: read once from the environment, frozen, each with its description."""

import difflib
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.files import read_text
from app.proxies import proxies
from domain import LOOPBACK_NAMES
from domain.errors import ConfigError
from domain.handles import DEFAULT_TENANT, is_name
from domain.library_errors import pydantic_rule
from domain.quotas import TenantQuota
from policies.documents import check_base_url
from storage import LEDGERS, STORES, ledger_url, urls_of

PREFIX = "SPILLGATE_"
HOOK_CAP = 7168
"""The size cap, in bytes, of results that come from a coding agent's hook. docs/worth.md says why."""

CENTURY_SECONDS = 36_525 * 86_400
"""The longest retention in seconds: the backends count milliseconds in 64 bits."""


def _state_directory() -> Path:
    base = os.path.expanduser(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    if not os.path.isabs(base):
        raise ConfigError(
            "The state directory is not known: set HOME, or XDG_STATE_HOME to an absolute path."
        )
    return Path(base) / "spillgate"


def _with_directory(url: str) -> str:
    if url in ("disk:", "disk://"):
        return f"disk://{_state_directory()}"
    return re.sub("^disk:(?=/[^/])", "disk://", url)


def _secret(path: Path, setting: str) -> str:
    return read_text(path, f"{PREFIX}{setting}", secret=True).strip()


_MAY_BE_EMPTY = ("BYPASS_TOOLS", "LLM_MODELS", "EMBED_MODEL", "LLM_API_KEY", "KEY", "SESSION")
"""Settings that may be empty, which means none. Others are refused: an empty path would mean the working
directory."""


class Settings(BaseSettings):
    """Every `SPILLGATE_*` setting. `docs/reference/settings.md` is made of these descriptions."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", populate_by_name=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8377, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    uds: Path | None = Field(
        None,
        description="Unix socket to listen on instead of host and port. Without `SPILLGATE_URL`, the "
        "commands look for this user's service there.",
    )
    storage_url: str = Field(
        "disk:",
        validate_default=True,
        description=f"Where bodies are kept: {urls_of(STORES)}; `disk:` = the state directory.",
    )
    storage_url_file: Path | None = Field(
        None, description="File that holds the storage URL, for a URL with a password."
    )
    storage_key_file: Path | None = Field(
        None,
        description="File of keys, lines `id:key`: stored bodies and the texts that models were given are "
        "encrypted with the first key. Needs the extra `encryption`; reloaded on change.",
    )
    ledger_url: str | None = Field(
        None,
        description=f"Where sessions and accounting are kept: {urls_of(LEDGERS)}. Default: with the bodies. "
        "Must be set if the bodies are in an object store.",
    )
    ledger_url_file: Path | None = Field(None, description="File that holds the ledger URL.")
    policy_file: Path | None = Field(
        None, description="TOML file of policies on top of the built-in ones, reloaded on change."
    )
    local_paths: bool = Field(
        True,
        description="Whether hints for a shell name the file of a stored result, so that no command runs "
        "twice. Only with a `disk:` store and no API keys: then every caller is on this machine. Set it to "
        "`false` if the agent cannot read that directory; the container image does.",
    )
    allow_request_overrides: bool = Field(
        True, description="Whether a request, and an agent's key on a session, may set a `policy`."
    )
    max_bytes: int = Field(12288, ge=0, le=1_000_000, description="Size cap in bytes; 0 = none.")
    hook_max_bytes: int | None = Field(
        None,
        ge=0,
        le=1_000_000,
        description=f"Size cap in bytes of results that come from a coding agent's hook. Unset: {HOOK_CAP}, "
        "or `SPILLGATE_MAX_BYTES` if that is set.",
    )
    context_window: int = Field(
        131_072, ge=1, description="Context window (tokens) of a session that declares none."
    )
    buffer_tokens: int = Field(8192, ge=0, description="Tokens of the window that are kept free.")
    max_output_tokens: int = Field(16_384, ge=0, description="Tokens of the window for the model's answer.")
    require_budget: bool = Field(
        False,
        description="Whether every session has a budget, even one that declared no window and reported no "
        "usage.",
    )
    encoding: str = Field("o200k_base", description="Tokenizer, if the policy names none for the model.")
    max_body_bytes: int = Field(67_108_864, ge=1, description="Larger uploads get 413 before they are read.")
    max_json_bytes: int = Field(
        8_388_608,
        ge=1,
        description="A larger JSON body gets 413, which says to send the text itself (`text/*`, streamed).",
    )
    max_argument_bytes: int = Field(
        1_048_576,
        ge=1,
        le=67_108_864,
        description="Most bytes of a stored result in an argument of a tool; in a whole call, eight times "
        "as many.",
    )
    retention_seconds: int = Field(
        86_400,
        ge=1,
        le=CENTURY_SECONDS,
        description="A stored result and an idle session live this long after their last use.",
    )
    ledger_retention_seconds: int = Field(
        2_592_000, ge=1, le=CENTURY_SECONDS, description="Accounting entries are kept this long (30 days)."
    )
    storage_max_bytes: int = Field(
        2_147_483_648,
        ge=0,
        description="Stored bytes of all tenants together; past it a write gets 507; 0 = no bound.",
    )
    tenant_storage_max_bytes: int = Field(
        0,
        ge=0,
        description="Stored bytes of one tenant; past it a write of this tenant gets 507; 0 = no quota.",
    )
    max_sessions: int = Field(
        10_000,
        ge=0,
        description="Open sessions of one tenant; past it idle sessions are removed, and if none is idle a "
        "new session gets 429; 0 = no quota.",
    )
    ledger_max_bytes: int = Field(
        1_073_741_824,
        ge=0,
        description="Approximate bytes of one tenant's accounting and sessions; past it the oldest entries "
        "are deleted, of which only sums stay; 0 = no quota.",
    )
    ledger_total_max_bytes: int = Field(
        0,
        ge=0,
        description="Approximate bytes of all tenants' accounting and sessions together; past it the oldest "
        "entries of the largest tenants are deleted, of which only sums stay; 0 = no bound.",
    )
    tenant_requests_per_second: float = Field(
        0.0,
        ge=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="Requests a second of one tenant, at each instance; past it 429; 0 = no quota.",
    )
    tenant_llm_usd_per_day: float = Field(
        0.0,
        ge=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="US dollars that one tenant may spend on model calls in a day of UTC; past it a question "
        "to a model gets 429; 0 = no quota.",
    )
    bypass_tools: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        validation_alias=AliasChoices(f"{PREFIX}BYPASS_TOOLS", "TOOL_RESULT_BYPASS_TOOLS", "bypass_tools"),
        description="Comma-separated tool names (globs) whose results always pass. If it is not set, "
        "`TOOL_RESULT_BYPASS_TOOLS` is read; if both are set, they must be equal.",
    )
    api_keys_file: Path | None = Field(
        None,
        description="Lines `tenant:sha256hex:role`, reloaded on change. Without it only loopback or a Unix "
        "socket may be bound.",
    )
    tenant: str = Field(
        DEFAULT_TENANT,
        description="The tenant of a service without API keys, such as the team of a sidecar.",
    )
    key_for_pages: bool = Field(
        False,
        description="Whether `/ui`, `/docs`, `/openapi.json` and `/healthz` need a key, too. A browser then "
        "asks for it. `/livez` and `/readyz` stay open.",
    )
    oidc_issuer: str | None = Field(
        None,
        description="Issuer of OpenID Connect, e.g. `https://login.example.com`: its tokens are accepted as "
        "well as API keys. Needs the extra `oidc`.",
    )
    oidc_audience: str | None = Field(None, description="The `aud` that tokens of the issuer must have.")
    oidc_tenant_claim: str = Field(
        "tenant",
        min_length=1,
        description="Claim of a token that names its tenant; a path such as `org.team` works.",
    )
    oidc_role_claim: str | None = Field(
        None,
        min_length=1,
        description="Claim of a token that names its role, as a string or in a list. Without it each token "
        "has the role `agent`.",
    )
    allowed_hosts: Annotated[tuple[str, ...] | None, NoDecode] = Field(
        None,
        description="Comma-separated `Host` names that are answered; `*` = any. Default: loopback names; "
        "with API keys, any. A page of another origin may call the service if its host is listed with its "
        "port, even a default port: `localhost:3000`, `app.example.com:443`.",
    )
    llm_base_url: str | None = Field(
        None,
        description="OpenAI-compatible backend for extraction, e.g. `https://api.example.com/v1`.",
    )
    llm_api_key: SecretStr | None = Field(
        None, description="The backend's key. `SPILLGATE_LLM_API_KEY_FILE` names a file that holds it."
    )
    llm_api_key_file: Path | None = Field(None, description="File that holds the backend's key.")
    llm_models: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Comma-separated models of the backend, tried in order."
    )
    embed_model: str | None = Field(
        None,
        description="A model of the backend's `/embeddings`: passages are then ranked by meaning as well as "
        "by words.",
    )
    extract_concurrency: int = Field(
        8, ge=1, le=256, description="Model calls at a time, over all extractions."
    )
    extract_deadline_ms: int = Field(
        60_000,
        ge=100,
        le=120_000,
        description="Time for an extraction that sets no `deadline_ms`.",
    )
    extract_fallback: Literal["truncate", "retrieve"] = Field(
        "truncate",
        description="The strategy that answers if the chosen one cannot run: `truncate` or `retrieve`.",
    )
    metrics_address: str | None = Field(
        None,
        description="`host:port` of a second listener for `/metrics`, `/livez` and `/readyz` alone, without "
        "keys; for a service on a Unix socket, for example.",
    )
    accounting_export: str | None = Field(
        None,
        min_length=1,
        description="File to which each accounting entry is appended as a line of JSON; `-` = stdout.",
    )
    accounting_export_max_bytes: int = Field(
        104_857_600,
        ge=1 << 16,
        description="Bytes, at least 65536, at which that file is rotated; five older ones are kept.",
    )
    audit: str | None = Field(
        None,
        min_length=1,
        description="File to which each reading, change and refusal is appended as a line of JSON, without "
        "content; `-` = stdout.",
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Comma-separated addresses or networks of load balancers, `unix` for a Unix socket. For "
        "their requests, log and audit name the address in `X-Forwarded-For` as the caller's.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level that is logged. `debug` also logs each request."
    )
    log_format: Literal["auto", "text", "json"] = Field(
        "auto", description="Log lines as `text` or `json`; `auto`: text if stderr is a terminal, else JSON."
    )
    url: str | None = Field(
        None,
        description="Commands, hooks, relays and clients: the URL of the service, or `unix:/path`; what "
        "listens there is trusted. Without it, the user's own service ([how it is "
        "known](../mcp.md#which-service-which-session)). `serve` ignores it.",
    )
    key: SecretStr | None = Field(
        None, description="Commands, hooks, relays and clients: the API key that they send."
    )
    key_file: Path | None = Field(
        None, description="Commands, hooks, relays and clients: file that holds that key."
    )
    session: str | None = Field(
        None, description="Commands, hooks, relays and clients: the session that they send."
    )
    auto_start: bool = Field(
        True,
        description="Commands, hooks and relays: start the user's own service if none runs and "
        "`SPILLGATE_URL` is not set. It ends half an hour after the last request.",
    )
    hook_timeout_ms: int = Field(
        1000,
        ge=1,
        description="`spillgate hook`: time for the service to answer, and, above 5 s, to start. A large "
        "result adds 1 s per 8 MiB.",
    )

    @field_validator("bypass_tools", "allowed_hosts", "llm_models", "trusted_proxies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("embed_model", mode="before")
    @classmethod
    def _none_if_blank(cls, value: object) -> object:
        return (value.strip() or None) if isinstance(value, str) else value

    @field_validator("storage_url")
    @classmethod
    def _default_directory(cls, value: str) -> str:
        return _with_directory(value)

    @property
    def store(self) -> str:
        """The store's URL. Raises ConfigError for a file that cannot be read."""
        if self.storage_url_file is None:
            return self.storage_url
        return _with_directory(_secret(self.storage_url_file, "STORAGE_URL_FILE"))

    @property
    def ledger(self) -> str:
        """The ledger's URL, derived from the store's where none is set. Raises ConfigError as `store`."""
        if self.ledger_url_file is not None:
            return _secret(self.ledger_url_file, "LEDGER_URL_FILE")
        if self.ledger_url is not None:
            return self.ledger_url
        return ledger_url(self.store)

    @property
    def quota(self) -> TenantQuota:
        """The quota of a tenant that the policy file does not name."""
        return TenantQuota(
            self.tenant_storage_max_bytes,
            self.ledger_max_bytes,
            self.max_sessions,
            self.tenant_requests_per_second,
            self.tenant_llm_usd_per_day,
        )

    @property
    def names_paths(self) -> bool:
        """True if texts may name the file of a stored result: no API keys, so that every caller is on this
        machine, and no encryption, so that the file can be read."""
        return self.local_paths and not self.needs_key and self.storage_key_file is None

    @property
    def needs_key(self) -> bool:
        """False if no keys are set up: then every caller is on this machine, and may do everything."""
        return self.api_keys_file is not None or self.oidc_issuer is not None

    @property
    def llm_key(self) -> str | None:
        """The backend's key. Raises ConfigError for a file that cannot be read."""
        if self.llm_api_key_file is None:
            return None if self.llm_api_key is None else self.llm_api_key.get_secret_value()
        return _secret(self.llm_api_key_file, "LLM_API_KEY_FILE")

    @property
    def metrics_listener(self) -> tuple[str, int] | None:
        """Host and port. Raises ConfigError."""
        if self.metrics_address is None:
            return None
        host, _, port = self.metrics_address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise ConfigError(f"{PREFIX}METRICS_ADDRESS: write host:port, such as 0.0.0.0:9377.")
        return host.removeprefix("[").removesuffix("]"), int(port)

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """`Host` names that are answered; None = any."""
        if self.allowed_hosts is not None:
            return None if "*" in self.allowed_hosts else self.allowed_hosts
        return None if self.needs_key or self.uds else LOOPBACK_NAMES


def load_settings(**options: Any) -> Settings:
    """Reads the environment; `options` take precedence. Raises ConfigError, which names the wrong setting and
    never its value."""
    known = {f"{PREFIX}{name}".upper() for name in Settings.model_fields}
    for name, text in os.environ.items():
        if not name.upper().startswith(PREFIX):
            continue
        if (why := REMOVED.get(name.upper().removeprefix(PREFIX))) is not None:
            raise ConfigError(f"{name} was removed: {why} Take it out of the environment.")
        if name.upper() not in known:
            raise ConfigError(f"Unknown setting {name}. Did you mean {_nearest(name)}? See docs/settings.md.")
        if not text.strip() and name.upper().removeprefix(PREFIX) not in _MAY_BE_EMPTY:
            raise ConfigError(f"{name} is empty. Give it a value, or take it out of the environment.")
    try:
        settings = Settings(**options)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = str(first["loc"][0]).removeprefix(PREFIX).upper() if first["loc"] else "?"
        rule = pydantic_rule(first["type"], first["msg"], _rules_of(field))
        raise ConfigError(f"{PREFIX}{field}: {rule}.") from None
    _check_binding(settings)
    _check_audit(settings)
    _check_issuer(settings)
    if settings.key_for_pages and not settings.needs_key:
        raise ConfigError(f"{PREFIX}KEY_FOR_PAGES needs {PREFIX}API_KEYS_FILE or {PREFIX}OIDC_ISSUER.")
    _check_bypass()
    _check_storage(settings)
    _check_backend(settings)
    return settings


REMOVED = {
    "ACCESS_LOG": f"each request is a log line with {PREFIX}LOG_LEVEL=debug.",
    "STORE_FALLBACK": "nothing replaces it. While Redis is away answers are 503 with `stored: false`, and "
    "clients show what they can.",
}
"""Settings of earlier versions, and what to do without them. The changelog names them under Removed."""

_SYNONYMS = {"SIZE_CAP": "MAX_BYTES", "BUDGET": "REQUIRE_BUDGET", "WINDOW": "CONTEXT_WINDOW"}
"""What users call settings whose names are other words."""


def _nearest(name: str) -> str:
    """The setting that a misspelt name may mean."""
    fields = [field.upper() for field in Settings.model_fields]
    near = difflib.get_close_matches(name.upper().removeprefix(PREFIX), [*fields, *_SYNONYMS], 1, 0.0)[0]
    return f"{PREFIX}{_SYNONYMS.get(near, near)}"


def _rules_of(field: str) -> dict[str, str]:
    """The rule of a setting in bytes, which is clearer than pydantic's message; by pydantic's error type."""
    if not field.endswith("_BYTES"):
        return {}
    example = min(Settings.model_fields[field.lower()].default or 1 << 30, 1 << 30)
    return {"int_parsing": f"must be a number of bytes, such as {example}"}


def _check_bypass() -> None:
    """Refuses two different lists: one would be ignored, and the results of its tools replaced."""
    ours, theirs = (os.environ.get(name) for name in (f"{PREFIX}BYPASS_TOOLS", "TOOL_RESULT_BYPASS_TOOLS"))
    if ours and theirs and ours != theirs:
        raise ConfigError(f"{PREFIX}BYPASS_TOOLS and TOOL_RESULT_BYPASS_TOOLS are both set. Keep one.")


def _check_storage(settings: Settings) -> None:
    for name in ("STORAGE_URL", "LEDGER_URL", "LLM_API_KEY"):
        if {name.lower(), f"{name}_file".lower()} <= settings.model_fields_set:
            raise ConfigError(f"{PREFIX}{name} and {PREFIX}{name}_FILE are both set. Keep one.")


def _check_backend(settings: Settings) -> None:
    """A backend needs the names of its models. Models may be named alone: the policy file may have their
    backend."""
    if settings.llm_base_url is not None and not (settings.llm_models or settings.embed_model):
        raise ConfigError(
            f"{PREFIX}LLM_BASE_URL is set without {PREFIX}LLM_MODELS. Name the models of that backend there."
        )
    if settings.embed_model in settings.llm_models:
        raise ConfigError(
            f"{PREFIX}EMBED_MODEL is also in {PREFIX}LLM_MODELS. A model gives text or embeddings: keep one."
        )
    try:
        check_base_url(settings.llm_base_url or "")
    except ValueError as error:
        raise ConfigError(f"{PREFIX}LLM_BASE_URL {error}. Put a key into {PREFIX}LLM_API_KEY.") from None
    if settings.llm_key is not None and not settings.llm_key.isprintable():
        raise ConfigError(f"{PREFIX}LLM_API_KEY must be one line of printable characters.")


def _check_audit(settings: Settings) -> None:
    """Checks TRUSTED_PROXIES and AUDIT. The audit's file must be neither that of the accounting export nor in
    the folder of stored results."""
    try:
        proxies(settings.trusted_proxies)
    except ValueError:
        raise ConfigError(
            f"{PREFIX}TRUSTED_PROXIES: write addresses or networks, such as 10.0.0.0/8, or unix."
        ) from None
    if settings.audit is None or settings.audit == "-":
        return
    path = Path(settings.audit).absolute()
    if settings.accounting_export not in (None, "-") and path == Path(settings.accounting_export).absolute():
        raise ConfigError(
            f"{PREFIX}AUDIT and {PREFIX}ACCOUNTING_EXPORT name the same file. Name two different files."
        )
    folder = settings.store.removeprefix("disk://") if settings.store.startswith("disk://") else None
    if folder is not None and path.is_relative_to(Path(folder).absolute()):
        raise ConfigError(f"{PREFIX}AUDIT is in the directory of the stored results. Name a file elsewhere.")


def _check_issuer(settings: Settings) -> None:
    names = ("OIDC_AUDIENCE", "OIDC_TENANT_CLAIM", "OIDC_ROLE_CLAIM")
    alone = [name for name in names if name.lower() in settings.model_fields_set]
    if settings.oidc_issuer is None:
        if alone:
            raise ConfigError(f"{PREFIX}{alone[0]} is set without {PREFIX}OIDC_ISSUER.")
        return
    if not settings.oidc_audience:
        raise ConfigError(
            f"{PREFIX}OIDC_AUDIENCE is not set. Without it, tokens for other services would be accepted."
        )
    if not is_secure(settings.oidc_issuer) or urlsplit(settings.oidc_issuer).username is not None:
        raise ConfigError(f"{PREFIX}OIDC_ISSUER must be an https URL without a user or password.")


def is_secure(url: str) -> bool:
    """True for https, and for http on this machine. False for a text that is not a URL."""
    try:
        parts = urlsplit(url)
        is_url = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    is_loopback = parts.scheme == "http" and parts.hostname in LOOPBACK_NAMES
    return is_url and (parts.scheme == "https" or is_loopback)


def _check_binding(settings: Settings) -> None:
    """Without keys, everyone who can connect can read everything: only this machine may be able to
    connect."""
    if settings.uds is None and not settings.needs_key and settings.host not in LOOPBACK_NAMES:
        raise ConfigError(
            f"{PREFIX}HOST is not a loopback address, and neither {PREFIX}API_KEYS_FILE nor "
            f"{PREFIX}OIDC_ISSUER is set. Without keys only 127.0.0.1, ::1, localhost or a Unix socket may "
            "be bound."
        )
    if any(name != "*" and re.search(r"[*/?#@\s]", name) for name in settings.allowed_hosts or ()):
        raise ConfigError(f"{PREFIX}ALLOWED_HOSTS: write names such as spillgate.example.com, or * for any.")
    listener = settings.metrics_listener
    if listener is not None and settings.uds is None and listener[1] and listener[1] == settings.port:
        raise ConfigError(f"{PREFIX}METRICS_ADDRESS has the port of {PREFIX}PORT. Name another one.")
    if not is_name(settings.tenant):
        raise ConfigError(
            f"{PREFIX}TENANT has 1 to 128 letters, digits and ._:@=+~-, the first a letter, a digit or _."
        )
    if settings.tenant != DEFAULT_TENANT and settings.api_keys_file is not None:
        raise ConfigError(f"{PREFIX}TENANT is for a service without keys: with keys, each names its tenant.")
    if settings.api_keys_file is not None:
        read_text(settings.api_keys_file, f"{PREFIX}API_KEYS_FILE", secret=True)
