"""One call of a model's tool over several results, and a subagent that reads its parent's results."""

import json
from typing import Any

import httpx
import pytest

from tests.conftest import Serve
from tests.keys import key_file

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]

PEOPLE = json.dumps([{"id": number, "name": f"person {number}"} for number in range(900)])
ORDERS = json.dumps([{"person": number % 900, "amount": number} for number in range(1800)])
LOG = "".join(f"2026-11-20 08:00:{number % 60:02} INFO request {number} done\n" for number in range(2000))
BROKEN = LOG + "2026-11-20 09:12:44 ERROR the payment of order 4711 failed: card declined\n"


async def stored(client: httpx.AsyncClient, content: str, session: str = "s", tool: str = "run") -> str:
    body = {"session_id": session, "tool_name": tool, "content": content}
    answer = await client.post("/results", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["handle"])


async def called(client: httpx.AsyncClient, handle: Any, session: str = "s", **arguments: Any) -> Any:
    body = {"session_id": session, "name": "tool_output", "arguments": {"handle": handle, **arguments}}
    answer = await client.post("/tools/call", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_list_and_a_text_with_commas_are_the_same_call(client: httpx.AsyncClient) -> None:
    one, two = await stored(client, LOG), await stored(client, BROKEN, tool="deploy")
    first = await called(client, [one, two], pattern="ERROR")
    assert f"{two} (deploy):\n1999- " in first["text"]
    assert "\n2001: 2026-11-20 09:12:44 ERROR" in first["text"]
    assert f"{one} (run):\nNo line matches." in first["text"]
    for written in (f"{one}, {two}", f'["{one}","{two}"]', f" '{one}' ,{two},"):
        assert (await called(client, written, pattern="ERROR"))["text"].split() == first["text"].split()


async def test_a_result_that_is_named_twice_is_asked_once(client: httpx.AsyncClient) -> None:
    one = await stored(client, BROKEN)
    for question in ({"pattern": "ERROR"}, {"extract": "What failed?"}, {"lines": "2001"}):
        assert "order 4711" in (await called(client, [one, one], **question))["text"]


async def test_a_question_over_several_results_says_which_each_part_is_from(
    client: httpx.AsyncClient,
) -> None:
    one, two = await stored(client, LOG), await stored(client, BROKEN)
    answer = await called(client, [one, two], extract="Which payment failed?")
    assert not answer["is_error"]
    assert answer["text"].index(one) < answer["text"].index(two) < answer["text"].index("order 4711 failed")
    entries = (await client.get("/accounting/entries", params={"type": "extract"})).json()["entries"]
    assert {entry["details"]["tool_output_handle"] for entry in entries} == {one, two}


async def test_an_answer_about_twenty_results_is_as_large_as_one(client: httpx.AsyncClient) -> None:
    handles = [await stored(client, f"{number}\n{BROKEN[-13_000:]}") for number in range(20)]
    for question in ({"pattern": "request"}, {"extract": "Which requests are done, and what failed?"}):
        answer = await called(client, handles, **question)
        assert all(handle in answer["text"] for handle in handles)
        assert len(answer["text"].encode()) <= 12_288
    await client.put("/sessions/s", json={"policy": {"max_bytes": 2400}})
    unknown = [handle.replace("session-s/", "session-other/") for handle in handles]
    for question in ({"pattern": "request"}, {"extract": "What failed?"}):
        answer = await called(client, unknown, **question)
        assert len(answer["text"].encode()) <= 2400
        assert all(handle in answer["text"] for handle in unknown)
    another = handles[0][:-1] + ("1" if handles[0].endswith("0") else "0")
    refused = await called(client, ",".join([*handles, another]), pattern="x")
    assert refused["is_error"]
    assert "at most 20" in refused["text"]


async def test_sql_joins_the_tables_of_several_results(client: httpx.AsyncClient) -> None:
    people, orders = await stored(client, PEOPLE), await stored(client, ORDERS)
    joined = "data1 JOIN data2 ON person = data1.id"
    query = f"SELECT name, sum(amount) AS total FROM {joined} WHERE person = 7 GROUP BY name"
    answer = await called(client, [people, orders], query=query)
    assert answer["text"].startswith(f"data1: {people} (run)\ndata2: {orders} (run)\n")
    assert "person 7" in answer["text"]
    assert str(7 + 907) in answer["text"]
    for query, says in (
        ("SELECT * FROM data", "No table is named data. Columns of data1: id BIGINT, name."),
        ("SELECT height FROM data1", "Columns of data2: person BIGINT, amount BIGINT."),
        ("SELECT name FROM data1 WHERE name = 'x'", "name is from person 0 to person "),
        ("[0]", "Over several results only SQL runs"),
    ):
        assert says in (await called(client, [people, orders], query=query))["text"]


async def test_a_result_that_is_gone_and_lines_of_several_are_told_to_the_model(
    client: httpx.AsyncClient,
) -> None:
    one = await stored(client, BROKEN)
    gone = one[:-1] + ("0" if one[-1] != "0" else "1")
    answer = await called(client, [one, gone], pattern="ERROR")
    assert "2001: " in answer["text"]
    assert f"{gone}: No stored result has this handle" in answer["text"]
    assert not answer["is_error"]
    assert "one result" in (await called(client, [one, gone], lines="1"))["text"]
    assert (await called(client, [one, gone], pattern="("))["text"].count("RE2 cannot take") == 1


async def test_a_subagent_reads_its_parents_results_where_its_session_may(client: httpx.AsyncClient) -> None:
    handle = await stored(client, BROKEN, "parent")
    before = (await client.get("/sessions/parent")).json()["budget"]["reserved_tokens"]
    await client.put("/sessions/child", json={})
    for question in ({"pattern": "ERROR"}, {"extract": "What failed?"}, {"lines": "2001"}):
        assert "order 4711" not in (await called(client, handle, "child", **question))["text"]
    opened = await client.put("/sessions/child", json={"reads": ["parent"]})
    assert opened.json()["reads"] == ["parent"]
    for question in ({"pattern": "ERROR"}, {"extract": "What failed?"}, {"lines": "2001"}):
        assert "order 4711" in (await called(client, handle, "child", **question))["text"]
    own = await stored(client, LOG, "child")
    assert "order 4711" in (await called(client, [own, handle], "child", pattern="ERROR"))["text"]
    assert (await client.get("/sessions/parent")).json()["budget"]["reserved_tokens"] == before
    entries = (await client.get("/accounting/entries", params={"session_id": "child"})).json()["entries"]
    about = [entry for entry in entries if entry["details"]["tool_output_handle"] == handle]
    assert len(about) == 4
    reserved = (await client.get("/sessions/child")).json()["budget"]["reserved_tokens"]
    assert reserved >= sum(entry["tokens_out"] for entry in about)


async def test_a_session_that_reads_another_is_offered_the_tool(client: httpx.AsyncClient) -> None:
    async def offered(session: str, **asked: str) -> int:
        return len((await client.get("/tools", params={"session_id": session, **asked})).json()["tools"])

    await client.put("/sessions/empty", json={})
    await client.put("/sessions/parent", json={})
    await client.put("/sessions/child", json={"reads": ["empty", "parent"]})
    await client.put("/sessions/grandchild", json={"reads": ["child"]})
    assert await offered("child") == 0
    await stored(client, BROKEN, "parent")
    assert (await offered("child"), await offered("parent")) == (1, 1)
    assert (await offered("empty"), await offered("grandchild"), await offered("unknown")) == (0, 0, 0)
    assert await offered("child", final_turn="true") == 0
    await client.put("/sessions/child", json={"reads": ["empty"]})
    assert await offered("child") == 0
    await client.put("/sessions/child", json={"reads": ["parent"]})
    await client.delete("/sessions/parent")
    await client.put("/sessions/parent", json={})
    await stored(client, BROKEN, "parent")
    assert await offered("child") == 0


async def test_reads_end_with_the_life_of_the_parent_and_are_taken_back(client: httpx.AsyncClient) -> None:
    await stored(client, BROKEN, "parent")
    await client.put("/sessions/child", json={"reads": ["parent"]})
    await client.delete("/sessions/parent")
    await client.put("/sessions/parent", json={})
    handle = await stored(client, BROKEN, "parent")
    assert "order 4711" not in (await called(client, handle, "child", pattern="ERROR"))["text"]
    assert (await client.get("/sessions/child")).json()["reads"] == []
    await client.put("/sessions/child", json={"reads": ["parent"]})
    assert "order 4711" in (await called(client, handle, "child", pattern="ERROR"))["text"]
    await client.put("/sessions/child", json={"reads": []})
    assert "order 4711" not in (await called(client, handle, "child", pattern="ERROR"))["text"]


async def test_what_a_child_may_read_its_own_children_may_not(client: httpx.AsyncClient) -> None:
    handle = await stored(client, BROKEN, "parent")
    await client.put("/sessions/child", json={"reads": ["parent"]})
    await client.put("/sessions/grandchild", json={"reads": ["child"]})
    assert "order 4711" not in (await called(client, handle, "grandchild", pattern="ERROR"))["text"]


@pytest.mark.parametrize(
    ("reads", "status"), [(["unknown"], 404), (["/"], 422), (["parent"] * 9, 422), ("x", 422)]
)
async def test_reads_name_open_sessions(client: httpx.AsyncClient, reads: Any, status: int) -> None:
    await stored(client, LOG, "parent")
    assert (await client.put("/sessions/child", json={"reads": reads})).status_code == status
    assert (await client.get("/sessions/child")).status_code == 404


async def test_no_session_reads_results_of_another_tenant(serve: Serve, tmp_path: Any) -> None:
    async with serve(api_keys_file=key_file(tmp_path / "keys", "red:red", "blue:blue")) as client:
        client.headers["Authorization"] = "Bearer red"
        handle = await stored(client, BROKEN, "parent")
        client.headers["Authorization"] = "Bearer blue"
        assert (await client.put("/sessions/child", json={"reads": ["parent"]})).status_code == 404
        own = await stored(client, LOG, "parent")
        assert (await client.put("/sessions/child", json={"reads": ["parent"]})).status_code == 200
        assert "order 4711" not in (await called(client, [own, handle], "child", pattern="ERROR"))["text"]
