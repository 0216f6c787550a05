"""The report as JSON. Its members are described in docs/worth.md."""

import json
from dataclasses import asdict
from typing import Any

from replay.advice import policy_file
from replay.bill import Money, OfferTime
from replay.figures import Outcomes, PolicyFigures
from replay.plans import cap_of, preview_of
from replay.reports.summary import CAVEAT, ReplaySummary


def text(summary: ReplaySummary) -> str:
    return json.dumps(document(summary), indent=2, ensure_ascii=False) + "\n"


def document(summary: ReplaySummary) -> dict[str, Any]:
    figures, notes = summary.figures, summary.notes
    report: dict[str, Any] = {
        "version": 1,
        "note": CAVEAT,
        "unit": "dollars" if summary.is_priced else "tokens of fresh input",
        "read": {
            "files": notes.files,
            "formats": dict(notes.formats),
            "unknown_records": dict(notes.unknown),
            "faults": dict(notes.faults),
        },
        "models": dict(figures.models),
        "clients": dict(figures.clients),
        "runs_with_two_models": figures.runs_with_two_models,
        "runs_without_results": figures.runs_without_results,
        "total": _outcomes(summary.total, summary),
        "by_end": {end: _outcomes(one, summary) for end, one in figures.by_end.items()},
        "bill_by_cap": [
            {"max_bytes": cap_of(plan), **_bills(summary.total.policies[plan.label], summary)}
            for plan in summary.caps
        ],
        "tools": {name: asdict(one) for name, one in figures.tools.items()},
        "advice": [
            {
                "tool": one.tool,
                "max_bytes": None if one.plan is None else cap_of(one.plan),
                "preview": None if one.plan is None else preview_of(one.plan) or None,
                "saved": _money(one.saved),
                "replaced": one.replaced,
                "follow_ups": one.follow_ups,
            }
            for one in summary.advised
        ],
        "policy_file": policy_file(summary.advised),
    }
    if figures.billed.runs:
        report["billed"] = asdict(figures.billed)
    if summary.shows:
        names = ("tool", "found", "literal")
        report["literals"] = [dict(zip(names, one, strict=True)) for one in figures.literals]
    return report


def _outcomes(outcomes: Outcomes, summary: ReplaySummary) -> dict[str, Any]:
    names = ("runs", "turns", "results", "bytes", "tokens", "cut_results", "uses", "quotes", "priced_runs")
    return {
        **{name: getattr(outcomes, name) for name in names},
        "bill_as_recorded": _money(outcomes.recorded),
        "policies": {label: _policy(outcomes.policies[label], summary) for label in summary.rows},
    }


_COUNTS = (
    "replaced", "bytes_shown", "visible", "one_call", "findable", "lost", "quotes_broken", "follow_ups",
)  # fmt: skip


def _policy(figures: PolicyFigures, summary: ReplaySummary) -> dict[str, Any]:
    return {**{name: getattr(figures, name) for name in _COUNTS}, **_bills(figures, summary)}


def _bills(figures: PolicyFigures, summary: ReplaySummary) -> dict[str, Any]:
    return {
        "bills": {offer.value: _money(figures.bills[offer]) for offer in OfferTime},
        "runs_that_cost_more": {
            offer.value: int(summary.amount(figures.dearer[offer])) for offer in OfferTime
        },
    }


def _money(money: Money) -> dict[str, float]:
    return {"tokens": round(money.relative), "dollars": round(money.dollars, 6)}
