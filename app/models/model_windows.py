"""The context window of a model, from the table of genai-prices, by any spelling of the model's name."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

_PROVIDERS = {
    "amazon": "aws",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "azure_ai": "azure",
    "azure_openai": "azure",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "vertex_ai": "google",
    "google_vertex": "google",
    "google-vertex": "google",
    "google_genai": "google",
    "github_copilot": "github-copilot",
    "mistralai": "mistral",
    "moonshot": "moonshotai",
    "perplexity_ai": "perplexity",
    "together_ai": "together",
    "togetherai": "together",
    "xai": "x-ai",
    "z-ai": "zai",
}
"""Prefixes of gateways and libraries, and the table's name of that provider, where the two differ."""

_OPENROUTER = "openrouter"
_LONG = re.compile(r"\[1m\]$")
"""Claude Code's mark for a window of a million tokens."""

# Suffixes that do not change the model. Each one is cut off.
_ENDINGS = (
    re.compile(r":(?:free|nitro|floor|thinking|extended|beta|online|exacto|batch)$"),
    re.compile(r"-v\d+(?::\d+){1,2}k?$"),
    re.compile(r":\d+$"),
    re.compile(r"@(?:latest|default)$"),
    re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d)$"),
    re.compile(r"-(?:latest|fast-latest)$"),
    re.compile(r"-(?:preview-)?(?:0\d|1[0-2])-(?:[0-2]\d|3[01])$"),
    re.compile(r"-(?:preview|exp|maas|tput|fp8)$"),
    re.compile(r"(?<=-instruct)-(?:turbo|lite|fast|free|reference|maas)$"),
)
_REGION = re.compile(r"^(?:us-gov|us|eu|apac|jp|au|ca|sa|in|global|regional)\.(?=[a-z0-9-]+\.)")
_VENDOR = re.compile(r"^[a-z][a-z0-9-]*\.(?=[a-z])")
_GROQ = re.compile(r"-(?:versatile|instant)$")
_FINE_TUNED = re.compile(r"^ft:([^:]+):")


@lru_cache(maxsize=1024)
def context_window(name: str) -> int:
    """Tokens; 0 if the table has no model of this name. The first call loads the table, which takes 0.25 s.
    Others take 1 ms, eight times as long as all of a result of 2 KB (bench/README.md)."""
    name = name.strip().lower()
    if _LONG.search(name):
        return 1_000_000
    for asked in dict.fromkeys(_spellings(name)):
        if window := _window(asked):
            return window
    return 0


class _Asked(NamedTuple):
    """A spelling of a model's name, and the providers that its prefixes name."""

    model: str
    providers: tuple[str, ...]


def _spellings(name: str) -> Iterator[_Asked]:
    """From the whole name to its last part, each first as it is, then without what does not matter."""
    parts = name.split("/")
    for first in range(len(parts)):
        before = tuple(_PROVIDERS.get(part, part) for part in reversed(parts[:first]))
        for model in _shortened("/".join(parts[first:])):
            yield _Asked(model, before)


def _shortened(model: str) -> Iterator[str]:
    yield model
    if fine_tuned := _FINE_TUNED.match(model):
        model = fine_tuned[1]
        yield model
    model = _REGION.sub("", model)
    yield model
    while (shorter := _cut(model)) != model:
        model = shorter
        yield model
    if (bare := _VENDOR.sub("", model)) != model:
        yield bare
    if _GROQ.search(model):
        yield _GROQ.sub("-instruct", model)


def _cut(model: str) -> str:
    for ending in _ENDINGS:
        if (shorter := ending.sub("", model)) != model:
            return shorter
    return model


def _window(asked: _Asked) -> int:
    """By the provider that the name has, else the model's maker, else OpenRouter, else most others."""
    table = _table()
    hosts = [table.providers[name] for name in asked.providers if name in table.providers]
    makers = [one for one in table.makers if one.model_match and one.model_match.is_match(asked.model)]
    for provider in (*hosts, *makers, table.providers[_OPENROUTER]):
        if window := _matched(provider, asked.model):
            return window
    windows = table.by_name.get(asked.model, Counter())
    most = max(windows.values(), default=0)
    return min((window for window, times in windows.items() if times == most), default=0)


def _matched(provider: "Provider", model: str) -> int:
    for one in provider.models:
        if one.context_window and one.is_match(model):
            return one.context_window
    return 0


class _Table(NamedTuple):
    """`makers` know their models by the beginning of the name. `by_name`: how many providers name which
    window of a model, by its name with and without its maker."""

    providers: "dict[str, Provider]"
    makers: "list[Provider]"
    by_name: dict[str, Counter[int]]


@cache
def _table() -> _Table:
    # Loading takes 30 MB and 0.2 s: only sessions that name a model pay for it.
    from genai_prices.data import providers

    by_name: dict[str, Counter[int]] = {}
    for provider in providers:
        for model in provider.models:
            for name in _names(model):
                by_name.setdefault(name, Counter())[model.context_window or 0] += 1
    for windows in by_name.values():
        windows.pop(0, None)
    makers = [provider for provider in providers if provider.model_match is not None]
    return _Table({provider.id: provider for provider in providers}, makers, by_name)


def _names(model: "ModelInfo") -> set[str]:
    whole = model.id.lower()
    return {whole, whole.rpartition("/")[2]}
