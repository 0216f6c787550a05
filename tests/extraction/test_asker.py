"""How an extraction asks the models: order, tries, time, pauses after failures, and what is accounted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from app.runtime import open_runtime
from app.settings import Settings
from content.tokens import load_encoding
from domain.errors import (
    ConfigError,
    ContextExceeded,
    ModelBadReply,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    PromptDeclined,
    PromptRefused,
    StoreUnavailable,
)
from domain.extraction import LlmUsage
from domain.llm import LlmCall, LlmTokens, Message, ModelTerms, Price, Prompt, Reply, Role
from extraction.models.asker import LaneAsker
from extraction.models.lanes import ModelHealth, ModelLane, SharedModelState
from extraction.models.pool import ModelConfig, ModelPool
from extraction.models.usage import CallRules
from tests.conftest import StillClock
from tests.extraction.backend import Backend, running
from tests.listening import listening
from tests.virtual_time import virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = virtual_time

ENCODING = load_encoding("o200k_base")
TERMS = ModelTerms("first", 32_000, 500, Price(2.0, 10.0, 1.0), "a-provider")
PROMPT = Prompt((Message(Role.USER, "How many parts are in it?"),), 100)
SIZE = ENCODING.count("How many parts are in it?")
TOKENS = LlmTokens(SIZE, 2)

Step = Reply | Exception | float
"""What a model does when it is asked: answers, fails, or sleeps so many seconds first."""

HANGS = 60.0
BUSY = ModelUnavailable("busy")
REFUSED = ModelRefused("refused")
EMPTY = ModelBadReply("empty")


def said(text: str, tokens: LlmTokens | None = TOKENS) -> Reply:
    return Reply(text, "stop", tokens=tokens)


class StagedModel:
    """Takes one step of its script for a call, and the last one for ever."""

    def __init__(
        self, *script: Step, name: str = "first", window: int = 32_000, latency: float = 0.0
    ) -> None:
        self._latency = latency
        self.terms = replace(TERMS, name=name, context_window=window)
        self._script = list(script)
        self.asked: list[float] = []

    async def complete(
        self, prompt: Prompt, note_sent: Callable[[bool], None] = lambda is_sent: None
    ) -> Reply:
        self.asked.append(anyio.current_time())
        step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        await asyncio.sleep(self._latency)
        if isinstance(step, float):
            await asyncio.sleep(step)
            return said("late")
        if isinstance(step, Exception):
            raise step
        return step


class Bench:
    """An extraction over models, with what it accounted at hand."""

    def __init__(self, *models: StagedModel, slots: int = 4) -> None:
        self.lanes = [ModelLane(model, ENCODING, ModelHealth(model.terms.name)) for model in models]
        self.shared = SharedModelState(slots, asyncio.Semaphore(slots))
        self.calls: list[LlmCall] = []
        self.ledger_seconds = 0.0
        self.ledger_error: StoreUnavailable | None = None
        self.stop: str | None = None

    def asker(self, seconds: float) -> LaneAsker:
        ends, fields = anyio.current_time() + seconds, {"handle": "h", "extract_id": "e"}
        rules = CallRules(ends, self._book, StillClock(1000), lambda: self.stop, log_fields=fields)
        return LaneAsker(self.lanes, self.shared, rules)

    def is_available(self, lane: int = 0) -> bool:
        return self.lanes[lane].health.is_available(anyio.current_time())

    async def _book(self, call: LlmCall) -> None:
        await asyncio.sleep(self.ledger_seconds)
        if self.ledger_error is not None:
            raise self.ledger_error
        self.calls.append(call)

    @property
    def errors(self) -> list[str | None]:
        return [call.error for call in self.calls]

    @property
    def models(self) -> list[str]:
        return [call.model for call in self.calls]


async def failure(asker: LaneAsker, prompt: Prompt = PROMPT, seconds: float | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await asker.ask(prompt, seconds)
    return caught.value


@contextmanager
def within(most: float, least: float = 0.0) -> Iterator[None]:
    started = anyio.current_time()
    yield
    assert least <= anyio.current_time() - started <= most


@pytest.fixture(autouse=True)
async def no_leaks() -> AsyncIterator[None]:
    """Afterwards nothing runs that did not run before."""
    before = running()
    yield
    for _ in range(20):
        await asyncio.sleep(0)
    assert running() <= before


# One attempt


async def test_a_reply_is_booked_with_all_that_is_known_of_it() -> None:
    bench = Bench(StagedModel(said("Three.", LlmTokens(20, 4, 10))))
    asker = bench.asker(2)
    assert (await asker.ask(PROMPT)).text == "Three."
    (call,) = bench.calls
    cost = (10 * 2.0 + 10 * 1.0 + 4 * 10.0) / 1e6
    assert call == LlmCall(
        "a-provider", "first", 1000, call.latency, "stop", LlmTokens(20, 4, 10), cost, None
    )
    assert 0 <= call.latency < 500
    assert asker.usage == LlmUsage(1, 20, 4, cost)


@pytest.mark.parametrize(
    ("told", "booked"),
    [
        (None, LlmTokens(SIZE, 2)),
        (LlmTokens(SIZE * 20, 5), LlmTokens(SIZE, 2)),
        (LlmTokens(SIZE * 10, 5), LlmTokens(SIZE * 10, 5)),
        (LlmTokens(1, 5), LlmTokens(1, 5)),
        (LlmTokens(SIZE, 0), LlmTokens(SIZE, 2)),
        (LlmTokens(SIZE, 32_001), LlmTokens(SIZE, 2)),
    ],
)
async def test_usage_that_cannot_be_true_is_counted_instead(
    told: LlmTokens | None, booked: LlmTokens
) -> None:
    assert ENCODING.count("Three.") == 2
    bench = Bench(StagedModel(said("Three.", told)))
    await bench.asker(2).ask(PROMPT)
    assert bench.calls[0].tokens == booked


async def test_far_too_few_tokens_are_not_believed() -> None:
    prompt = Prompt((Message(Role.USER, "many words " * 30_000),), 100)
    bench = Bench(StagedModel(said("Three.", LlmTokens(5999, 2)), window=100_000))
    await bench.asker(2).ask(prompt)
    assert bench.calls[0].tokens == LlmTokens(ENCODING.count("many words " * 30_000), 2)


# Two tries


async def test_what_may_help_is_tried_again_after_a_pause() -> None:
    bench = Bench(StagedModel(BUSY, said("Three.")))
    with within(1.1, least=1.0):
        assert (await bench.asker(5).ask(PROMPT)).text == "Three."
    assert bench.errors == ["busy", None]
    assert [call.tokens.input for call in bench.calls] == [0, SIZE]


async def test_a_prompt_has_two_tries_and_after_two_lost_prompts_nobody_waits() -> None:
    model = StagedModel(BUSY)
    bench = Bench(model)
    asker = bench.asker(60)
    with within(1.0 + 2 + 4):
        assert (await failure(asker)).detail == (await failure(asker)).detail == "busy"
    assert model.asked == [0.0, 1.0, 3.0, 7.0]
    with within(0):
        assert "left alone" in (await failure(asker)).detail
    assert asker.usage.llm_calls == 4


async def test_a_bad_reply_is_tried_once_more_at_once() -> None:
    bench = Bench(StagedModel(EMPTY))
    with within(0.0):
        assert isinstance(await failure(bench.asker(5)), ModelBadReply)
    assert bench.errors == ["empty", "empty"]
    # It had the prompt: that is paid for.
    assert [call.tokens.input for call in bench.calls] == [SIZE, SIZE]
    assert bench.is_available()


@pytest.mark.parametrize("refusal", [PromptDeclined("declined"), PromptRefused("refused (400)")])
async def test_a_prompt_that_is_refused_goes_to_the_next_model_and_says_nothing_of_the_first(
    refusal: ModelError,
) -> None:
    bench = Bench(StagedModel(refusal), StagedModel(said("Three."), name="second"))
    asker = bench.asker(5)
    with within(0.0):
        for _ in range(3):
            assert (await asker.ask(PROMPT)).text == "Three."
    assert bench.models == ["first", "second"] * 3
    assert bench.is_available()
    # Only what was read is paid for.
    assert bench.calls[0].tokens.input == (SIZE if isinstance(refusal, PromptDeclined) else 0)


async def test_a_refusal_is_not_tried_again_in_this_extraction() -> None:
    model = StagedModel(REFUSED)
    bench = Bench(model)
    asker = bench.asker(5)
    for _ in range(3):
        assert (await failure(asker)).detail == "refused"
    assert len(model.asked) == 1
    assert (await failure(bench.asker(5))).detail == "refused"
    assert len(model.asked) == 2


async def test_a_pause_that_is_asked_for_is_made() -> None:
    bench = Bench(StagedModel(ModelUnavailable("busy", 4.5), said("Three.")))
    with within(4.5, least=4.5):
        await bench.asker(20).ask(PROMPT)


async def test_a_pause_that_does_not_fit_is_not_waited_for_but_kept_up_to_a_minute() -> None:
    busy = StagedModel(ModelUnavailable("busy", 9999), said("Back."))
    bench = Bench(busy, StagedModel(said("Three."), name="second"))
    with within(0.0):
        assert (await bench.asker(60).ask(PROMPT)).text == "Three."
    assert bench.models == ["first", "second"]
    bench.lanes = bench.lanes[:1]
    with within(0.0):
        assert "left alone" in (await failure(bench.asker(60))).detail
    await anyio.sleep(60)
    assert (await bench.asker(60).ask(PROMPT)).text == "Back."


# A model that is left alone


async def test_pauses_double_to_half_a_minute_and_a_success_ends_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    bench = Bench(StagedModel(*[BUSY] * 8, said("Three."), BUSY))
    pauses = []
    for _ in range(4):
        await failure(bench.asker(60))
        pauses.append(bench.lanes[0].health.retry_at - anyio.current_time())
        await anyio.sleep(pauses[-1])
    # Where the pause before a second try is too long, the try is the next question's.
    assert pauses == [2, 8, 16, 30]
    assert (await failure(bench.asker(60))).detail == "busy"
    await anyio.sleep(30)
    await failure(bench.asker(60))
    await anyio.sleep(30)
    assert (await bench.asker(60).ask(PROMPT)).text == "Three."
    assert bench.lanes[0].health.retry_at == 0
    told = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert told == [
        ("WARNING", "Model 'first' failed and is left alone."),
        ("WARNING", "Model 'first' answers again."),
    ]
    assert caplog.records[0].fields == {"model": "first", "reason": "busy", "pause_seconds": 1.0}


async def test_failures_of_one_burst_count_once() -> None:
    bench = Bench(StagedModel(BUSY, latency=0.25), slots=8)
    asker = bench.asker(60)
    results = await asyncio.gather(*(failure(asker) for _ in range(8)))
    assert {error.detail for error in results} == {"busy"}
    # Two bursts: one second, then two.
    assert len(bench.calls) == 16
    assert bench.lanes[0].health.retry_at == 0.25 + 1 + 0.25 + 2


@pytest.mark.parametrize("step", [REFUSED, ContextExceeded("long"), EMPTY, HANGS])
async def test_what_tells_nothing_of_the_model_does_not_leave_it_alone(step: Step) -> None:
    bench = Bench(StagedModel(step))
    for _ in range(6):
        await failure(bench.asker(9.9))
    assert bench.is_available()


async def test_a_model_that_is_silent_for_long_is_left_alone() -> None:
    first, second = StagedModel(HANGS), StagedModel(said("Three."), name="second")
    bench = Bench(first, second)
    with within(20, least=20):
        assert (await bench.asker(40).ask(PROMPT)).text == "Three."
    asker = bench.asker(40)
    assert asker.terms.name == "second"
    with within(0):
        await asker.ask(PROMPT)


# Several models


async def test_the_next_model_is_asked_and_the_refused_one_left_out() -> None:
    first, second = StagedModel(REFUSED), StagedModel(said("Three."), name="second")
    bench = Bench(first, second)
    asker = bench.asker(5)
    assert asker.terms.name == "first"
    await asker.ask(PROMPT)
    await asker.ask(PROMPT)
    assert asker.terms.name == "second"
    assert bench.models == ["first", "second", "second"]


async def test_a_reply_bears_the_name_of_the_model_that_answered() -> None:
    bench = Bench(StagedModel(said("Two."), BUSY), StagedModel(said("Three."), name="second"))
    asker = bench.asker(5)
    assert [(await asker.ask(PROMPT)).model for _ in range(2)] == ["first", "second"]


async def test_the_bytes_of_replies_of_one_extraction_are_bounded() -> None:
    bench = Bench(StagedModel(Reply("Three.", "stop", tokens=TOKENS, received_bytes=40 << 20)))
    asker = bench.asker(60)
    for _ in range(2):
        assert (await asker.ask(PROMPT)).text == "Three."
    error = await failure(asker)
    assert (type(error), error.detail) == (
        ModelRefused,
        "the replies to this extraction have more than 64 MiB",
    )
    assert (await bench.asker(60).ask(PROMPT)).text == "Three."


async def test_the_last_error_is_raised_when_no_model_is_left() -> None:
    bench = Bench(StagedModel(REFUSED), StagedModel(EMPTY, name="second"))
    assert (await failure(bench.asker(5))).detail == "empty"


async def test_a_silent_model_leaves_time_for_the_next() -> None:
    bench = Bench(StagedModel(HANGS), StagedModel(0.3, name="second"))
    with within(1.3, least=1.3):
        assert (await bench.asker(2).ask(PROMPT)).text == "late"
    assert bench.errors == ["no answer in time", None]
    # It was sent, and may be charged.
    assert bench.calls[0].tokens.input == SIZE


async def test_a_prompt_past_the_window_is_for_the_caller_to_split() -> None:
    bench = Bench(StagedModel(ContextExceeded("too long")), StagedModel(said("Three."), name="second"))
    assert isinstance(await failure(bench.asker(5)), ContextExceeded)
    assert bench.errors == ["too long"]


async def test_a_model_with_a_smaller_window_is_not_sent_what_it_cannot_hold() -> None:
    second = StagedModel(said("Three."), name="second", window=1000)
    bench = Bench(StagedModel(REFUSED), second)
    asker = bench.asker(5)
    long = Prompt((Message(Role.USER, "word " * 950),), 100)
    assert isinstance(await failure(asker, long), ContextExceeded)
    assert second.asked == []
    await asker.ask(PROMPT)


@pytest.mark.parametrize("word", ["word ", "слово ", "\U0001f4be", "\ud800"])
async def test_no_model_is_sent_more_than_its_window_holds(word: str) -> None:
    model = StagedModel(said("Three.", None), window=10_000)
    words = 10_000 * (10_000 - 100) // ENCODING.count(word * 10_000)
    asker = Bench(model).asker(5)
    await asker.ask(Prompt((Message(Role.USER, word * (words - 100)),), 100))
    longer = Prompt((Message(Role.USER, word * (words + 100)),), 100)
    assert isinstance(await failure(asker, longer), ContextExceeded)
    assert len(model.asked) == 1


# Time


async def test_a_single_model_has_all_the_time_there_is() -> None:
    bench = Bench(StagedModel(1.6))
    assert (await bench.asker(2.0).ask(PROMPT)).text == "late"
    assert bench.errors == [None]


@pytest.mark.parametrize("seconds", [None, 0.4])
async def test_what_is_silent_ends_with_the_deadline(seconds: float | None) -> None:
    bench = Bench(StagedModel(HANGS))
    asker = bench.asker(0.5 if seconds is None else 20)
    with within((seconds or 0.5) + 0.2):
        error = await failure(asker, seconds=seconds)
    assert (type(error), error.detail) == (ModelUnavailable, "the deadline passed")
    assert set(bench.errors) == {"no answer in time"}


async def test_after_the_deadline_nothing_is_asked() -> None:
    model = StagedModel(said("Three."))
    bench = Bench(model)
    for asker, seconds in ((bench.asker(0), None), (bench.asker(-1), None), (bench.asker(5), 0.0)):
        assert (await failure(asker, seconds=seconds)).detail == "the deadline passed"
    assert model.asked == []


async def test_calls_wait_for_a_slot_and_no_longer_than_their_deadline() -> None:
    bench = Bench(StagedModel(0.3), slots=2)
    asker = bench.asker(5)
    with within(0.8, least=0.6):
        results = await asyncio.gather(
            *(asker.ask(PROMPT) for _ in range(4)), failure(bench.asker(0.2)), failure(asker, seconds=0.2)
        )
    assert len(bench.calls) == 4
    assert [error.detail for error in results[4:] if isinstance(error, ModelError)] == [
        "the deadline passed"
    ] * 2


async def test_no_slot_is_held_during_a_pause() -> None:
    busy = Bench(StagedModel(ModelUnavailable("busy", 0.5), said("Three.")), slots=1)
    other = Bench(StagedModel(said("Four.")))
    other.shared = busy.shared
    waiting = asyncio.create_task(busy.asker(5).ask(PROMPT))
    await asyncio.sleep(0.05)
    with within(0.2):
        await other.asker(5).ask(PROMPT)
    assert (await waiting).text == "Three."


# Cancelling and booking


@pytest.mark.parametrize("by", ["scope", "task", "task, twice"])
async def test_a_cancelled_call_is_booked_and_frees_its_slot(by: str) -> None:
    bench = Bench(StagedModel(HANGS, said("Three.")), slots=1)
    bench.ledger_seconds = 0.05
    asker = bench.asker(20)
    if by == "scope":
        with anyio.move_on_after(0.1) as scope:
            await asker.ask(PROMPT)
        assert scope.cancelled_caught
    else:
        call = asyncio.create_task(asker.ask(PROMPT))
        await asyncio.wait((call,), timeout=0.1)
        for _ in by.split(","):
            call.cancel()
            await asyncio.sleep(0)
        await asyncio.wait((call,))
        assert call.cancelled()
    await bench.shared.close()
    (booked,) = bench.calls
    assert (booked.error, booked.tokens) == ("cancelled", LlmTokens(SIZE, 0))
    assert booked.cost_usd == SIZE * 2.0 / 1e6
    assert booked.latency >= 90
    assert asker.usage == LlmUsage(1, SIZE, 0, booked.cost_usd)
    with within(0.2):
        await asker.ask(PROMPT)


async def test_a_fault_of_ours_is_not_booked_as_a_cancelled_call() -> None:
    bench = Bench(StagedModel(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        await bench.asker(20).ask(PROMPT)
    await bench.shared.close()
    assert bench.errors == ["internal error"]


async def test_a_slow_ledger_does_not_hold_up_who_was_cancelled() -> None:
    bench = Bench(StagedModel(HANGS))
    bench.ledger_seconds = 0.6
    with within(0.45), anyio.move_on_after(0.1):
        await bench.asker(20).ask(PROMPT)
    assert bench.calls == []
    await bench.shared.close()
    assert bench.errors == ["cancelled"]


async def test_being_cancelled_while_a_reply_is_booked_books_it_once() -> None:
    bench = Bench(StagedModel(said("Three.")))
    bench.ledger_seconds = 0.3
    with anyio.move_on_after(0.1):
        await bench.asker(20).ask(PROMPT)
    await bench.shared.close()
    assert bench.errors == [None]


async def test_a_ledger_that_fails_is_not_hidden() -> None:
    bench = Bench(StagedModel(said("Three."), HANGS), slots=1)
    bench.ledger_error = StoreUnavailable("full")
    asker = bench.asker(5)
    with pytest.raises(StoreUnavailable):
        await asker.ask(PROMPT)


async def test_an_entry_that_fails_after_its_caller_was_cancelled_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(StagedModel(said("Three.")))
    bench.ledger_seconds = 0.3
    bench.ledger_error = StoreUnavailable("full")
    with anyio.move_on_after(0.1) as scope:
        await bench.asker(20).ask(PROMPT)
    assert scope.cancelled_caught
    await bench.shared.close()
    await asyncio.sleep(0)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "A model call was not accounted.")
    assert record.fields == {"handle": "h", "extract_id": "e", "model": "first", "began": 1000}
    assert record.exc_info[1] is bench.ledger_error
    assert record.exc_info[2] is not None


async def test_a_reason_against_a_call_stops_it_before_it_begins() -> None:
    model = StagedModel(said("Three."))
    bench = Bench(model)
    asker = bench.asker(5)
    bench.stop = "the session's cap is reached"
    error = await failure(asker)
    assert (type(error), error.detail) == (ModelRefused, "the session's cap is reached")
    assert (model.asked, bench.calls, asker.usage) == ([], [], LlmUsage())
    bench.stop = None
    await asker.ask(PROMPT)


# Over HTTP


def pool(base_url: str, *names: str, key: str | None = "k", concurrency: int = 4, **terms: int) -> ModelPool:
    configs = [ModelConfig(replace(TERMS, name=name, **terms), base_url, key) for name in names or ("first",)]
    default = [config.terms.name for config in configs]
    return ModelPool(
        configs, default, tokenizer_of=lambda model: ENCODING, concurrency=concurrency, version="1"
    )


def models_of(backend: Backend, *names: str, concurrency: int = 4) -> ModelPool:
    return pool(backend.base_url, *names, concurrency=concurrency)


def asker_of(models: ModelPool, seconds: float, calls: list[LlmCall], names: Sequence[str] = ()) -> LaneAsker:
    async def book(call: LlmCall) -> None:
        calls.append(call)

    return models.asker(names, CallRules(anyio.current_time() + seconds, book, StillClock()))


@pytest.mark.parametrize("ends", ["cancelled", "no answer in time"])
async def test_a_request_that_was_not_sent_is_not_paid_for(ends: str) -> None:
    """The system's buffers take a part of 16 MB, and no process reads the rest."""
    calls: list[LlmCall] = []
    gone = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()

    async with listening(deaf, limit=1) as port:
        url = f"http://127.0.0.1:{port}/v1"
        models = pool(url, key=None, concurrency=1, context_window=32 << 20)
        asker = asker_of(models, 5 if ends == "cancelled" else 0.5, calls)
        with anyio.move_on_after(0.5 if ends == "cancelled" else 5), suppress(ModelUnavailable):
            await asker.ask(Prompt((Message(Role.USER, "word " * (3 << 20)),), 100))
        await models.close()
        gone.set()
    assert [(call.error, call.tokens.input, call.cost_usd) for call in calls] == [(ends, 0, 0)]


