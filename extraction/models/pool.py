"""The pool of models: their backends, which of them an extraction asks, the health of each."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from domain.errors import ConfigError
from domain.llm import MODEL_SCHEMES, ModelTerms
from domain.ports import Model, Tokenizer
from extraction.models.asker import LaneAsker
from extraction.models.lanes import ModelHealth, ModelLane, SharedModelState
from extraction.models.usage import CallRules

if TYPE_CHECKING:  # Imported by `_model`.
    from extraction.models.openai import BackendConnections


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model and its backend. `source` names the setting that holds `base_url`, for error messages.
    `embeds`: it is asked for embeddings, never for text."""

    terms: ModelTerms
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    source: str = "SPILLGATE_LLM_BASE_URL"
    embeds: bool = False


@dataclass(frozen=True, slots=True)
class ModelState:
    """`retry_ms`: milliseconds until the model is asked again, because it failed for this `reason`; 0 if it
    is asked now."""

    name: str
    base_url: str
    is_default: bool
    in_flight: int
    retry_ms: int
    reason: str


class ModelPool:
    """Gives each extraction an Asker over the models that it may ask."""

    def __init__(
        self,
        models: Sequence[ModelConfig],
        default: Sequence[str],
        *,
        tokenizer_of: Callable[[str], Tokenizer],
        concurrency: int,
        version: str,
    ) -> None:
        """`default` names the models that are asked where the policy names none. `tokenizer_of` returns the
        tokenizer for a model's name. Raises ConfigError for a URL that names no backend."""
        self._stack = AsyncExitStack()
        self._connections: dict[str, BackendConnections] = {}
        """The connections of each backend, by its URL."""
        self._version = version
        self._shared = SharedModelState(concurrency, asyncio.Semaphore(concurrency))
        self._configs: dict[str, ModelConfig] = {}
        self._lanes: dict[str, ModelLane] = {}
        self.default: tuple[str, ...] = ()
        """Names of the models that are asked where the policy names none."""
        self._set(models, default, tokenizer_of)

    def __contains__(self, name: object) -> bool:
        """Whether it is a model that answers with text."""
        return name in self._lanes and not self._configs[str(name)].embeds

    def __len__(self) -> int:
        """The number of models that answer with text."""
        return sum(not one.embeds for one in self._configs.values())

    def asker(self, names: Sequence[str], rules: CallRules) -> LaneAsker:
        """An Asker over the models of these names, in this order; over the default ones if none of the names
        is configured."""
        lanes = [self._lanes[name] for name in dict.fromkeys(names) if name in self]
        return LaneAsker(lanes or [self._lanes[name] for name in self.default], self._shared, rules)

    @property
    def embedding_model(self) -> str | None:
        """The name of the model that embeds texts; None if there is none."""
        return next((name for name, config in self._configs.items() if config.embeds), None)

    def embedder(self, rules: CallRules) -> LaneAsker | None:
        """An Asker over the embedding model, whose replies hold vectors; None if there is none."""
        name = self.embedding_model
        return None if name is None else LaneAsker([self._lanes[name]], self._shared, rules)

    def revised(
        self, models: Sequence[ModelConfig], default: Sequence[str], tokenizer_of: Callable[[str], Tokenizer]
    ) -> "ModelPool":
        """A pool of these models that shares connections and slots with this one, and the health of models
        whose backend is the same. Calls in flight are not affected. Raises ConfigError."""
        revised = copy(self)
        revised._set(models, default, tokenizer_of)
        return revised

    def states(self) -> list[ModelState]:
        now = asyncio.get_running_loop().time()
        return [
            ModelState(
                name,
                self._configs[name].base_url,
                name in self.default,
                lane.health.in_flight,
                max(0, round(1000 * (lane.health.retry_at - now))),
                "" if lane.health.is_available(now) else lane.health.reason,
            )
            for name, lane in self._lanes.items()
        ]

    async def close(self) -> None:
        """Waits for the accounting of cancelled calls, then closes all connections."""
        await self._shared.close()
        await self._stack.aclose()

    def _set(
        self, models: Sequence[ModelConfig], default: Sequence[str], tokenizer_of: Callable[[str], Tokenizer]
    ) -> None:
        lanes = {one.terms.name: self._lane(one, tokenizer_of(one.terms.name)) for one in models}
        self._configs = {one.terms.name: one for one in models}
        self._lanes, self.default = lanes, tuple(default)

    def _lane(self, config: ModelConfig, tokenizer: Tokenizer) -> ModelLane:
        name = config.terms.name
        old, lane = self._configs.get(name), self._lanes.get(name)
        backend = (config.base_url, config.api_key, config.embeds)
        if lane is None or old is None or (old.base_url, old.api_key, old.embeds) != backend:
            return ModelLane(self._model(config), tokenizer, ModelHealth(name))
        return ModelLane(lane.model if old == config else self._model(config), tokenizer, lane.health)

    def _model(self, config: ModelConfig) -> Model:
        scheme, colon, _ = config.base_url.partition(":")
        if not colon or scheme.lower() not in MODEL_SCHEMES:
            schemes = ", ".join(f"{name}:" for name in MODEL_SCHEMES)
            raise ConfigError(f"{config.source}: unknown scheme. It starts with one of {schemes}")
        if not _has_address(config.base_url):
            raise ConfigError(f"{config.source}: is not a URL. It looks like https://api.example.com/v1")
        # Imported late: a fifth of the service's start, and 6 MB (bench/README.md, start).
        from extraction.models.openai import BackendConnections, OpenAIEmbedder, OpenAIModel

        connections = self._connections.get(config.base_url)
        if connections is None:
            connections = self._connections[config.base_url] = BackendConnections(self._shared.concurrency)
            self._stack.push_async_callback(connections.aclose)
        kind = OpenAIEmbedder if config.embeds else OpenAIModel
        return kind(config.terms, connections, config.base_url, config.api_key, version=self._version)


def _has_address(base_url: str) -> bool:
    import httpx

    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        return False
    return bool(url.host) and 0 < (url.port or 443) < 1 << 16
