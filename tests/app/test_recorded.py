"""Every recorded tool result, through the service and back."""

import json
import os
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("RECORDED_RESULTS", ROOT.parent / "shared" / "corpus"))


async def test_every_recorded_result_passes_or_reads_back_byte_for_byte(client: httpx.AsyncClient) -> None:
    path = FOLDER / "tool_results.jsonl"
    if not path.is_file():
        pytest.skip(f"no recorded results in {FOLDER}: set RECORDED_RESULTS")
    outcomes = []
    with path.open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            sent = {
                "session_id": "recorded",
                "tool_name": record["tool"],
                "tool_arguments": record["args"],
                "content": record["text"],
            }
            told = (await client.post("/results", json=sent)).json()
            outcomes.append(told["outcome"])
            if told["outcome"] == "pass":
                assert told["content"] == record["text"]
            else:
                body = await client.get(f"/results/{told['handle']}/content")
                assert body.content == record["text"].encode()
            assert told["measure"]["bytes"] == record["bytes"]
    summary = (await client.get("/accounting/summary?type=tool&group_by=outcome")).json()
    assert {row["group"]: row["entries"] for row in summary["rows"]} == {
        kind: outcomes.count(kind) for kind in set(outcomes)
    }
