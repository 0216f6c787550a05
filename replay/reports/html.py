"""The report as one HTML page: no script, no request, light and dark."""

from collections.abc import Iterator, Sequence
from html import escape

from replay.advice import policy_file
from replay.bill import OfferTime
from replay.plans import cap_of
from replay.reports import tables
from replay.reports.summary import CAVEAT, RECORDED, ReplaySummary, billed_line, faults, heads, to_do, tokens
from replay.reports.tables import USE_COLUMNS, ReportTable

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --line: #d5dae0; --soft: #5b6672;
  --a: #2f6fb2; --b: #3d9a72; --c: #c98a1b; --d: #b8443c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --paper: #15181c; --line: #363d45;
  --soft: #98a3ae; --a: #6fa8e0; --b: #6cc39d; --c: #e0b155; --d: #e2776f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .7rem; border-bottom: 1px solid var(--line); }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.note { color: var(--soft); }
svg { width: 100%; height: auto; } text { fill: var(--ink); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); } pre { border: 1px solid var(--line); padding: .8rem; overflow-x: auto; }
.key { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 1rem; }
"""

_COLORS = ("--a", "--b", "--c", "--d")
_WIDTH = 900
_LEFT = 190


def text(summary: ReplaySummary) -> str:
    body = "\n".join(_sections(summary))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Spillgate replay</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _sections(summary: ReplaySummary) -> Iterator[str]:
    yield "<h1>Spillgate replay</h1>"
    yield "".join(f"<p>{escape(line)}</p>" for line in heads(summary))
    yield _table(tables.uses(summary))
    yield _plot_of_uses(summary)
    yield _table(tables.bills(summary))
    if line := billed_line(summary):
        yield f"<p>{escape(line)}</p>"
    yield "<h2>The bill by cap</h2>"
    yield _plot_of_bills(summary)
    if (by_end := tables.by_end(summary)) is not None:
        yield _table(by_end)
    yield _table(tables.tools(summary))
    yield _table(tables.largest(summary))
    yield "<h2>What to do</h2>"
    yield f"<p>{escape(to_do(summary))}</p>"
    if any(one.plan is not None for one in summary.advised):
        yield f"<pre>{escape(policy_file(summary.advised))}</pre>"
    if lines := faults(summary.notes):
        yield "<h2>What could not be read</h2>"
        yield "".join(f"<p>{escape(line)}</p>" for line in lines)
    if summary.shows:
        rows = [(tool, (where, literal)) for tool, where, literal in summary.figures.literals]
        yield _table(ReportTable("Used and not shown", "tool", ("found", "literal"), rows))


def _table(table: ReportTable) -> str:
    names = [table.title, *table.columns]
    if table.groups:
        names[1:] = [f"{group}: {name}" for group in table.groups for name in table.columns]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in (label, *cells))}</tr>"
        for label, cells in table.rows
    )
    return (
        f"<h2>{escape(table.heading)}</h2>"
        f'<div class="scroll" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<p class="note">{escape(" ".join(table.legend))}</p>'
    )


def _key(names: Sequence[str]) -> str:
    marks = (
        f'<span class="key" style="background: var({color})"></span>{escape(name)}'
        for name, color in zip(names, _COLORS, strict=False)
    )
    return f'<p class="note">{"".join(marks)}</p>'


def _plot_of_uses(summary: ReplaySummary) -> str:
    """A bar for each policy, parted by where its uses were found."""
    height = 26
    parts = []
    for at, label in enumerate(summary.rows):
        one, x, y = summary.total.policies[label], float(_LEFT), at * height
        parts.append(f'<text x="0" y="{y + 16}">{escape(label)}</text>')
        for count, color in zip((one.visible, one.one_call, one.findable, one.lost), _COLORS, strict=True):
            width = count / max(1, summary.total.uses) * (_WIDTH - _LEFT)
            parts.append(
                f'<rect x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="16" fill="var({color})">'
                f"<title>{count:,}</title></rect>"
            )
            x += width
    names = USE_COLUMNS[1:5]
    return _svg(len(summary.rows) * height, parts, "Where uses were found, by policy") + _key(names)


def _plot_of_bills(summary: ReplaySummary) -> str:
    """A line for each way to offer the tools: the bill over the cap. Dashed: the bill as recorded."""
    recorded = summary.amount(summary.total.recorded)
    bills = [
        [summary.amount(summary.total.policies[plan.label].bills[offer]) for plan in summary.caps]
        for offer in OfferTime
    ]
    most = max([recorded, *(amount for line in bills for amount in line)], default=0.0) or 1.0
    height, step = 260, (_WIDTH - 120) / max(1, len(summary.caps) - 1)

    def place(at: int, amount: float) -> str:
        return f"{80 + at * step:.1f},{height - 40 - amount / most * (height - 60):.1f}"

    parts = []
    for share in (0.0, 0.5, 1.0):
        y = height - 40 - share * (height - 60)
        label = f"${most * share:,.2f}" if summary.is_priced else tokens(most * share)
        parts.append(f'<line class="grid" x1="80" x2="{_WIDTH - 40}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="0" y="{y + 4:.1f}">{label}</text>')
    for at, plan in enumerate(summary.caps):
        x = 80 + at * step
        parts.append(f'<text x="{x:.1f}" y="{height - 14}" text-anchor="middle">{cap_of(plan):,}</text>')
    ends = f"{place(0, recorded)} {place(max(1, len(summary.caps) - 1), recorded)}"
    parts.append(f'<polyline points="{ends}" fill="none" stroke="var(--soft)" stroke-dasharray="5 4"/>')
    for line, color in zip(bills, _COLORS, strict=False):
        points = " ".join(place(at, amount) for at, amount in enumerate(line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="var({color})" stroke-width="2"/>')
    note = f'<p class="note">Over the cap in bytes. Dashed: {RECORDED}. {CAVEAT}</p>'
    return _svg(height, parts, "The bill by cap") + _key([f"tools {offer}" for offer in OfferTime]) + note


def _svg(height: int, parts: Sequence[str], name: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{name}">{"".join(parts)}</svg>'
