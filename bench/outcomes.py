"""What each outcome and profile makes of the recorded results: tokens before and after, by kind of tool."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

from tqdm import tqdm

from app.governing.governor import govern
from app.runtime import Runtime, open_runtime
from app.settings import Settings
from bench import corpus
from domain.decisions import OutcomeKind
from domain.handles import SessionKey
from domain.results import ToolResult
from policies.documents import Profile

OUTCOMES = [{"on_oversize": kind.value} for kind in OutcomeKind if kind is not OutcomeKind.PASS]
DESIGNS = [{"profile": name} for name in Profile]
ALL = "all"

Sums = dict[str, list[int]]
"""By kind of tool: results, tokens before, and tokens after under each policy."""


def main() -> None:
    records = corpus.records()
    if not records:
        sys.exit("No recorded results: set RECORDED_RESULTS to a folder with tool_results.jsonl.")
    logging.getLogger().addHandler(logging.NullHandler())
    policies: list[dict[str, str]] = [*OUTCOMES, *DESIGNS]
    sums = asyncio.run(_governed(records, policies))
    split = 2 + len(OUTCOMES)
    _print("every outcome at 12,288 bytes", OUTCOMES, {kind: row[:split] for kind, row in sums.items()})
    _print("every profile", DESIGNS, {kind: row[:2] + row[split:] for kind, row in sums.items()})


async def _governed(records: list[dict[str, Any]], policies: list[dict[str, str]]) -> Sums:
    sums: Sums = {ALL: [0] * (2 + len(policies))}
    async with open_runtime(Settings(storage_url="memory:")) as rt:
        for record in tqdm(records, desc="governing"):
            before = await rt.count(record["text"], rt.known_models.tokenizer(None))
            after = [
                await _tokens(record, before, policy, f"s{number}", rt)
                for number, policy in enumerate(policies)
            ]
            for kind in (record["kind"], ALL):
                row = sums.setdefault(kind, [0] * (2 + len(policies)))
                sums[kind] = [old + new for old, new in zip(row, [1, before, *after], strict=True)]
    return sums


async def _tokens(
    record: dict[str, Any], before: int, policy: dict[str, str], session_id: str, rt: Runtime
) -> int:
    """What the model reads of it, counted exactly."""
    key = SessionKey("bench", session_id)
    arguments = json.dumps(record["args"], ensure_ascii=False)
    # Named, so that a handle is the same, and has as many tokens, in every run.
    result = ToolResult(key, record["tool"], record["id"], arguments, policy=json.dumps(policy))
    outcome = (await govern(result, _whole(record["text"]), rt)).outcome
    await rt.store.delete_session(key, epoch=1)
    return before if outcome.text is None else await rt.count(outcome.text, rt.known_models.tokenizer(None))


async def _whole(text: str) -> AsyncIterator[str]:
    yield text


def _print(title: str, policies: list[dict[str, str]], sums: Sums) -> None:
    heads = [
        "tool kind",
        "results",
        "tokens before",
        *(name for policy in policies for name in policy.values()),
    ]
    print(f"\n{title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for kind, (count, before, *after) in sorted(sums.items(), key=lambda item: -item[1][1]):
        cells = [f"{tokens:,} ({tokens / before:.1%})" for tokens in after]
        print(f"| {kind} | {count} | {before:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
