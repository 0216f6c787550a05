"""The models that extraction may ask, each with its backend: out of the settings and the policy file."""

from collections.abc import Sequence
from pathlib import Path

from app.extracting.known_models import model_terms
from app.files import read_text
from app.settings import PREFIX, Settings
from domain.errors import ConfigError
from extraction.models import ModelConfig
from policies.book import PolicyBook


def model_configs(settings: Settings, policies: PolicyBook) -> list[ModelConfig]:
    """Those of the settings, then those that the policy file gives a backend. Raises ConfigError for a model
    without a backend, and for a key file that cannot be read."""
    names = dict.fromkeys((*settings.llm_models, *policies.own_backends))
    return [_config(name, settings, policies) for name in names]


def default_models(settings: Settings, policies: PolicyBook) -> Sequence[str]:
    """The models that are asked where no policy names any."""
    return settings.llm_models or policies.own_backends


def _config(name: str, settings: Settings, policies: PolicyBook) -> ModelConfig:
    keys = policies.model_keys(name)
    terms = model_terms(name, keys, settings)
    own_url, key_file = str(keys.get("base_url", "")), str(keys.get("api_key_file", ""))
    key = _key(name, key_file) if key_file else None
    if own_url:
        # Never the key of the settings: it belongs to another backend.
        return ModelConfig(terms, own_url, key, f'[models."{name}"] base_url')
    if settings.llm_base_url is None:
        raise ConfigError(
            f"{PREFIX}LLM_MODELS names {name}, which has no backend. Set {PREFIX}LLM_BASE_URL, or "
            f'base_url under [models."{name}"] in the policy file.'
        )
    return ModelConfig(terms, settings.llm_base_url, key or settings.llm_key)


def _key(name: str, path: str) -> str:
    place = f'[models."{name}"] api_key_file'
    key = read_text(Path(path), place, secret=True).strip()
    if not key or not key.isprintable():
        raise ConfigError(f"{place}: the file must hold one line of printable characters.")
    return key
