"""Reading back: info, bytes and ranges, lines, matches, deletion."""

import json
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

LOG = "\n".join(f"{n:05} {'ERROR boom' if n % 500 == 0 else 'ok'} é" for n in range(3000))


async def keep(client: httpx.AsyncClient, text: str = LOG) -> str:
    answer = await client.post("/results", json={"tool_name": "t", "content": text})
    return str(answer.json()["handle"])


async def test_info_says_what_is_known(client: httpx.AsyncClient) -> None:
    told = (await client.get(f"/results/{await keep(client)}")).json()
    assert told["tool_name"] == "t"
    assert told["measure"]["bytes"] == len(LOG.encode())
    assert len(told["sha256"]) == 64
    assert told["expires_at"] - told["stored_at"] == 86_400_000


async def test_a_person_reads_without_an_entry(client: httpx.AsyncClient) -> None:
    handle = await keep(client, '{"a": [1, 2]}' + " " * 20_000)
    for path, asked in {
        "lines": {},
        "content": {},
        "grep": {"pattern": "a"},
        "query": {"expression": "a"},
    }.items():
        for accounted, entries in ((False, 0), (True, 1)):
            before = len((await client.get("/accounting/entries?type=read")).json()["entries"])
            sent = {**asked, "accounted": accounted}
            assert (await client.get(f"/results/{handle}/{path}", params=sent)).status_code == 200
            after = len((await client.get("/accounting/entries?type=read")).json()["entries"])
            assert (path, after - before) == (path, entries)
    # Whole bytes are for programs and backups; what a model is shown of them is said so.
    saved = (await client.get("/accounting/summary")).json()["total"]["tokens_saved"]
    assert (await client.get(f"/results/{handle}/content")).status_code == 200
    assert (await client.get("/accounting/summary")).json()["total"]["tokens_saved"] == saved


async def test_a_range_is_answered_exactly(client: httpx.AsyncClient) -> None:
    cases: list[tuple[str, int, int | None]] = [
        ("bytes=0-9", 0, 10),
        ("bytes=100-", 100, None),
        ("bytes=-5", -5, None),
        ("bytes=5-99999999", 5, None),
    ]
    for asked, start, end in cases:
        handle, data = await keep(client), LOG.encode()
        answer = await client.get(f"/results/{handle}/content", headers={"Range": asked})
        first = start % len(data)
        last = (end or len(data)) - 1
        assert answer.status_code == 206
        assert answer.content == data[start:end]
        assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(data)}"
        assert answer.headers["content-length"] == str(len(answer.content))


async def test_a_range_outside_is_416_with_the_size(client: httpx.AsyncClient) -> None:
    for asked in ["bytes=99999999-", "bytes=-0"]:
        answer = await client.get(f"/results/{await keep(client)}/content", headers={"Range": asked})
        assert answer.status_code == 416
        assert answer.headers["content-range"] == f"bytes */{len(LOG.encode())}"


async def test_a_range_that_is_not_understood_answers_the_whole(client: httpx.AsyncClient) -> None:
    for asked in ["bytes=0-1,5-6", "lines=1-2", "bytes=9-3", "bytes=a-b"]:
        answer = await client.get(f"/results/{await keep(client)}/content", headers={"Range": asked})
        assert answer.status_code == 200
        assert answer.text == LOG


async def test_head_and_etag_spare_the_bytes(client: httpx.AsyncClient) -> None:
    url = f"/results/{await keep(client)}/content"
    head = await client.head(url)
    assert head.headers["content-length"] == str(len(LOG.encode()))
    assert head.content == b""
    unchanged = await client.get(url, headers={"If-None-Match": head.headers["etag"]})
    assert unchanged.status_code == 304
    other = await client.get(url, headers={"Range": "bytes=0-1", "If-Range": '"another"'})
    assert other.status_code == 200


async def test_lines_are_paged_from_one(client: httpx.AsyncClient) -> None:
    url, seen, offset = f"/results/{await keep(client)}/lines", [], 1
    while offset is not None:
        page = (await client.get(url, params={"offset": offset, "limit": 1111})).json()
        assert page["total_lines"] == 3000
        assert page["lines"][0]["number"] == offset
        seen += [line["text"] for line in page["lines"]]
        offset = page["next_offset"]
    assert "\n".join(seen) == LOG


async def test_grep_answers_matches_with_their_context(client: httpx.AsyncClient) -> None:
    url = f"/results/{await keep(client)}/grep"
    found = (await client.get(url, params={"pattern": "error", "ignore_case": True, "context": 1})).json()
    assert found["total_matches"] == 6
    assert found["view"] == "raw"
    second = found["matches"][1]
    assert second["line"] == 501
    assert second["text"] == "00500 ERROR boom é"
    assert (second["before"], second["after"]) == (["00499 ok é"], ["00501 ok é"])


async def test_grep_pages_through_all_matches(client: httpx.AsyncClient) -> None:
    url, seen, offset = f"/results/{await keep(client)}/grep", [], 0
    while offset is not None:
        page = (await client.get(url, params={"pattern": "ERROR", "limit": 4, "offset": offset})).json()
        seen += [match["line"] for match in page["matches"]]
        offset = page["next_offset"]
    assert seen == [1, 501, 1001, 1501, 2001, 2501]


async def test_one_line_json_is_made_greppable_and_left_as_it_is(client: httpx.AsyncClient) -> None:
    rows = [{"id": n, "name": f"item {n}", "tags": ["a", "b"]} for n in range(1000)]
    data = json.dumps(rows)
    handle = await keep(client, data)
    found: dict[str, Any] = (
        await client.get(f"/results/{handle}/grep", params={"pattern": '"item 77"', "context": 1})
    ).json()
    assert found["view"] == "greppable"
    assert found["total_matches"] == 1
    match = found["matches"][0]
    assert '"item 77"' in match["text"]
    assert "77" in match["before"][0]
    lines = (
        await client.get(
            f"/results/{handle}/lines", params={"view": "greppable", "offset": match["line"], "limit": 1}
        )
    ).json()
    assert lines["lines"][0]["text"] == match["text"]
    assert (await client.get(f"/results/{handle}/content")).text == data


async def test_a_bad_pattern_says_what_to_do_and_echoes_nothing(client: httpx.AsyncClient) -> None:
    url = f"/results/{await keep(client)}/grep"
    for pattern in ("(secret", "(?=secret)", r"(secret)\1"):
        answer = await client.get(url, params={"pattern": pattern})
        assert answer.status_code == 400
        assert answer.json()["code"] == "bad_pattern"
        assert "secret" not in answer.text


async def test_a_deleted_result_is_gone(client: httpx.AsyncClient) -> None:
    handle = await keep(client)
    assert (await client.delete(f"/results/{handle}")).status_code == 204
    assert (await client.delete(f"/results/{handle}")).status_code == 404
    assert (await client.get(f"/results/{handle}/content")).status_code == 404


async def test_an_unknown_or_foreign_handle_is_404_with_one_body(client: httpx.AsyncClient) -> None:
    for handle in [
        "session-default/file-00000000-0000-4000-8000-000000000000",
        "nonsense",
        "session-default/../../../etc/passwd",
        "session-..%2f..%2fetc/file-00000000-0000-4000-8000-000000000000",
        "session-default/file-00000000-0000-4000-8000-000000000000%00",
    ]:
        for part in ("", "/content", "/lines", "/grep?pattern=x"):
            answer = await client.get(f"/results/{handle}{part}")
            assert answer.status_code == 404, part
            assert answer.headers["content-type"] == "application/problem+json"
            assert "passwd" not in answer.text
