"""Recorded tool results to measure with; where there are none, text of the same shapes is made."""

import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.servers import ROOT


def folder() -> Path:
    return Path(os.environ.get("RECORDED_RESULTS", ROOT.parent / "shared" / "corpus"))


def records() -> list[dict[str, Any]]:
    """Empty where there is no `tool_results.jsonl`."""
    path = folder() / "tool_results.jsonl"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def texts(size: int, count: int) -> list[str]:
    """`count` texts of about `size` bytes."""
    recorded = [record["text"] for record in records()]
    data = "\n".join(recorded or itertools.islice(_made(), 200_000)).encode()
    step = max(1, (len(data) - size) // count)
    while len(data) < size:
        data += data
    return [data[start : start + size].decode(errors="ignore") for start in range(0, step * count, step)]


def _made() -> Iterator[str]:
    rng = random.Random(7)
    words = ("error", "web", "request", "took", "user", "order", "price", "daemon", "started", "retry")
    for number in itertools.count():
        said = " ".join(rng.choices(words, k=rng.randint(3, 14)))
        yield f"2026-01-{number % 28 + 1:02} {number:08x} {said} id={rng.getrandbits(40):x}"
