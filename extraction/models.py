"""The models of this process: one backend, chosen by its URL's scheme, opened once."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass

import httpx

from domain.errors import ConfigError
from domain.llm import ModelTerms
from domain.ports import Clock, Model, Tokenizer
from extraction.asking import Asker, Lane
from extraction.breaker import Breaker
from extraction.connections import open_client
from extraction.openai import OpenAIModel
from extraction.scripted import ScriptedModel
from extraction.spending import Book, Commons

_SETTING = "SPILLGATE_LLM_BASE_URL"


@dataclass(frozen=True, slots=True)
class _Backend:
    """Where the models are. `stack` closes what opening them opens."""

    base_url: str
    api_key: str | None
    concurrency: int
    version: str
    stack: AsyncExitStack


class Models:
    """Hands every extraction its way to the models; what they have in common is kept here."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        terms: Sequence[ModelTerms],
        *,
        tokenizer_of: Callable[[str], Tokenizer],
        concurrency: int,
        version: str,
    ) -> None:
        """`tokenizer_of` answers what counts for the model of a name. Raises ConfigError."""
        if not terms:
            raise ConfigError("SPILLGATE_LLM_MODELS: name one model at least.")
        self._stack = AsyncExitStack()
        self._model = _opener(base_url)(_Backend(base_url, api_key, concurrency, version, self._stack))
        self._lanes = {
            one.name: Lane(self._model(one), Breaker(time.monotonic), tokenizer_of(one.name)) for one in terms
        }
        self._commons = Commons(concurrency, asyncio.Semaphore(concurrency))

    def asker(
        self,
        names: Sequence[str] = (),
        *,
        ends: float,
        book: Book,
        allowed: Callable[[], str | None],
        clock: Clock,
        jitter: Callable[[], float] = random.random,
    ) -> Asker:
        """Over the models of these names, in this order; over all where none of them is configured. For the
        rest see Asker."""
        named = [self._lanes[name] for name in dict.fromkeys(names) if name in self._lanes]
        lanes = named or list(self._lanes.values())
        return Asker(lanes, self._commons, ends=ends, book=book, allowed=allowed, clock=clock, jitter=jitter)

    def revised(self, terms: Sequence[ModelTerms], tokenizer_of: Callable[[str], Tokenizer]) -> "Models":
        """The same models under other terms. What is on its way goes on under the old ones; both share
        connections, calls at a time and what is known of each model's health."""
        revised = copy(self)
        revised._lanes = {one.name: self._lane(one, tokenizer_of(one.name)) for one in terms}
        return revised

    def _lane(self, terms: ModelTerms, tokenizer: Tokenizer) -> Lane:
        old = self._lanes[terms.name]
        model = old.model if old.model.terms == terms else self._model(terms)
        return Lane(model, old.breaker, tokenizer)

    async def close(self) -> None:
        """Calls that were cancelled are booked before."""
        await self._commons.close()
        await self._stack.aclose()


_Maker = Callable[[ModelTerms], Model]


def _open_http(backend: _Backend) -> _Maker:
    if not _has_address(backend.base_url):
        raise ConfigError(f"{_SETTING}: is not a URL. It looks like https://api.example.com/v1")
    client = open_client(backend.concurrency)
    backend.stack.push_async_callback(client.aclose)
    return lambda terms: OpenAIModel(
        terms, client, backend.base_url, backend.api_key, version=backend.version
    )


def _has_address(base_url: str) -> bool:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        return False
    return bool(url.host) and 0 < (url.port or 443) < 1 << 16


def _open_scripted(backend: _Backend) -> _Maker:
    return ScriptedModel


BACKENDS: dict[str, Callable[[_Backend], _Maker]] = {
    "http": _open_http,
    "https": _open_http,
    "scripted": _open_scripted,
}


def _opener(base_url: str) -> Callable[[_Backend], _Maker]:
    scheme, colon, _ = base_url.partition(":")
    if not colon or scheme.lower() not in BACKENDS:
        known = ", ".join(f"{name}:" for name in BACKENDS)
        raise ConfigError(f"{_SETTING}: unknown scheme. It starts with one of {known}")
    return BACKENDS[scheme.lower()]
