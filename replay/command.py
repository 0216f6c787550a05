"""`replay`: reads transcripts and prints what a policy would have done to them."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from app.cli.options import naming_options
from app.operations.policy_file import load_policies
from app.settings import Settings, load_settings
from beside.commands import COMMANDS
from domain.errors import ConfigError
from replay.advice import advice
from replay.baselines import BASELINES, KEPT_RESULTS
from replay.plans import CAPS, IN_FORCE, capped, capped_plans, previewed_plans, variants
from replay.progress import ProgressLine
from replay.readers import FORMATS
from replay.replaying import WHOLE, Replaying
from replay.reports import html, json_report, table
from replay.reports.summary import ReplaySummary, faults
from replay.runs import Notes
from replay.sources import found_files, printable, size_of
from replay.workers import replay_all

_LEAST_CAP, _MOST_CAP = 256, 1_000_000
_NONE_READ = "no transcript could be read."
_WRITERS = {".html": html.text, ".htm": html.text, ".json": json_report.text}


def main(arguments: Sequence[str]) -> int:
    """Prints the table. Returns 2 if no transcript could be read. Raises ConfigError."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except ConfigError as error:
        raise ConfigError(naming_options(str(error), options)) from None


def _parser() -> argparse.ArgumentParser:
    description = COMMANDS["replay"].description
    command = argparse.ArgumentParser(prog="spillgate replay", description=description, allow_abbrev=False)
    command.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a transcript, or a folder of them"
    )
    command.add_argument(
        "--policy", dest="policy_file", type=Path, help="policy file; overrides SPILLGATE_POLICY_FILE"
    )
    command.add_argument(
        "--max-bytes", dest="caps", metavar="N[,N…]", help="size caps in bytes to compare, such as 8192,16384"
    )
    command.add_argument(
        "--model", help="use this model's prices, not those of the models in the transcripts"
    )
    command.add_argument(
        "--format", choices=tuple(FORMATS), help="format of every file (default: recognised for each)"
    )
    command.add_argument(
        "--report", type=Path, metavar="FILE", help="also write a report, FILE.html or FILE.json"
    )
    command.add_argument(
        "--show", action="store_true", help="print the names and numbers that were used and not shown"
    )
    return command


def _run(options: argparse.Namespace) -> int:
    writer = None
    if options.report is not None and (writer := _WRITERS.get(options.report.suffix.lower())) is None:
        raise ConfigError(f"--report: the name must end with one of {', '.join(_WRITERS)}.")
    overrides = {} if options.policy_file is None else {"policy_file": options.policy_file}
    settings = load_settings(**overrides)
    caps = _caps(options.caps)
    notes = Notes()
    summary = _summary(options, settings, caps, notes)
    if summary is None:
        for line in faults(notes):
            print(f"spillgate: {line}", file=sys.stderr)
        paths = ", ".join(printable(str(path)) for path in options.paths)
        print(
            f"spillgate: {_NONE_READ if faults(notes) else f'no transcript found in {paths}.'}",
            file=sys.stderr,
        )
        return 2
    if writer is not None:
        try:
            options.report.write_text(writer(summary), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--report: {error.strerror or error}.") from None
    print(table.text(summary), end="")
    return 0


def _caps(text: str | None) -> list[int]:
    if text is None:
        return list(CAPS)
    try:
        caps = sorted({int(one.replace("_", "")) for one in text.split(",")})
    except ValueError:
        caps = [0]
    if not _LEAST_CAP <= caps[0] <= caps[-1] <= _MOST_CAP:
        raise ConfigError(f"--max-bytes: whole numbers from {_LEAST_CAP} to {_MOST_CAP}, as in 4096,8192.")
    return caps


def _summary(
    options: argparse.Namespace, settings: Settings, caps: list[int], notes: Notes
) -> ReplaySummary | None:
    """Returns None if no run was found."""
    plans = capped_plans(caps)
    policy = load_policies(settings).policy("")
    candidates, varied = previewed_plans(policy), variants(policy)
    replaying = Replaying(IN_FORCE, plans, options.model, options.show, candidates, varied)
    files = list(found_files(options.paths, notes))
    progress = ProgressLine(sum(map(size_of, files)))
    try:
        figures, runs = replay_all(files, settings, replaying, notes, options.format, progress)
    finally:
        progress.close()
    if not runs:
        return None
    whole = figures.total
    baselines = (*BASELINES, f"last {KEPT_RESULTS} results")
    rows = [label for label in (WHOLE, *baselines) if label in whole.policies]
    rows += [one.label for one in (IN_FORCE, *varied, *map(capped, caps))]
    advised = advice(whole, [*plans, *(plan for each in candidates for plan in each)])
    return ReplaySummary(figures, whole, notes, rows, plans, advised, options.show, options.model)
