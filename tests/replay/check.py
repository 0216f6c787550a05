"""`make replay-check`: the tables of docs/worth.md for the made-up runs are what replay prints today.

`--write` writes them into the page; with `--runs FOLDER`, also the tables of recorded runs in its folders
into bench/README.md.
"""

import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from beside.main import main
from replay.plans import OURS
from tests.replay import made_runs

ROOT = Path(__file__).resolve().parents[2]
PAGE, MEASURED = ROOT / "docs" / "worth.md", ROOT / "bench" / "README.md"
_MADE_UP = re.compile(r"(<!-- replay-check -->\n)(.*?)(<!-- /replay-check -->)", re.DOTALL)
_RECORDED = re.compile(r"(<!-- runs of (\S+) -->\n)(.*?)(<!-- /runs -->)", re.DOTALL)

_CAPS = "4096,5120,6144,7168,8192,12288,30000"
_HEAD = """\
| policy | replaced | visible | 1 call | found | lost | edits broken | follow-ups | always | late | hook |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def figures() -> str:
    """The tables for the made-up runs, as a code block."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = made_runs.write(Path(folder) / "runs.jsonl")
        with contextlib.redirect_stdout(printed):
            assert main(["replay", str(path), "--max-bytes", "4096,12288"]) == 0
    return f"```\n{printed.getvalue().rstrip()}\n```\n"


def recorded(runs: Path) -> str:
    """The table of one set of recorded runs: aggregate figures."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["replay", str(runs), "--max-bytes", _CAPS, "--report", str(report)]) == 0
        found = json.loads(report.read_text())
    total, unit = found["total"], "dollars" if found["unit"] == "dollars" else "tokens"
    whole = total["bill_as_recorded"][unit]
    lines = [
        f"{total['runs']:,} runs, {total['turns']:,} turns, {total['results']:,} results, "
        f"{total['bytes'] / 1e6:.1f} MB, {total['uses']:,} uses, {total['quotes']:,} edits; "
        f"{_amount(whole, unit)}{' tokens' * (unit == 'tokens')} as recorded{_billed(found)}.\n\n{_HEAD}"
    ]
    rows: dict[tuple[str, ...], list[str]] = {}
    for label, one in total["policies"].items():
        names = ("replaced", "visible", "one_call", "findable", "lost", "quotes_broken", "follow_ups")
        saved = [_saved(one, total, offer, unit) for offer in ("always", "late", "hook")]
        if not label.startswith(OURS):
            saved[:2] = "", ""
        rows.setdefault((*(f"{one[name]:,}" for name in names), *saved), []).append(label)
    lines += [f"| {' | '.join((', '.join(labels), *cells))} |\n" for cells, labels in rows.items()]
    return "".join(lines)


def _amount(amount: float, unit: str) -> str:
    return f"${amount:,.2f}" if unit == "dollars" else f"{amount / 1000:z,.1f} k"


def _saved(one: dict[str, Any], total: dict[str, Any], offer: str, unit: str) -> str:
    """A share, and in brackets that of the runs that cost more; of few uses amounts and counts."""
    whole, dearer = total["bill_as_recorded"][unit], one["runs_that_cost_more"][offer]
    saved = whole - one["bills"][offer][unit]
    if total["uses"] < 50:
        return f"{_amount(saved, unit)} ({dearer})"
    return f"{saved / whole:z.1%} ({dearer / total['runs']:.0%})"


def _billed(found: dict[str, Any]) -> str:
    if "billed" not in found:
        return ""
    counted, billed = found["billed"]["counted"], found["billed"]["billed"]
    off = (
        f"{name} {(counted[name] - billed[name]) / billed[name]:+.0%}"
        for name in ("written", "read", "output")
        if billed[name]
    )
    return f"; counted tokens beside billed ones: {', '.join(off)}"


def check(*, write: bool, runs: Path | None) -> int:
    for name in [name for name in os.environ if name.startswith("SPILLGATE_")]:
        del os.environ[name]
    made = figures()
    pages = {PAGE: _MADE_UP.sub(lambda found: found[1] + made + found[3], PAGE.read_text())}
    if runs is not None:
        pages[MEASURED] = _RECORDED.sub(
            lambda found: found[1] + recorded(runs / found[2]) + found[4], MEASURED.read_text()
        )
    if write:
        for path, text in pages.items():
            path.write_text(text)
        return 0
    print(made)
    others = [str(path.relative_to(ROOT)) for path, text in pages.items() if path.read_text() != text]
    if not others:
        return 0
    print(f"Other figures: {', '.join(others)}. Run `make replay-figures`.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--runs", type=Path)
    options = parser.parse_args()
    sys.exit(check(write=options.write, runs=options.runs))
