"""What to do: for each tool the cap and preview that would have cost least, as a policy file to paste."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import escape

from replay.bill import Money
from replay.figures import Outcomes, ToolFigures
from replay.in_process import Plan
from replay.plans import cap_of, preview_of

LEAST_SHARE = 0.002
"""The least share of the whole bill that a cap must save for a tool."""


LEAST_REPLACED = 5
"""The least number of results of a tool that a cap must have replaced. Fewer do not predict the next ones."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for one tool. `plan` is None: leave the tool alone. `saved` excludes the definitions of
    tools."""

    tool: str
    plan: Plan | None
    saved: Money
    replaced: int
    follow_ups: int


def advice(total: Outcomes, plans: Iterable[Plan]) -> list[Advice]:
    """The tools of which the smallest cap replaced some results, what saves most first. Of two plans that
    cost the same, the one with the larger cap; none that hides a text that was edited. Costs are in the unit
    that is printed."""
    plans = sorted(plans, key=cap_of, reverse=True)
    by_label = {
        plan.label: total.policies[plan.label].tools for plan in plans if plan.label in total.policies
    }
    tools = {
        tool
        for by_tool in by_label.values()
        for tool, figures in by_tool.items()
        if figures.replaced >= LEAST_REPLACED
    }
    advices = [
        _best(
            tool, [(plan, by_label[plan.label].get(tool)) for plan in plans if plan.label in by_label], total
        )
        for tool in tools
    ]
    return sorted(advices, key=lambda one: (-total.amount(one.saved), one.tool))


def _best(tool: str, tried: Sequence[tuple[Plan, ToolFigures | None]], total: Outcomes) -> Advice:
    costs = [
        (plan, figures)
        for plan, figures in tried
        if figures is not None and figures.replaced >= LEAST_REPLACED and not figures.quotes_broken
    ]
    if costs:
        plan, figures = min(costs, key=lambda one: total.amount(one[1].cost))
        if -total.amount(figures.cost) > LEAST_SHARE * total.amount(total.recorded):
            saved = Money(-figures.cost.relative, -figures.cost.dollars)
            return Advice(tool, plan, saved, figures.replaced, figures.follow_ups)
    return Advice(tool, None, Money(), 0, 0)


def policy_file(advised: Sequence[Advice]) -> str:
    """Returns TOML. A tool that is left alone passes, whatever its size."""
    lines = []
    for one in advised:
        if one.plan is None:
            continue
        lines.append(_header(one.tool))
        lines.append(f"max_bytes = {cap_of(one.plan)}")
        if preview := preview_of(one.plan):
            lines.append(f'preview = "{preview}"')
        lines.append("")
    alone = [one.tool for one in advised if one.plan is None]
    for tool in alone:
        lines += [_header(tool), "bypass = true  # leave it alone", ""]
    return "\n".join(lines)


def _header(tool: str) -> str:
    """Returns the table of exactly this tool: its name must not be read as a glob."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", tool):
        return f"[tools.{tool}]"
    name = json.dumps(escape(tool), ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[tools.{name}]"
