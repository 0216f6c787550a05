"""Questions about recorded results: how often what retrieve answers holds the answer, word for word."""

import argparse
import asyncio
import hashlib
import json
import re
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from bench import corpus
from domain.handles import Handle
from domain.results import Measure, StoredResult
from extraction.asked_bytes import AskedBytes
from extraction.retrieve import choice, ranking
from extraction.retrieve import strategy as retrieve
from extraction.task import ExtractionLimits, Task
from storage.memory import MemoryStore

CAP = 12_288
FIRST = 1000
HEURISTICS: tuple[dict[str, Any], ...] = (ranking.HEURISTICS, choice.PICKS)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")


class Told(NamedTuple):
    """One answer: whether it holds what was asked for, and within its first 1,000 bytes."""

    holds: bool
    at_once: bool
    size: int
    seconds: float


def plain(text: str) -> str:
    """Without JSON's escapes, and with single spaces: an answer counts however it was written."""
    return " ".join(_ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", text).split())


def questions(path: Path) -> list[dict[str, Any]]:
    """Lines with `record`, `question`, `answer`; perhaps `accept`, other forms of the answer."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def holds(text: str, asked: Mapping[str, Any]) -> bool:
    shown = plain(text)
    return any(plain(one) in shown for one in (asked["answer"], *asked.get("accept", ())))


async def ask(record: Mapping[str, Any], asked: Mapping[str, Any]) -> Told:
    """The answer of retrieve. What passes the cap is shown whole."""
    task = await _task(record, asked["question"])
    started = time.perf_counter()
    body = (await retrieve.answer(task)).body
    first = body.encode()[:FIRST].decode("utf-8", "ignore")
    return Told(holds(body, asked), holds(first, asked), len(body.encode()), time.perf_counter() - started)


async def _task(record: Mapping[str, Any], question: str) -> Task:
    data = record["text"].encode()
    store = MemoryStore(clock=lambda: 0, retention_seconds=3600, max_bytes=0)
    measure = Measure(len(data), data.count(b"\n") + 1, len(record["text"]), len(data) // 4, False)
    stored = StoredResult(
        tenant="bench",
        handle=Handle("bench", "recall"),
        tool_name=record.get("tool", "bench"),
        tool_arguments=None,
        tool_kind=None,
        provider=None,
        is_error=False,
        measure=measure,
        sha256=hashlib.sha256(data).hexdigest(),
        stored_at=0,
        expires_at=0,
        epoch=0,
    )
    async with store.draft(stored.tenant) as draft:
        await draft.write(data)
        await draft.publish(stored)
    return Task(AskedBytes(store, stored), question, CAP, ExtractionLimits(), None, _NoFindings())


class _NoFindings:
    """Implements Findings."""

    async def find(self, key: str) -> str | None:
        return None

    async def keep(self, key: str, finding: str) -> None: ...


@contextmanager
def without(name: str) -> Iterator[None]:
    """Retrieve without a heuristic. Raises KeyError, with those that there are."""
    of = next((one for one in HEURISTICS if name in one), None)
    if of is None:
        raise KeyError(f"{name}: not one of {', '.join(key for one in HEURISTICS for key in one)}")
    before = dict(of)
    del of[name]
    try:
        yield
    finally:
        of.clear()
        of.update(before)


async def measure(asked: list[dict[str, Any]], records: dict[str, dict[str, Any]]) -> list[Told]:
    return [await ask(records[one["record"]], one) for one in tqdm(asked, desc="questions")]


def row(label: str, told: list[Told]) -> str:
    count, at_once = sum(one.holds for one in told), sum(one.at_once for one in told)
    size, took = statistics.mean(one.size for one in told), statistics.median(one.seconds for one in told)
    return f"| {label} | {count} of {len(told)} | {at_once} | {size:,.0f} | {took * 1000:.0f} |"


def table(asked: list[dict[str, Any]], records: dict[str, dict[str, Any]], left_out: list[str]) -> None:
    """Questions whose answer stands word for word in the data; those to compute are for `query`."""
    verbatim = [one for one in asked if holds(records[one["record"]]["text"], one)]
    print(f"| retrieve | found | within {FIRST:,} bytes | bytes, mean | ms, median |\n|---|---|---|---|---|")
    every = asyncio.run(measure(verbatim, records))
    print(row("with all", every), flush=True)
    for name in left_out:
        with without(name):
            told = asyncio.run(measure(verbatim, records))
        pairs = list(zip(verbatim, every, told, strict=True))
        lost = [str(one.get("id", "?")) for one, before, after in pairs if before.holds and not after.holds]
        won = [str(one.get("id", "?")) for one, before, after in pairs if after.holds and not before.holds]
        print(row(f"without {name}", told), f"lost: {', '.join(lost)}; won: {', '.join(won)}", flush=True)


def main(
    needles: list[Path] | None = None, more: Path | None = None, left_out: list[str] | None = None
) -> None:
    paths = needles or [corpus.folder() / "needles.jsonl"]
    records = {record["id"]: record for record in corpus.records()}
    if more is not None:
        records |= {record["id"]: record for record in questions(more)}
    if not records or not all(path.is_file() for path in paths):
        sys.exit("No questions: set RECORDED_RESULTS to a folder with tool_results.jsonl and needles.jsonl.")
    table([one for path in paths for one in questions(path)], records, left_out or [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("needles", nargs="*", type=Path, help="default: needles.jsonl beside the results")
    parser.add_argument("--records", type=Path, help="a file of more records")
    parser.add_argument(
        "--without", action="append", default=[], help="a heuristic to leave out, or `each` in turn"
    )
    given = parser.parse_args()
    names = [key for one in HEURISTICS for key in one] if given.without == ["each"] else given.without
    main(given.needles, given.records, names)
