"""The bill of a run: what enters the context is written to the cache once and read by each later request."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from content.tokens import count_in_slices
from domain.ports import Tokenizer
from replay.literals import strings
from replay.prices import Prices, prices_of
from replay.runs import Input, Result, Run, ToolUse, Turn
from replay.sums import Addable

CALL_TOKENS = 60
"""Output of a turn that asks a question."""

_PARTS, _DOLLAR_PARTS = 1 << 16, 1 << 36


class OfferTime(StrEnum):
    """How the model gets the tools. `always`: in every request. `late`: from the first stored result on, when
    the changed list makes the provider write the whole prefix again. `hook`: none, the agent's shell asks."""

    ALWAYS = "always"
    LATE = "late"
    HOOK = "hook"


@dataclass(slots=True)
class Money:
    """`relative`: in tokens of fresh input. `dollars`: of the requests whose model has a known price."""

    relative: float = 0.0
    dollars: float = 0.0

    def add(self, relative: float, prices: Prices) -> None:
        self.relative += relative
        self.dollars += relative * (prices.dollars or 0.0)

    def __iadd__(self, other: "Money") -> "Money":
        """Adds multiples of powers of two, so that the sum of many runs is exact, and the same in any
        order."""
        self.relative += round(other.relative * _PARTS) / _PARTS
        self.dollars += round(other.dollars * _DOLLAR_PARTS) / _DOLLAR_PARTS
        return self


@dataclass(slots=True)
class Volume(Addable):
    """Tokens of all requests: written to the cache, or fresh; read from it; and output."""

    written: int = 0
    read: int = 0
    output: int = 0


@dataclass(slots=True)
class CountedRun:
    """A run with its tokens. By step: `entering` are those that enter the context, `output` those that the
    model wrote, and `prices` are those of the turn's model. `prefix` is what the client sent before the
    first message: the first request's billed input, less what the transcript has of it."""

    run: Run
    entering: list[int]
    output: list[int]
    prices: list[Prices]
    prefix: int = 0
    billed: Volume | None = None
    counted_output: int = 0
    later: list[float] = field(default_factory=list)
    """By step, the total cost of a token that enters there, relative to fresh input."""


def counted(run: Run, tokenizer: Tokenizer, model: str | None) -> CountedRun:
    """Counts the tokens of each step once. `model` stands in for the run's own."""
    entering, output, prices = [], [], []
    is_cached = _is_cached(run)
    counted_output = 0
    models = Counter(turn.model for turn in run.turns if turn.model)
    usual = run.model or next((name for name, _ in models.most_common(1)), None)
    for step in run.steps:
        written = 0
        if isinstance(step, Turn):
            turn_tokens = tokenizer.count("\n".join((step.text, *map(_written, step.calls))))
            written = turn_tokens + tokenizer.count(step.thinking)
            counted_output += written
            entering.append(turn_tokens)
        else:
            # In slices, because the tokens of a large result would take twice its bytes.
            entering.append(count_in_slices(tokenizer, step.text))
        if isinstance(step, Turn) and step.usage is not None and step.usage.output:
            written = step.usage.output
        known = prices_of(model or (step.model if isinstance(step, Turn) else None) or usual)
        prices.append(known if is_cached else known.uncached)
        output.append(written)
    counted_run = CountedRun(run, entering, output, prices, counted_output=counted_output)
    counted_run.prefix = _prefix(run, entering)
    counted_run.billed = _billed(run)
    counted_run.later = _later(counted_run)
    return counted_run


def _written(call: ToolUse) -> str:
    return "\n".join((call.tool, *strings(call.arguments)))


def _is_cached(run: Run) -> bool:
    """False if the provider billed several requests and none of them read from a cache."""
    usages = [turn.usage for turn in run.turns if turn.usage is not None]
    return len(usages) < 2 or any(usage.cache_read or usage.cache_write for usage in usages)


