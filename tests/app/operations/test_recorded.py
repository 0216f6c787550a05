"""Every recorded tool result, through the service and back."""

import httpx
import pytest

from tests.recorded import recorded_results

pytestmark = pytest.mark.anyio


async def test_every_recorded_result_passes_or_reads_back_byte_for_byte(client: httpx.AsyncClient) -> None:
    outcomes = []
    for record in recorded_results():
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
