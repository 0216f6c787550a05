"""Questions about recorded results: how often the text that comes back holds the answer, by strategy."""

import argparse
import json
import re
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import httpx
from tqdm import tqdm

from bench import corpus
from bench.servers import running

CAPS = (12_288, 2_048)
STRATEGIES = ("truncate", "retrieve")
# An excerpt ends where the next place begins; a line of a log may begin with a bracket too.
_FIRST = re.compile(
    r"^\[[^\n]* words(?:, by meaning)?\]\n(.*?)(?=^\[(?:lines? |bytes |Best first)|\Z)",
    re.MULTILINE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")


def plain(text: str) -> str:
    """Without JSON's escapes, and with single spaces: an answer counts however it was written."""
    return " ".join(_ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", text).split())


def questions(path: Path) -> list[dict[str, Any]]:
    """Lines with `record`, `question`, `answer`, `type`."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def ask(client: httpx.Client, record: dict[str, Any], needle: dict[str, Any], cap: int, mode: str) -> Any:
    """The answer of /extract, to the record kept in a session with that size cap; all of what passes it."""
    session = f"cap-{cap}"
    client.put(f"/sessions/{session}", json={"policy": {"max_bytes": cap}}).raise_for_status()
    sent = {
        "session_id": session,
        "tool_name": record["tool"],
        "tool_call_id": record["id"],
        "content": record["text"],
    }
    kept = client.post("/results", json=sent)
    kept.raise_for_status()
    if kept.json()["handle"] is None:
        return {"text": record["text"], "latency_ms": 0}
    question = {"handle": kept.json()["handle"], "extract": needle["question"], "mode": mode}
    answer = client.post("/extract", json=question)
    answer.raise_for_status()
    return answer.json()


def measure(asked: list[dict[str, Any]], records: dict[str, dict[str, Any]]) -> None:
    found: dict[tuple[str, int], list[tuple[str, bool]]] = defaultdict(list)
    sizes: dict[tuple[str, int], list[int]] = defaultdict(list)
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    firsts: Counter[tuple[str, int]] = Counter()
    with running("spillgate", pinned=False) as server:
        client = httpx.Client(base_url=server.url, timeout=120, trust_env=False)
        for needle in tqdm(asked, desc="questions"):
            for mode in STRATEGIES:
                for cap in CAPS:
                    told = ask(client, records[needle["record"]], needle, cap, mode)
                    holds = plain(needle["answer"]) in plain(told["text"])
                    found[mode, cap].append((needle["type"], holds))
                    sizes[mode, cap].append(len(told["text"].encode()))
                    times[mode, cap].append(told["latency_ms"])
                    first = _FIRST.search(told["text"])
                    firsts[mode, cap] += first is not None and plain(needle["answer"]) in plain(first[1])
        client.close()
    kinds = sorted({needle["type"] for needle in asked})
    columns = ["strategy", "cap", f"found of {len(asked)}", "in the first passage", *kinds]
    columns += ["bytes, mean", "ms, median", "ms, most"]
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for key, holding in found.items():
        shares = []
        for kind in kinds:
            of_kind = [holds for its, holds in holding if its == kind]
            shares.append(f"{sum(of_kind)} of {len(of_kind)}")
        total = sum(holds for _, holds in holding)
        size, took = statistics.mean(sizes[key]), times[key]
        print(f"| {key[0]} | {key[1]:,} | {total} ({total / len(asked):.0%}) | {firsts[key]} ", end="")
        print(f"| {' | '.join(shares)} ", end="")
        print(f"| {size:,.0f} | {statistics.median(took):.0f} | {max(took):.0f} |")


def main(needles: Path | None = None, more: Path | None = None) -> None:
    path = needles or corpus.folder() / "needles.jsonl"
    records = {record["id"]: record for record in corpus.records()}
    if more is not None:
        records |= {record["id"]: record for record in questions(more)}
    if not records or not path.is_file():
        sys.exit("No questions: set RECORDED_RESULTS to a folder with tool_results.jsonl and needles.jsonl.")
    measure(questions(path), records)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("needles", nargs="?", type=Path, help="default: needles.jsonl beside the results")
    parser.add_argument("--records", type=Path, help="a file of more records")
    given = parser.parse_args()
    main(given.needles, given.records)
