"""What is known of a model: its window and price, by the policy file, else by a table of public prices."""

import logging
import sys
from collections.abc import Mapping
from functools import lru_cache

from app.settings import Settings
from content.tokens.encodings import encoding_for_model
from domain.llm import ModelTerms, Price
from policies.book import PolicyBook
from policies.documents import Value

log = logging.getLogger(__name__)

# Small enough for every provider's first price band.
_UNIT = 1000
_MILLION = 1_000_000
_MOST_MET = 1000
_UNKNOWN_PROVIDER = "openai-compatible"


def model_terms(name: str, keys: Mapping[str, Value], settings: Settings) -> ModelTerms:
    """`keys` are the policy file's for this model; the settings' window stands in for an unknown one."""
    known = _known(name)

    def number(key: str, otherwise: float) -> float:
        value = keys.get(key, otherwise)
        return value if isinstance(value, int | float) else otherwise

    price = Price(
        number("input_price", known.price.input),
        number("output_price", known.price.output),
        number("cached_price", known.price.cached or number("input_price", known.price.input)),
    )
    window = known.context_window or settings.context_window
    return ModelTerms(
        name,
        int(number("context_window", window)),
        int(number("max_output_tokens", settings.max_output_tokens)),
        price,
        known.provider,
    )


class UnknownModels:
    """Logs a warning for each model that nothing is known of, once."""

    def __init__(self) -> None:
        self._met: set[str] = set()

    def meet(self, model: str, policies: PolicyBook) -> None:
        """Does nothing for a model that it met before, and once it met 1,000."""
        if model in self._met or len(self._met) >= _MOST_MET:
            return
        self._met.add(model)
        if policies.model_keys(model) or encoding_for_model(model, "") or known_window(model):
            return
        log.warning(
            "A model is not known: the settings' window and encoding stand in for its own. "
            "A table [models.NAME] of the policy file sets them.",
            extra={"fields": {"model": model}},
        )


@lru_cache(maxsize=1024)
def known_window(name: str) -> int:
    """The context window of a model in tokens; 0 if unknown. The first call takes 0.25 s: see `load`."""
    return _known(name).context_window


def is_loaded() -> bool:
    return "genai_prices.data" in sys.modules


def load() -> None:
    """Loads the table: for a thread, so that the event loop does not wait for it."""
    known_window("gpt-4")


def _known(name: str) -> ModelTerms:
    # 30 MB and 0.2 s: only for those who ask a model.
    from genai_prices import Usage, calc_price

    # Gateways put the provider before the model.
    for listed in (name, name.rpartition("/")[2]):
        try:
            found = calc_price(Usage(), listed)
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
    return ModelTerms(name, found.model.context_window or 0, 0, price, found.provider.id)
