"""The ports of one process, and the one place that builds them."""

import itertools
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files

import anyio

from app import __version__
from app.known_models import model_terms
from app.purse import Purses
from app.runs import Runs
from app.settings import Settings
from app.telemetry import Metrics
from content.tokens import TokenMeter, encoding_for_model, load_encoding
from domain.budget import Window
from domain.errors import ConfigError, InvalidPolicy
from domain.ports import Clock, Ledger, ResultStore, Tokenizer
from extraction.indexes import Indexes
from extraction.models import Models
from policies.book import PolicyBook
from policies.documents import PolicyDocument, from_toml
from storage import open_ledger, open_store

_MS = 1000
_INLINE_CHARS = 1 << 14


def system_clock() -> int:
    return time.time_ns() // 1_000_000


class EntryIds:
    """`entry-<64 random bits of this process>-<count>`: unique, and a tenth of a UUID's cost."""

    def __init__(self) -> None:
        self._prefix = f"entry-{secrets.token_hex(8)}"
        self._count = itertools.count(1)

    def __call__(self) -> str:
        return f"{self._prefix}-{next(self._count):08x}"


@dataclass(frozen=True, slots=True)
class Runtime:
    """All that the use cases need of the world."""

    settings: Settings
    clock: Clock
    store: ResultStore
    ledger: Ledger
    policies: PolicyBook
    metrics: Metrics
    models: Models | None
    purses: Purses
    runs: Runs = field(default_factory=Runs)
    indexes: Indexes = field(default_factory=Indexes)
    new_entry_id: EntryIds = field(default_factory=EntryIds)
    # One at a time: the tokenizer holds the GIL, more threads would only fight the event loop for it.
    counting: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    scanning: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(2))

    def tokenizer(self, model: str | None) -> Tokenizer:
        """The model's encoding: as the policy file says, else as known of the model, else the setting."""
        return _tokenizer(model, self.settings, self.policies)

    async def count(self, text: str, model: str | None) -> int:
        """Tokens, exactly; a long text's in a thread."""
        tokenizer = self.tokenizer(model)
        if len(text) <= _INLINE_CHARS:
            return tokenizer.count(text)
        return await anyio.to_thread.run_sync(_sliced, tokenizer, text, limiter=self.counting)

    @property
    def retention_ms(self) -> int:
        return self.settings.retention_seconds * _MS


def _tokenizer(model: str | None, settings: Settings, policies: PolicyBook) -> Tokenizer:
    if model is None:
        return load_encoding(settings.encoding)
    return load_encoding(policies.terms(model).encoding or encoding_for_model(model, settings.encoding))


def _sliced(tokenizer: Tokenizer, text: str) -> int:
    meter = TokenMeter(tokenizer)
    meter.feed(text)
    return meter.finish()[0]


def load_policies(settings: Settings) -> PolicyBook:
    """The operator's layers: built-in, size cap setting, policy file, bypassed tools. Raises ConfigError."""
    builtin = files("policies").joinpath("default.toml").read_text(encoding="utf-8")
    layers = [from_toml(builtin, "default.toml"), PolicyDocument({"max_bytes": settings.max_bytes})]
    if settings.policy_file is not None:
        try:
            text = settings.policy_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise ConfigError("SPILLGATE_POLICY_FILE: the file cannot be read as UTF-8 text.") from None
        layers.append(from_toml(text, settings.policy_file.name))
    layers.append(PolicyDocument(tools={glob: {"bypass": True} for glob in settings.bypass_tools}))
    window = Window(settings.context_window, settings.buffer_tokens, settings.max_output_tokens)
    try:
        return PolicyBook(
            layers,
            window,
            required=settings.require_budget,
            overrides=settings.allow_request_overrides,
            models=settings.llm_models,
        )
    except InvalidPolicy as error:
        raise ConfigError(f"SPILLGATE_POLICY_FILE: {error.detail}") from None


@asynccontextmanager
async def open_runtime(settings: Settings, clock: Clock = system_clock) -> AsyncIterator[Runtime]:
    """Opens every port; closes them in reverse. Raises ConfigError for what cannot be opened."""
    policies = load_policies(settings)
    load_encoding(settings.encoding)
    store = await open_store(
        settings.storage_url,
        clock=clock,
        retention_seconds=settings.retention_seconds,
        max_bytes=settings.storage_max_bytes,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        ledger = await open_ledger(
            settings.ledger,
            clock=clock,
            session_retention_seconds=settings.retention_seconds,
            entry_retention_seconds=settings.ledger_retention_seconds,
        )
        stack.push_async_callback(ledger.close)
        models = _open_models(settings, policies)
        if models is not None:
            stack.push_async_callback(models.close)
        yield Runtime(settings, clock, store, ledger, policies, Metrics(), models, Purses(ledger))


def _open_models(settings: Settings, policies: PolicyBook) -> Models | None:
    """None where no backend is configured. Raises ConfigError."""
    if settings.llm_base_url is None:
        return None
    terms = [model_terms(name, policies.model_keys(name), settings) for name in settings.llm_models]

    return Models(
        settings.llm_base_url,
        settings.llm_key,
        terms,
        tokenizer_of=lambda name: _tokenizer(name, settings, policies),
        concurrency=settings.extract_concurrency,
        version=__version__,
    )
