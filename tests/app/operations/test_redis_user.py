"""The Redis user that docs/backends.md describes may do all that the service does."""

import re
from pathlib import Path

import pytest

from tests.conftest import Serve
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]

DOCS = Path(__file__).parents[3] / "docs" / "backends.md"


def documented_user() -> list[str]:
    (rule,) = re.findall(r"^(ACL SETUSER spillgate .*)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    return str(rule).split()


async def test_the_documented_user_is_refused_nothing(serve: Serve, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis", aof="always") as redis:
        assert redis.ask(*documented_user()) == b"+OK\r\n"
        url = f"redis://spillgate:PASSWORD@{redis.host}:{redis.port}/1"
        async with serve(storage_url=url) as client:
            assert (await client.get("/readyz")).json()["warnings"] == []
            assert (await client.put("/sessions/run", json={"context_window": 500_000})).status_code == 200
            call = {"session_id": "run", "tool_name": "t", "context": {"used_tokens": 5}, "tool_call_id": "a"}
            large = await client.post("/results", json={**call, "content": "long line\n" * 300_000})
            assert large.json()["durability"] == "aof"
            again = await client.post("/results", json={**call, "content": "long line\n" * 300_000})
            assert again.json()["handle"] == large.json()["handle"]
            streamed = await client.post(
                "/results?session_id=run&tool_name=t",
                content=b"y" * 3_000_000,
                headers={"Content-Type": "text/plain"},
            )
            assert streamed.status_code == 201
            handle = large.json()["handle"]
            question = {"handle": handle, "extract": "the first line"}
            assert (await client.post("/extract", json=question)).status_code == 200
            for path in (
                f"/results/{handle}/content",
                f"/results/{handle}/lines",
                "/sessions",
                "/tools?session_id=run",
                "/accounting/entries?session_id=run",
                "/accounting/summary",
                "/accounting/summary?group_by=session_id",
                "/healthz",
            ):
                assert (await client.get(path)).status_code == 200
            assert (await client.delete(f"/results/{handle}")).status_code == 204
            assert (await client.delete("/sessions/run")).status_code == 204
        assert redis.ask("ACL", "LOG") == b"*0\r\n"


async def test_a_database_that_the_server_lacks_is_told(serve: Serve, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as redis:
        async with serve(storage_url=f"redis://{redis.host}:{redis.port}/99") as client:
            refused = await client.post("/results", json={"tool_name": "t", "content": "small"})
    assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
    assert "Check the database" in refused.json()["detail"]


async def test_a_retry_is_answered_with_the_durability_of_the_first_answer(
    serve: Serve, tmp_path: Path
) -> None:
    with RedisServer(tmp_path / "redis", aof="always") as redis:
        async with serve(storage_url=redis.url) as client:
            call = {"session_id": "run", "tool_name": "t", "tool_call_id": "a", "content": "a line\n" * 5000}
            answers = [(await client.post("/results", json=call)).json() for _ in range(2)]
            assert [one["durability"] for one in answers] == ["aof", "aof"]
            (entry,) = (await client.get("/accounting/entries?type=tool")).json()["entries"]
            assert entry["details"]["durability"] == "aof"