# All models of a process


async def test_models_are_asked_in_the_order_of_their_names() -> None:
    async with Backend() as backend:
        models = models_of(backend, "a", "b", "c")
        orders: dict[Sequence[str], str] = {(): "a", ("c", "a"): "c", ("x", "b"): "b", ("x",): "a"}
        assert {names: asker_of(models, 1, [], names).terms.name for names in orders} == orders
        await models.close()


@pytest.mark.parametrize("url", ["ftp://x", "scripts:", "http", "", "http:///v1", "http://h:99999"])
async def test_a_backend_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="SPILLGATE_LLM_BASE_URL") as caught:
        pool(url)
    assert url == "" or url not in str(caught.value) or url in ("http",)


async def test_the_policy_file_says_how_a_model_counts(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[models."gpt-4o"]\nencoding = "cl100k_base"\n')
    names = ("gpt-4o", "gpt-4", "m")
    settings = Settings(
        storage_url="memory:", llm_base_url="http://127.0.0.1:9", llm_models=names, policy_file=file
    )
    text = "Сколько частей?"
    async with open_runtime(settings) as runtime:
        counts = [asker_of(runtime.model_pool, 1, [], (name,)).count(text) for name in names]
    own, other = ENCODING.count(text), load_encoding("cl100k_base").count(text)
    assert counts == [other, other, own]
