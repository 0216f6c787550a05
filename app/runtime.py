"""The ports of one process, and the one place that builds them."""

import itertools
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import anyio

from app import __version__
from app.files import Stamp, stamp_of
from app.masking.redactions import Redactions
from app.models.known_models import KnownModels
from app.models.spend_caps import DailySpend, SpendCaps
from app.operations.audit import Audit
from app.operations.clock import ClockWatch, SteadyClock
from app.operations.clock_file import clock_file_of
from app.operations.export import EXPORT_SETTING, EarlierExport, ExportedLedger, writer_of
from app.operations.line_writer import STANDARD_OUTPUT, JsonLines
from app.operations.logs import RequestLog
from app.operations.policy_file import load_policies
from app.operations.readiness import Readiness
from app.operations.storage_keys import StorageKeys
from app.operations.supervisor import Background
from app.operations.telemetry import Metrics, TimedLedger, TimedStore
from app.operations.tracing import TraceTarget, trace_target
from app.seen_messages import SeenMessages
from app.settings import Settings
from content.redaction.known import load_rules
from content.threads import in_thread_if_long
from content.tokens import count_in_slices, load_encoding
from domain.accounting import AccountingEntry, whole_json
from domain.errors import StorageError
from domain.extraction import Mode
from domain.handles import Handle
from domain.ports import Clock, Ledger, Observer, Observers, ResultStore, Tokenizer
from domain.quotas import SETTINGS, TenantQuota
from extraction.index_cache import IndexCache
from extraction.models.pool import ModelPool
from extraction.queries import Queries
from policies.book import PolicyBook
from storage import (
    body_path,
    check_urls,
    open_ledger,
    open_store,
    sealed_ledger,
    sealed_store,
    shared_clock_of,
)
from storage.ledger_when_full import UnrecordedLedger

log = logging.getLogger(__name__)

_MS = 1000
_STALE_POLICY = (
    "SPILLGATE_POLICY_FILE has changed and is not valid; the policy before stays in force. "
    "The log says why, and so does `spillgate check-config`."
)


class EntryIds:
    """`entry-<writer>-<count>`: unique, and a tenth of a UUID's cost. The writer is 16 digits of this
    process, random ones after those given."""

    def __init__(self, digits: str = "") -> None:
        self.writer = digits + secrets.token_hex(8 - len(digits) // 2)
        self._count = itertools.count(1)

    def __call__(self) -> str:
        return f"entry-{self.writer}-{next(self._count):08x}"


class LiveQuotas:
    """The quotas of the policies in force, for ports that outlive a change of the policy file."""

    def __init__(self, policies: PolicyBook) -> None:
        self.policies = policies

    def __call__(self, tenant: str) -> TenantQuota:
        return self.policies.quota(tenant)

    def set_by(self, tenant: str, quota: str) -> str:
        """The setting, or the table of the policy file, that sets a quota of a tenant."""
        return self.policies.quota_table(tenant, quota) or SETTINGS[quota]


@dataclass(frozen=True, slots=True)
class Runtime:
    """All that the use cases need of the world."""

    settings: Settings
    clock: Clock
    store: ResultStore
    ledger: Ledger
    policies: PolicyBook
    quota_of: LiveQuotas
    known_models: KnownModels
    metrics: Metrics
    model_pool: ModelPool
    spend_caps: SpendCaps
    readiness: Readiness
    unrecorded: UnrecordedLedger
    new_entry_id: EntryIds
    redactions: Redactions
    background: Background = field(default_factory=Background)
    queries: Queries = field(default_factory=Queries)
    indexes: IndexCache = field(default_factory=IndexCache)
    seen_messages: SeenMessages = field(default_factory=SeenMessages)
    clock_watch: ClockWatch = field(default_factory=lambda: ClockWatch(SteadyClock()))
    # One at a time: the tokenizer holds the GIL, more threads would only fight the event loop for it.
    counting: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    # Large JSON is parsed for one body at a time.
    parsing: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    # Large texts are searched and described two at a time.
    scanning: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(2))
    policy_stamp: Stamp | None = None
    storage_keys: StorageKeys | None = None
    policy_stale: bool = False
    observer: Observer = field(default_factory=Observer)
    tracing: TraceTarget = field(default_factory=TraceTarget)
    exported: ExportedLedger | None = None

    async def count(self, text: str, tokenizer: Tokenizer) -> int:
        """Tokens, exactly; a long text's in a thread."""
        return await in_thread_if_long(len(text), count_in_slices, tokenizer, text, limiter=self.counting)

    def body_path(self, tenant: str, handle: Handle | None) -> str | None:
        """The file of a stored result, if its caller is expected to be able to read it."""
        if handle is None or not self.settings.names_paths:
            return None
        return body_path(self.settings.store, tenant, handle)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The ways of extraction that can run as configured."""
        # All strategies together take 50 ms to import, a twentieth of the start (bench/README.md, start).
        from extraction.ladder import runnable_modes

        return runnable_modes(bool(self.model_pool))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator should look at, though every request is served."""
        stale = _STALE_POLICY if self.policy_stale else None
        return (*self.readiness.warnings, *(one for one in (stale, self.tracing.fault) if one is not None))

    @property
    def retention_ms(self) -> int:
        return self.settings.retention_seconds * _MS