def _prefix(run: Run, entering: Sequence[int]) -> int:
    before = 0
    for step, tokens in zip(run.steps, entering, strict=True):
        if isinstance(step, Turn):
            return max(0, step.usage.total_input - before) if step.usage is not None else 0
        before += tokens
    return 0


def _billed(run: Run) -> Volume | None:
    """Returns None unless each turn has its usage."""
    usages = [turn.usage for turn in run.turns]
    known_usages = [usage for usage in usages if usage is not None]
    if not known_usages or len(known_usages) < len(usages):
        return None
    return Volume(
        sum(usage.input + usage.cache_write for usage in known_usages),
        sum(usage.cache_read for usage in known_usages),
        sum(usage.output for usage in known_usages),
    )


def _later(counted_run: CountedRun) -> list[float]:
    """The first request after a token's entry writes it, each later one reads it."""
    costs, ahead = [0.0] * len(counted_run.run.steps), 0.0
    following: Prices | None = None
    for step in range(len(costs) - 1, -1, -1):
        costs[step] = following.write + ahead - following.read if following else 0.0
        if isinstance(counted_run.run.steps[step], Turn):
            following = counted_run.prices[step]
            ahead += following.read
    return costs


class _Context:
    """What a model is sent: `cached` are the segments that the provider has in its cache."""

    def __init__(self) -> None:
        self.segments: list[int] = []
        self._read = 0
        self._fresh = 0
        self._cached = 0

    def add(self, tokens: int) -> None:
        self.segments.append(tokens)
        self._fresh += tokens

    def change(self, segment: int, tokens: int) -> None:
        """Changes a segment. The segments after it must be written to the cache again."""
        self.segments[segment] = tokens
        self._cached = min(self._cached, segment)
        self._read = sum(self.segments[: self._cached])
        self._fresh = sum(self.segments[self._cached :])

    def request(self, prices: Prices, money: Money, volume: Volume) -> None:
        money.add(prices.write * self._fresh + prices.read * self._read, prices)
        volume.written += self._fresh
        volume.read += self._read
        self._read, self._fresh, self._cached = self._read + self._fresh, 0, len(self.segments)


Asked = Mapping[int, Sequence[Sequence[int]]]
"""By step: the rounds of questions that are asked before it, each with the tokens of its answers."""


@dataclass(slots=True)
class Shown:
    """What a policy shows of a run: by result, its tokens; and the questions that it causes. `first_stored`
    is the number of the first stored result, None if nothing is stored. `most_results`: older ones are
    cleared, 0 for none."""

    tokens: Sequence[int]
    asked: Asked = field(default_factory=dict)
    first_stored: int | None = None
    most_results: int = 0
    cleared_tokens: int = 0


def bill(counted: CountedRun, shown: Shown, definitions: int, offer: OfferTime) -> tuple[Money, Volume]:
    """The bill of the run as the policy shows it."""
    money, volume, context = Money(), Volume(), _Context()
    context.add(counted.prefix)
    context.add(definitions if offer is OfferTime.ALWAYS else 0)
    number, held = 0, []
    for at, step in enumerate(counted.run.steps):
        match step:
            case Input():
                context.add(counted.entering[at])
            case Result():
                held.append(len(context.segments))
                context.add(shown.tokens[number])
                if number == shown.first_stored and offer is OfferTime.LATE:
                    context.change(1, definitions)
                if 0 < shown.most_results < len(held):
                    context.change(held.pop(0), shown.cleared_tokens)
                number += 1
            case Turn():
                prices = counted.prices[at]
                for answers in shown.asked.get(at, ()):
                    context.request(prices, money, volume)
                    written = CALL_TOKENS * len(answers)
                    money.add(prices.output * written, prices)
                    volume.output += written
                    context.add(written + sum(answers))
                context.request(prices, money, volume)
                money.add(prices.output * counted.output[at], prices)
                volume.output += counted.output[at]
                context.add(counted.entering[at])
    return money, volume
