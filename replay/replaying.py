"""Replays one run under each policy and baseline: what would have been shown, asked, found and paid."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from replay import baselines
from replay.bill import CALL_TOKENS, Asked, CountedRun, Money, OfferTime, Shown, Volume, bill, counted
from replay.figures import (
    MOST_LARGEST,
    MOST_LITERALS,
    Figures,
    Outcomes,
    PolicyFigures,
    Shared,
    ToolFigures,
    ToolSizes,
    end_of,
)
from replay.in_process import InProcessService, Plan, ReadText, subject_of
from replay.literals import plain, stands_in, without_line_numbers
from replay.runs import Result, Run, Turn
from replay.uses import Use, Uses, uses_of

IN_A_FILE = Plan("in a file", (("on_oversize", "store"), ("max_bytes", 12_288), ("preview", "none")))
"""How the service stores what Claude Code leaves in a file: a question about it stands for a search of that
file."""

Cutting = Callable[[str], baselines.Cut | None]


WHOLE = "whole"

_MORE = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class _View:
    """How one policy shows one result: the `text`, None if the result passes. `plan`: what is not shown can
    be asked for, as the service stores it under this plan."""

    text: ReadText | None = None
    plan: Plan | None = None


_PASSES = _View()


@dataclass(slots=True)
class _Way:
    """One policy or baseline: its views of all results."""

    label: str
    views: list[_View]
    definitions: int = 0
    last_results: int = 0
    is_shown: bool = True
    """False if only its cost by tool is needed, for the advice."""

    @property
    def first_stored(self) -> int | None:
        return next((number for number, view in enumerate(self.views) if view.plan), None)


@dataclass(slots=True)
class Replaying:
    """What is replayed. `plans` are sorted by cap, the smallest first, and begin with the policy in force:
    what passes under a cap passes under a larger one. `model` stands in for that of the transcripts."""

    in_force: Plan
    plans: Sequence[Plan] = ()
    model: str | None = None
    shows: bool = False
    candidates: Sequence[Sequence[Plan]] = ()
    """For the advice: by preview, plans sorted by cap."""
    variants: Sequence[Plan] = ()
    """The policy in force with one more key, each alone."""


async def replay(run: Run, service: InProcessService, replaying: Replaying) -> Figures:
    """The figures of one run."""
    return await _OneRun(run, service, replaying).figures()


class _OneRun:
    def __init__(self, run: Run, service: InProcessService, replaying: Replaying) -> None:
        self._run = run
        self._service = service
        self._replaying = replaying
        self._results = list(run.results)
        self._uses: Uses = uses_of(run)
        model = replaying.model
        self._tokenizer = service.tokenizer(model or next(iter(sorted(run.models)), None))
        self._counted: CountedRun = counted(run, self._tokenizer, model)
        self._result_tokens = [
            tokens
            for step, tokens in zip(run.steps, self._counted.entering, strict=True)
            if isinstance(step, Result)
        ]
        self._result_steps = [at for at, step in enumerate(run.steps) if isinstance(step, Result)]
        self._subjects = [subject_of(result, run.client) for result in self._results]
        self._figures = Figures()

    async def figures(self) -> Figures:
        figures_of_run, run = self._figures, self._run
        end = figures_of_run.by_end[end_of(run.passed)] = self._outcomes()
        figures_of_run.clients[run.client or run.format] += 1
        figures_of_run.models.update(run.models or ("not named",))
        figures_of_run.runs_with_two_models = int(len(run.models) > 1)
        figures_of_run.runs_without_results = int(not self._results)
        self._sizes()
        whole = Shown(self._result_tokens)
        recorded, volume = bill(self._counted, whole, 0, OfferTime.HOOK)
        end.recorded = recorded
        self._billed(recorded, volume)
        for way in await self._baselines():
            end.policies[way.label] = await self._judged(way, recorded)
        await self._service.end_plan(IN_A_FILE)
        replaying = self._replaying
        alone = ([plan] for plan in (replaying.in_force, *replaying.variants))
        for plans in (*alone, replaying.plans, *replaying.candidates):
            passing = [False] * len(self._results)
            for plan in plans:
                way = await self._planned(plan, passing)
                way.is_shown = plans not in replaying.candidates
                end.policies[way.label] = await self._judged(way, recorded)
                await self._service.end_plan(plan)
        await self._service.end_run()
        return figures_of_run

    def _outcomes(self) -> Outcomes:
        quotes = sum(use.is_quote for uses in self._uses.by_step.values() for use in uses)
        return Outcomes(
            runs=1,
            priced_runs=int(all(one.dollars is not None for one in self._counted.prices)),
            turns=sum(1 for _ in self._run.turns),
            results=len(self._results),
            bytes=sum(len(one.text.encode()) for one in self._results),
            tokens=sum(self._result_tokens),
            cut_results=sum(one.is_cut for one in self._results),
            uses=len(self._uses) - quotes,
            quotes=quotes,
        )

    def _sizes(self) -> None:
        every_use = chain.from_iterable(self._uses.by_step.values())
        uses = Counter(use.result for use in every_use if not use.is_quote)
        for number, (result, subject) in enumerate(zip(self._results, self._subjects, strict=True)):
            sizes = self._figures.tools.setdefault(result.tool, ToolSizes())
            size = len(result.text.encode())
            sizes.results += 1
            sizes.bytes += size
            sizes.bypassed += self._service.bypasses(subject, self._replaying.in_force)
            sizes.largest = sorted((*sizes.largest, size), reverse=True)[:MOST_LARGEST]
            sizes.uses += uses[number]

    def _billed(self, recorded: Money, volume: Volume) -> None:
        """Prices the billed tokens as the bill prices its own, to compare both."""
        billed = self._counted.billed
        if billed is None:
            return
        model_bill, billed_bill = Money(), Money()
        model_bill += recorded
        for at, step in enumerate(self._run.steps):
            if isinstance(step, Turn) and step.usage is not None:
                prices, usage = self._counted.prices[at], step.usage
                paid = prices.write * usage.cache_write + usage.input * min(1.0, prices.write)
                paid += prices.read * usage.cache_read + prices.output * usage.output
                billed_bill.add(paid, prices)
        uncached = int(not billed.read and all(one.read == one.write for one in self._counted.prices))
        volume = Volume(volume.written, volume.read, self._counted.counted_output)
        if uncached:
            volume = Volume(volume.written + volume.read, 0, volume.output)
        self._figures.billed = Shared(1, volume, billed, model_bill, billed_bill, uncached)

    async def _baselines(self) -> list[_Way]:
        ways = [await self._baseline(label, cut) for label, cut in baselines.BASELINES.items()]
        kept = [_PASSES] * len(self._results)
        ways.append(_Way(f"last {baselines.KEPT_RESULTS} results", kept, last_results=baselines.KEPT_RESULTS))
        return [*ways, self._whole()] if any(result.whole for result in self._results) else ways

    async def _planned(self, plan: Plan, passing: list[bool]) -> _Way:
        """What is `passing` is not governed again: it passed under a smaller cap. Updates `passing`."""
        views = []
        for number, subject in enumerate(self._subjects):
            text = None if passing[number] else await self._service.shown(subject, plan)
            passing[number] = text is None
            views.append(_PASSES if text is None else _View(text, plan if text.is_stored else None))
        return _Way(plan.label, views, self._service.definition_tokens(plan))

    async def _baseline(self, label: str, cut: Cutting) -> _Way:
        views = []
        for result, subject in zip(self._results, self._subjects, strict=True):
            part, view = cut(result.text), _PASSES
            if part is not None:
                stored = await self._service.shown(subject, IN_A_FILE) if part.has_file else None
                is_stored = stored is not None and stored.is_stored
                view = _View(self._text(part.text), IN_A_FILE if is_stored else None)
            views.append(view)
        return _Way(label, views)

    def _whole(self) -> _Way:
        """Returns the results without the cuts of the client, if the transcript has the whole results."""
        texts = (result.whole for result in self._results)
        return _Way(WHOLE, [_PASSES if text is None else _View(self._text(text)) for text in texts])

    def _text(self, text: str) -> ReadText:
        return ReadText(plain(text), self._tokenizer.count(text), len(text.encode()))

    async def _judged(self, way: _Way, recorded: Money) -> PolicyFigures:
        figures = PolicyFigures()
        for number, (result, view) in enumerate(zip(self._results, way.views, strict=True)):
            text = view.text
            figures.bytes_shown += len(result.text.encode()) if text is None else text.bytes
            if text is not None:
                figures.replaced += 1
                tool = figures.tools.setdefault(result.tool, ToolFigures())
                tool.replaced += 1
                self._charge(tool, text.tokens - self._result_tokens[number], self._result_steps[number])
        tokens = [
            tokens if view.text is None else view.text.tokens
            for view, tokens in zip(way.views, self._result_tokens, strict=True)
        ]
        asked = await self._asked(way, tokens, figures)
        if way.is_shown:
            cleared = self._tokenizer.count(baselines.CLEARED)
            shown = Shown(tokens, asked, way.first_stored, way.last_results, cleared)
            self._bill(way, shown, recorded, figures)
        if way.last_results:
            figures.replaced = max(0, len(self._results) - way.last_results)
        return figures

    def _bill(self, way: _Way, shown: Shown, recorded: Money, figures: PolicyFigures) -> None:
        """Where no tool is offered, all offers cost the same; a late one does so where nothing is stored."""
        bills: dict[OfferTime, Money] = {}
        for offer in (OfferTime.HOOK, OfferTime.LATE, OfferTime.ALWAYS):
            is_offered = offer is OfferTime.ALWAYS or (
                offer is OfferTime.LATE and shown.first_stored is not None
            )
            if offer is OfferTime.HOOK or (way.definitions and is_offered):
                money, _ = bill(self._counted, shown, way.definitions, offer)
            else:
                money = bills[OfferTime.HOOK]
            bills[offer] = money
            figures.bills[offer] = replace(money)
            figures.dearer[offer] = Money(
                money.relative > recorded.relative * _MORE, money.dollars > recorded.dollars * _MORE
            )

    def _charge(self, tool: ToolFigures, tokens: int, step: int) -> None:
        prices = self._counted.prices[step]
        tool.cost.add(tokens * self._counted.later[step], prices)

    async def _asked(self, way: _Way, tokens: Sequence[int], figures: PolicyFigures) -> Asked:
        """Classifies each use, and returns the questions that have to be asked."""
        asked: dict[int, list[list[int]]] = {}
        answers: dict[int, list[str]] = {}
        saved = {
            step: before - after
            for step, before, after in zip(self._result_steps, self._result_tokens, tokens, strict=True)
        }
        for step, uses in self._uses.by_step.items():
            missing = [use for use in uses if not self._is_visible(way, use, step)]
            figures.visible += sum(not use.is_quote for use in uses if use not in missing)
            figures.quotes_broken += sum(use.is_quote for use in missing)
            needed = [use for use in missing if not _in_any(use, answers.get(use.result, ()))]
            rounds = await self._rounds(way, step, needed, answers) if needed else []
            if rounds:
                asked[step] = rounds
                figures.follow_ups += 1
            for use in missing:
                tool = figures.tools.setdefault(self._results[use.result].tool, ToolFigures())
                tool.quotes_broken += use.is_quote
                if way.is_shown:
                    await self._classify(way, use, answers, figures)
            context = self._counted.prefix + sum(self._counted.entering[:step])
            context -= sum(one for at, one in saved.items() if at < step)
            self._charge_rounds(figures, rounds, step, context, needed)
        return asked

    async def _rounds(
        self, way: _Way, step: int, needed: Sequence[Use], answers: dict[int, list[str]]
    ) -> list[list[int]]:
        """Asks one question for each result that is needed, all in one turn. Asks in a second turn for the
        results whose answer does not hold everything that is needed."""
        results = [one for one in dict.fromkeys(use.result for use in needed) if way.views[one].plan]
        if not results:
            return []
        first = {}
        for result in results:
            plan = way.views[result].plan
            assert plan is not None
            answer = await self._service.answer(self._subjects[result], self._uses.questions[step], plan)
            answers.setdefault(result, []).append(answer.plain)
            first[result] = answer.tokens
        again = {
            use.result for use in needed if use.result in first and not _in_any(use, answers[use.result])
        }
        rounds = [list(first.values())]
        return [*rounds, [first[result] for result in sorted(again)]] if again else rounds

    def _charge_rounds(
        self,
        policy: PolicyFigures,
        rounds: Sequence[Sequence[int]],
        step: int,
        context: int,
        needed: Sequence[Use],
    ) -> None:
        """Divides what the questions cost among the tools whose results are asked about. `context` are the
        tokens before the step."""
        if not rounds:
            return
        prices, later = self._counted.prices[step], self._counted.later
        tools = [self._results[result].tool for result in dict.fromkeys(use.result for use in needed)]
        before = later[step] + prices.read
        cost = 0.0
        for answers in rounds:
            written = CALL_TOKENS * len(answers)
            cost += prices.read * context + prices.output * written + (written + sum(answers)) * before
        for tool in tools:
            figures = policy.tools.setdefault(tool, ToolFigures())
            figures.follow_ups += 1
            figures.cost.add(cost / len(tools), prices)

    async def _classify(
        self, way: _Way, use: Use, answers: dict[int, list[str]], figures: PolicyFigures
    ) -> None:
        view = way.views[use.result]
        if _in_any(use, answers.get(use.result, ())):
            where = "1 call"
        elif view.plan and await self._service.holds(
            self._subjects[use.result], use.literal, view.plan, is_quote=use.is_quote
        ):
            where = "found"
        else:
            where = "lost"
        if not use.is_quote:
            figures.one_call += where == "1 call"
            figures.findable += where == "found"
            figures.lost += where == "lost"
        shown = self._figures.literals
        if (
            self._replaying.shows
            and way.label == self._replaying.in_force.label
            and len(shown) < MOST_LITERALS
        ):
            shown.append((self._results[use.result].tool, where, use.literal))

    def _is_visible(self, way: _Way, use: Use, step: int) -> bool:
        if way.last_results:
            before = sum(at < step for at in self._result_steps)
            return any(number >= before - way.last_results for number in use.results or (use.result,))
        views = [way.views[number] for number in use.results or (use.result,)]
        return any(view.text is None or _holds(use, view.text.plain) for view in views)


def _holds(use: Use, text: str) -> bool:
    return use.literal in without_line_numbers(text) if use.is_quote else stands_in(use.literal, text)


def _in_any(use: Use, texts: Iterable[str]) -> bool:
    return any(_holds(use, text) for text in texts)
