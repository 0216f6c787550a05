"""What a model and its clients do with a result that is stored: none of it needs room."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.faults.calls import Kept

READER = "reader"


async def read_in_every_way(client: httpx.AsyncClient, kept: Kept) -> Counter[str]:
    """Asks, reads and hands on one result of the session `full`, also from another session, which is opened
    for it. Returns how many entries of each type that makes."""
    tool = {"session_id": "full", "name": "tool_output"}
    asked = [{"pattern": "result"}, {"lines": "1-3"}, {"query": "select count(*) from data"}]
    for question in (*asked, {"extract": "what is the result"}):
        await _called(client, tool | {"arguments": {"handle": kept.handle, **question}})
    extracted = await client.post("/extract", json={"handle": kept.handle, "extract": "which result is it"})
    assert extracted.status_code == 200, extracted.text
    handed = {"session_id": "full", "tool_name": "t", "arguments": {"x": f"spillgate://{kept.handle}"}}
    answer = await client.post("/arguments", json=handed)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["refusal"], len(answer.json()["used"])) == (None, 1)
    opened = await client.put(f"/sessions/{READER}", json={"reads": ["full"], "context_window": 100_000})
    assert opened.status_code == 200, opened.text
    assert opened.json()["reads"] == ["full"]
    of_reader = {"session_id": READER, "arguments": {"handle": kept.handle, "lines": "1"}}
    await _called(client, tool | of_reader)
    assert (await client.get(f"/results/{kept.handle}/lines")).status_code == 200
    report = await client.post("/sessions/full/usage", json={"used_tokens": 17, "turn": 7})
    assert (report.status_code, report.json()["turn"]) == (200, 7), report.text
    return Counter(read=5, extract=2, pass_on=1)


async def _called(client: httpx.AsyncClient, call: dict[str, Any]) -> None:
    answer = await client.post("/tools/call", json=call)
    assert answer.status_code == 200, answer.text
    assert not answer.json()["is_error"], answer.text
    assert answer.json()["text"]
    assert answer.json()["entry_id"]


async def counted(client: httpx.AsyncClient, name: str) -> int:
    text = (await client.get("/metrics")).text
    return next(int(float(line.split()[1])) for line in text.splitlines() if line.startswith(f"{name} "))


def exported(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def sums_say_that_they_lack_some(client: httpx.AsyncClient) -> None:
    summary = (await client.get("/accounting/summary")).json()
    assert summary["complete"] is False
    assert summary["warnings"][0].startswith("For a time the ledger had no room")
    before = (await client.get("/accounting/summary", params={"until": "2020-01-01"})).json()
    assert "the ledger had no room" not in " ".join(before["warnings"])


async def until_told(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """The entries in place of those that were not recorded, once there are any."""
    async with asyncio.timeout(60):
        while True:
            told = (await client.get("/accounting/entries?type=unrecorded")).json()["entries"]
            if told:
                return list(told)
            await asyncio.sleep(0.05)


async def check_told_in_sums(
    client: httpx.AsyncClient, export: Path, unrecorded: Counter[str], results: int
) -> None:
    """Each entry is in the export, and the sums of the ledger are those of the export."""
    counts: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        # More than one entry tells it if there was room in between.
        while sum(one["readings"] for one in counts) < sum(unrecorded.values()):
            told = await until_told(client)
            counts = [one["details"]["unrecorded"] for one in told]
            await asyncio.sleep(0.02)
    await sums_say_that_they_lack_some(client)
    assert sum(one["results"] for one in counts) == results
    assert sum(one["readings"] for one in counts) == sum(unrecorded.values())
    for one in told:
        assert one["details"]["unrecorded"]["since"] <= one["timestamp"]
    lines = exported(export)
    assert len({line["id"] for line in lines}) == len(lines)
    assert not any(line["type"] == "unrecorded" for line in lines)
    total = (await client.get("/accounting/summary")).json()["total"]
    for name in ("tokens_in", "tokens_out", "tokens_saved"):
        assert total[name] == sum(line[name] for line in lines), name
    assert total["bytes"] == sum(line["details"]["bytes"] for line in lines)