@asynccontextmanager
async def open_runtime(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Runtime]:
    """Opens every port; closes them in reverse. Raises ConfigError for what cannot be opened. Without `clock`
    the process goes by the clock of Redis or PostgreSQL, or by that of the machine."""
    steady = SteadyClock()
    is_given, clock = clock is not None, clock or steady
    # Before the file is read: a change from here on is seen as one.
    stamp = None if settings.policy_file is None else stamp_of(settings.policy_file)
    policies, metrics = await _loaded_policies(settings), Metrics()
    check_urls(settings.store, ledger_url := settings.ledger)
    async with AsyncExitStack() as stack:
        tracing, observer = _opened_observer(settings, metrics, stack)
        quota_of = LiveQuotas(policies)
        store, ledger = await _opened_ports(settings, ledger_url, clock, quota_of, stack)
        shared = None if is_given else shared_clock_of(ledger, store)
        file = None if is_given else clock_file_of(settings.store, ledger_url)
        watch = await _opened_watch(ClockWatch(steady, shared, file=file), stack)
        keys = None if settings.storage_key_file is None else StorageKeys(settings.storage_key_file)
        store, ledger = _timed(store, ledger, keys, metrics)
        ids, exported = EntryIds(writer_of(settings.accounting_export)), None
        ledger = unrecorded = UnrecordedLedger(ledger, clock, ids, metrics.unrecorded)
        if settings.accounting_export is not None:
            ledger = exported = _exported(settings, ledger, ids.writer, metrics, stack)
        stack.push_async_callback(unrecorded.record)
        background = Background()
        stack.push_async_callback(background.close)
        known = KnownModels(settings, policies)
        models = _opened_models(settings, known, stack)
        daily = DailySpend(ledger, quota_of, clock, unrecorded=unrecorded.cost_usd)
        most = settings.storage_max_bytes
        queries = Queries()
        stack.push_async_callback(queries.aclose)
        readiness = Readiness(store, ledger, most, quota_of, daily.known, quota_of.set_by, watch)
        yield Runtime(
            settings,
            clock,
            store,
            ledger,
            policies,
            quota_of,
            known,
            metrics,
            models,
            SpendCaps(ledger, daily, unrecorded.cost_usd),
            readiness,
            unrecorded,
            ids,
            Redactions(policies, store, ledger),
            queries=queries,
            background=background,
            clock_watch=watch,
            exported=exported,
            policy_stamp=stamp,
            storage_keys=keys,
            observer=observer,
            tracing=tracing,
        )


async def _loaded_policies(settings: Settings) -> PolicyBook:
    """With the encoding and the rules that they need."""
    policies = load_policies(settings)
    load_encoding(settings.encoding)
    if policies.may_redact_secrets:
        await anyio.to_thread.run_sync(load_rules)
    return policies


def _timed(
    store: ResultStore, ledger: Ledger, keys: StorageKeys | None, metrics: Metrics
) -> tuple[ResultStore, Ledger]:
    """The ports with a timer around them, and encryption within it if there are keys."""
    if keys is not None:
        store, ledger = sealed_store(store, keys), sealed_ledger(ledger, keys)
    timed_store = TimedStore(store, partial(metrics.timer, "store"))
    return timed_store, TimedLedger(ledger, partial(metrics.timer, "ledger"))


async def _opened_watch(watch: ClockWatch, stack: AsyncExitStack) -> ClockWatch:
    stack.callback(watch.keep)
    with suppress(StorageError):
        await watch.look()
    return watch


async def _opened_ports(
    settings: Settings, ledger_url: str, clock: Clock, quota_of: LiveQuotas, stack: AsyncExitStack
) -> tuple[ResultStore, Ledger]:
    store = await open_store(
        settings.store,
        clock=clock,
        retention_seconds=settings.retention_seconds,
        max_bytes=settings.storage_max_bytes,
        quota_of=quota_of,
    )
    stack.push_async_callback(store.close)
    ledger = await open_ledger(
        ledger_url,
        clock=clock,
        session_retention_seconds=settings.retention_seconds,
        entry_retention_seconds=settings.ledger_retention_seconds,
        quota_of=quota_of,
        max_bytes=settings.ledger_total_max_bytes,
    )
    stack.push_async_callback(ledger.close)
    return store, ledger


def _opened_models(settings: Settings, known: KnownModels, stack: AsyncExitStack) -> ModelPool:
    models = ModelPool(
        known.configs(),
        known.default_models,
        tokenizer_of=known.tokenizer,
        concurrency=settings.extract_concurrency,
        version=__version__,
    )
    stack.push_async_callback(models.close)
    return models


def _exported(
    settings: Settings, ledger: Ledger, writer: str, metrics: Metrics, stack: AsyncExitStack
) -> ExportedLedger:
    target = settings.accounting_export or STANDARD_OUTPUT
    earlier = EarlierExport.find(target)
    export = JsonLines[AccountingEntry](
        EXPORT_SETTING, target, metrics.export_lost.inc, settings.accounting_export_max_bytes, whole_json
    )
    stack.push_async_callback(anyio.to_thread.run_sync, export.close)
    return ExportedLedger(ledger, export, earlier, writer)


def _opened_observer(
    settings: Settings, metrics: Metrics, stack: AsyncExitStack
) -> tuple[TraceTarget, Observer]:
    observers: list[Observer] = [metrics, RequestLog()]
    if settings.audit is not None:
        audit = Audit(settings.audit, metrics.audit_dropped.inc)
        stack.push_async_callback(anyio.to_thread.run_sync, audit.lines.close)
        observers.append(audit)
    tracing = trace_target()
    if tracing.fault is not None:
        log.warning(tracing.fault)
    if tracing.endpoint is not None:
        # The SDK and what it brings take 0.1 s and 20 MB.
        from app.operations.spans import open_spans

        spans = open_spans(metrics)
        stack.push_async_callback(anyio.to_thread.run_sync, spans.close)
        observers.append(spans)
    return tracing, Observers(*observers)
