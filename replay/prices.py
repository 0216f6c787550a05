"""Prices of a model's tokens: of those that enter its context, are read from the cache, or are written."""

from dataclasses import dataclass
from functools import lru_cache

_UNIT = 1000


@dataclass(frozen=True, slots=True)
class Prices:
    """Relative to fresh input. `dollars` is the price of a token of fresh input, None if it is not known."""

    write: float = 1.25
    read: float = 0.1
    output: float = 5.0
    dollars: float | None = None

    @property
    def uncached(self) -> "Prices":
        """For a provider that caches nothing."""
        return Prices(1.0, 1.0, self.output, self.dollars)


USUAL = Prices()
"""For a run whose model is not named, or has no public price."""


@lru_cache(maxsize=1024)
def prices_of(model: str | None) -> Prices:
    """The public prices of the model, by the table that extraction uses too."""
    if not model:
        return USUAL
    from genai_prices import Usage, calc_price

    for name in (model, model.rpartition("/")[2]):
        try:
            fresh, write, read, output = (
                float(calc_price(usage, name).total_price) / _UNIT
                for usage in (
                    Usage(input_tokens=_UNIT),
                    Usage(input_tokens=_UNIT, cache_write_tokens=_UNIT),
                    Usage(input_tokens=_UNIT, cache_read_tokens=_UNIT),
                    Usage(output_tokens=_UNIT),
                )
            )
        except LookupError:
            continue
        return Prices(write / fresh, read / fresh, output / fresh, fresh) if fresh else USUAL
    return USUAL
