"""The window, price, tokenizer and backend of each model."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import anyio

from app.files import read_text
from app.models.model_windows import context_window
from app.settings import PREFIX, Settings
from content.tokens import encoding_for_model, load_encoding
from domain.budget import Session, Window
from domain.errors import ConfigError
from domain.handles import SessionKey
from domain.llm import ModelTerms, Price
from domain.ports import Tokenizer
from domain.structs import frozen_struct
from extraction.models.pool import ModelConfig
from policies.book import PolicyBook
from policies.documents import PolicyValue

log = logging.getLogger(__name__)

# Small enough for every provider's first price band.
_UNIT = 1000
_MILLION = 1_000_000
_REMEMBERED = 1000
_REMEMBERED_SESSIONS = 10_000
_ANY_WINDOW = 1 << 40
_UNKNOWN_PROVIDER = "openai-compatible"


def model_terms(name: str, keys: Mapping[str, PolicyValue], settings: Settings) -> ModelTerms:
    """`keys` are those of the policy file for this model. An unknown window is that of the settings."""
    known = _known(name)

    def number(key: str, default: float) -> float:
        value = keys.get(key, default)
        return value if isinstance(value, int | float) else default

    price = Price(
        number("input_price", known.price.input),
        number("output_price", known.price.output),
        number("cached_price", known.price.cached or number("input_price", known.price.input)),
    )
    window = context_window(name) or settings.context_window
    return ModelTerms(
        name,
        int(number("context_window", window)),
        int(number("max_output_tokens", settings.max_output_tokens)),
        price,
        known.provider,
    )


@frozen_struct
class SessionModel:
    """What follows from a session's model. `window` holds what the session did not declare. `enforce`: the
    budget is enforced even if the session declared no window and reported no usage."""

    window: Window
    enforce: bool
    tokenizer: Tokenizer


class KnownModels:
    """What the policy file, the table of public prices and the settings say of each model."""

    def __init__(self, settings: Settings, policies: PolicyBook) -> None:
        self._settings = settings
        self._policies = policies
        self._of_session: dict[str | None, SessionModel] = {}
        self._warned: dict[tuple[SessionKey, int], None] = {}

    async def of_session(self, name: str | None) -> SessionModel:
        """Returns what is known of the model. `name` is None for a session that names no model. Logs one
        warning for each unknown model."""
        model = self._of_session.get(name)
        if model is None:
            # Looking up a name takes 1 ms, the first one 0.25 s.
            model = await anyio.to_thread.run_sync(self._look_up, name)
            if len(self._of_session) < _REMEMBERED:
                self._of_session[name] = model
        return model

    def _look_up(self, name: str | None) -> SessionModel:
        terms = self._policies.terms(name)
        if not terms.window.is_known and len(self._of_session) < _REMEMBERED:
            log.warning(
                "The window of a model is not known: no budget is enforced for its sessions unless they "
                "declare one. A table [models.NAME] of the policy file sets it.",
                extra={"fields": {"model": name}},
            )
        return SessionModel(terms.window, terms.enforce, self.tokenizer(name))

    def warns(self, session: Session, model: SessionModel) -> bool:
        """Whether the answer warns that no budget is enforced, because the window is not known. A session is
        warned once, and again after a restart or after thousands of other sessions."""
        if model.window.is_known or model.enforce or session.context_window is not None:
            return False
        life = session.key, session.epoch
        if life in self._warned:
            return False
        while len(self._warned) >= _REMEMBERED_SESSIONS:
            del self._warned[next(iter(self._warned))]
        self._warned[life] = None
        return True

    def tokenizer(self, name: str | None) -> Tokenizer:
        """The encoding is that of the policy file, else of the public table, else of the settings."""
        default = self._settings.encoding
        from_policy = self._policies.model_keys(name).get("encoding")
        return load_encoding(str(from_policy or (encoding_for_model(name, default) if name else default)))

    def configs(self) -> list[ModelConfig]:
        """The models of the settings, then those that the policy file gives a backend, then the embedding
        model. Raises ConfigError for a model without a backend, and for a key file that cannot be read."""
        settings = self._settings
        names = dict.fromkeys((*settings.llm_models, *self._own_backends))
        configs = [self._config(name, "LLM_MODELS") for name in names]
        if settings.embed_model is not None:
            configs.append(self._embedding_config(settings.embed_model))
        return configs

    @property
    def default_models(self) -> Sequence[str]:
        """The models that are asked if no policy names any."""
        return self._settings.llm_models or self._own_backends

    @property
    def _own_backends(self) -> Sequence[str]:
        return [name for name in self._policies.own_backends if name != self._settings.embed_model]

    def _embedding_config(self, name: str) -> ModelConfig:
        config = self._config(name, "EMBED_MODEL")
        # The window of an embedding model holds one text; a call sends many.
        return replace(config, terms=replace(config.terms, context_window=_ANY_WINDOW), embeds=True)

    def _config(self, name: str, setting: str) -> ModelConfig:
        settings, keys = self._settings, self._policies.model_keys(name)
        terms = model_terms(name, keys, settings)
        own_url, key_file = str(keys.get("base_url", "")), str(keys.get("api_key_file", ""))
        sources = {one.key: f"{one.set_by}, {one.key}" for one in self._policies.reasons_of("models", name)}
        key = _key(key_file, sources["api_key_file"]) if key_file else None
        if own_url:
            # The key of the settings belongs to another backend, and must not be sent to this one.
            return ModelConfig(terms, own_url, key, sources["base_url"])
        if settings.llm_base_url is None:
            raise ConfigError(
                f"{PREFIX}{setting} names {name}, which has no backend. Set {PREFIX}LLM_BASE_URL, or "
                f'base_url under [models."{name}"] in the policy file.'
            )
        return ModelConfig(terms, settings.llm_base_url, key or settings.llm_key)


def _known(name: str) -> ModelTerms:
    # Loading takes 30 MB and 0.2 s: only a service that asks a model pays for it.
    from genai_prices import Usage, calc_price

    # Gateways write the provider before the model.
    for listed in (name, name.rpartition("/")[2]):
        try:
            price_of = calc_price(Usage(), listed)
        except LookupError:
            continue
        break
    else:
        return ModelTerms(name, 0, 0, provider=_UNKNOWN_PROVIDER)

    def dollars(usage: Usage) -> float:
        return float(calc_price(usage, listed).total_price) * _MILLION / _UNIT

    price = Price(
        dollars(Usage(input_tokens=_UNIT)),
        dollars(Usage(output_tokens=_UNIT)),
        dollars(Usage(input_tokens=_UNIT, cache_read_tokens=_UNIT)),
    )
    return ModelTerms(name, 0, 0, price, price_of.provider.id)


def _key(path: str, source: str) -> str:
    key = read_text(Path(path), source, secret=True).strip()
    if not key or not key.isprintable():
        raise ConfigError(f"{source}: the file must hold one line of printable characters.")
    return key
