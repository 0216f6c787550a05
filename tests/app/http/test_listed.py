"""Lists for a person: sessions by their last use, what is stored, and who asked what."""

import json
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.app.doors.payloads import changed, payload
from tests.conftest import Serve, StillClock
from tests.counts import count
from tests.keys import key_file

pytestmark = pytest.mark.anyio

BIG = "\n".join(f"{n} {'ERROR disk is full' if n == 777 else 'ok'}" for n in range(3000))


async def send(
    client: httpx.AsyncClient, session: str, content: str = BIG, /, **fields: Any
) -> dict[str, Any]:
    sent = {"session_id": session, "tool_name": "Bash", "content": content, **fields}
    answer: dict[str, Any] = (await client.post("/results", json=sent)).raise_for_status().json()
    return answer


async def newest(client: httpx.AsyncClient, **params: Any) -> dict[str, dict[str, Any]]:
    answer = await client.get("/sessions", params={"order": "newest", "last_call": True, **params})
    return {one["session_id"]: one["last_call"] for one in answer.raise_for_status().json()["sessions"]}


async def test_sessions_are_listed_by_their_last_use_with_their_last_call(
    serve: Serve, clock: StillClock
) -> None:
    async with serve(storage_url="memory:") as client:
        await send(client, "b", tool_arguments={"command": "npm test"}, door="codex", project="shop")
        await client.put("/sessions/empty", json={})
        clock.pass_seconds(1)
        await send(client, "a", tool_arguments="as a string", client="my agent")
        clock.pass_seconds(1)
        await send(client, "b", "small", tool_arguments={"command": "ls"}, tool_name="Read", project="shop")
        calls = await newest(client)
        assert list(calls) == ["b", "a", "empty"]
        assert {**calls["b"], "timestamp": 0} == {
            "timestamp": 0,
            "tool_name": "Read",
            "client": None,
            "project": "shop",
            # Of a result that passed, no argument is kept.
            "command": "npm test",
        }
        assert (calls["a"]["client"], calls["a"]["command"]) == ("my agent", "as a string")
        assert calls["empty"] is None
        entries = (await client.get("/accounting/entries")).json()["entries"]
        assert [(one["client"], one["project"]) for one in entries] == [
            ("codex", "shop"),
            ("my agent", None),
            (None, "shop"),
        ]
        first = (await client.get("/sessions", params={"order": "newest", "limit": 1})).json()
        assert first["sessions"][0]["last_call"] is None
        rest = await newest(client, cursor=first["next_cursor"])
        assert list(rest) == ["a", "empty"]
        by_id = await client.get("/sessions", params={"cursor": first["next_cursor"]})
        assert by_id.status_code == 422


async def test_what_is_stored_is_listed_newest_first_and_not_kept_longer(serve: Serve) -> None:
    async with serve(storage_url="memory:") as client:
        commands = [{"command": "make"}, {"file_path": "/a/b.py", "limit": 9}, {"n": 1}, "text", None]
        stored = [await send(client, "s", tool_arguments=one) for one in commands]
        for _ in range(5):
            await send(client, "s", "small")
        await send(client, "other")
        before = (await client.get(f"/results/{stored[0]['handle']}")).json()
        page = (await client.get("/results", params={"session_id": "s"})).json()
        assert [one["handle"] for one in page["results"]] == [one["handle"] for one in reversed(stored)]
        assert [one["command"] for one in page["results"]] == ["", "text", '{"n":1}', "/a/b.py", "make"]
        of_list = {"client": None, "project": None}
        assert {**page["results"][-1], "kind": "text"} == {**before, **of_list}
        await client.delete(f"/results/{stored[1]['handle']}")
        seen, cursor = [], None
        while True:
            more = {} if cursor is None else {"cursor": cursor}
            page = (await client.get("/results", params={"limit": 1, **more})).json()
            seen += [one["session_id"] for one in page["results"]]
            if (cursor := page["next_cursor"]) is None:
                break
        assert seen == ["other", "s", "s", "s", "s"]


async def listed(http: httpx.AsyncClient, path: str, **params: Any) -> list[str]:
    """The command or the id of each on all pages."""
    seen, more = list[str](), dict[str, Any]()
    while True:
        page = (await http.get(path, params={**params, **more})).raise_for_status().json()
        found = page.get("results", page.get("sessions"))
        assert len(found) <= params["limit"]
        seen += [one.get("command", one["session_id"]) for one in found]
        if page["next_cursor"] is None:
            return seen
        more = {"cursor": page["next_cursor"]}


async def test_what_is_stored_is_filtered_page_by_page(serve: Serve, clock: StillClock) -> None:
    async with serve(storage_url="memory:") as client:
        for number in range(60):
            shared = {"tool_arguments": {"command": f"make {number}"}, "project": f"p{number % 3}"}
            doors = {"door": "codex" if number % 2 else "claude-code"}
            named = {"tool_name": "Bash" if number % 5 else "mcp__git__Log"}
            await send(client, f"s{number % 4}", BIG * (1 + number % 2), **shared, **doors, **named)
            clock.pass_seconds(1)
        await send(client, "s0", "small", project="p0")
        size, now, few = len(BIG), clock(), count(11, 60)

        def expected(*numbers: int) -> list[str]:
            return [f"make {number}" for number in reversed(numbers)]

        for limit in (1, 6, 200):
            for params, numbers in (
                ({}, range(60)),
                ({"session_id": "s3"}, range(3, 60, 4)),
                ({"tool_name": "mcp__git__Log"}, range(0, 60, 5)),
                ({"client": "codex", "project": "p1"}, range(1, 60, 6)),
                ({"min_bytes": size + 1}, range(1, 60, 2)),
                ({"max_bytes": size}, range(0, 60, 2)),
                ({"text": "MAKE 4"}, (4, *range(40, 50))),
                ({"text": "git__log", "since": now - 10_500}, (50, 55)),
                ({"since": now - 20_000, "until": now - 17_000}, (40, 41, 42)),
                ({"text": "nowhere"}, ()),
            ):
                if limit == 1 and len(numbers) > few:
                    continue
                assert await listed(client, "/results", limit=limit, **params) == expected(*numbers), params
        few = (await client.get("/results", params={"client": "codex", "limit": 10})).json()
        assert 5 <= len(few["results"]) <= 10
        assert {(one["client"], one["project"]) for one in few["results"]} <= {
            ("codex", f"p{number}") for number in range(3)
        }
        bad = await client.get("/results", params={"since": "yesterday"})
        assert (bad.status_code, bad.json()["code"]) == (422, "invalid_field")


async def test_sessions_are_filtered_page_by_page(serve: Serve, clock: StillClock) -> None:
    async with serve(storage_url="memory:") as client:
        for number in range(30):
            fields = {"tool_arguments": {"command": f"make {number}"}, "project": f"p{number % 3}"}
            for _ in range(1 + number % 2):
                await send(client, f"s{number:02}", tool_name="Bash" if number % 5 else "Log", **fields)
            if number % 10 == 0:
                await send(client, f"s{number:02}", "small", tool_name="Small", door="codex")
            clock.pass_seconds(1)
        now, few = clock(), count(10, 60)

        def expected(*numbers: int) -> list[str]:
            return [f"s{number:02}" for number in numbers]

        for limit in (1, 6, 200):
            for order in ("id", "newest"):
                for params, numbers in (
                    ({}, range(30)),
                    ({"tool_name": "Log"}, range(0, 30, 5)),
                    ({"client": "codex"}, range(0, 30, 10)),
                    ({"project": "p1"}, [n for n in range(1, 30, 3) if n % 10]),
                    ({"min_stored": 2}, range(1, 30, 2)),
                    ({"text": "S1"}, range(10, 20)),
                    ({"text": "Make 2"}, (2, *range(20, 30))),
                    ({"since": now - 5000, "until": now - 2000}, (25, 26, 27)),
                    ({"text": "nowhere"}, ()),
                ):
                    if limit == 1 and len(numbers) > few:
                        continue
                    found = await listed(client, "/sessions", limit=limit, order=order, **params)
                    names = expected(*numbers)
                    assert found == (names if order == "id" else names[::-1]), (params, order)


async def test_a_stored_result_tells_what_it_is_read_as(serve: Serve) -> None:
    rows = [{"id": number, "name": "x" * 40} for number in range(900)]
    async with serve(storage_url="memory:") as client:
        for content, kind in (
            (json.dumps(rows), "json"),
            ("\n".join(map(json.dumps, rows)), "ndjson"),
            ("id,name\n" + "".join(f"{one['id']},{one['name']}\n" for one in rows), "csv"),
            (
                "".join(
                    f"{n:6}\t{line}\n" for n, line in enumerate(json.dumps(rows, indent=1).split("\n"), 1)
                ),
                "json",
            ),
            (BIG, "text"),
        ):
            handle = (await send(client, "s", content))["handle"]
            assert (await client.get(f"/results/{handle}")).json()["kind"] == kind, content[:40]


async def test_the_words_of_questions_are_kept_with_the_session(serve: Serve) -> None:
    async with serve(storage_url="memory:") as client:
        handle = (await send(client, "s"))["handle"]
        await client.post("/extract", json={"handle": handle, "extract": "Which disk is full?"})
        for name, asked in (
            ("tool_output", {"extract": "x" * 5000}),
            ("tool_output_grep", {"pattern": 'disk "a"|ERROR', "context": 1}),
        ):
            call = {"session_id": "s", "name": name, "arguments": {"handle": handle, **asked}}
            assert (await client.post("/tools/call", json=call)).json()["is_error"] is False
        given: list[Any] = []
        # Words are kept in the background: an answer does not wait for it.
        with anyio.move_on_after(20):
            while not given or None in [one["question"] for one in given[1:]]:
                given = (await client.get(f"/results/{handle}/given")).json()["given"]
        assert [one["question"] for one in given] == [
            None,
            "Which disk is full?",
            "x" * 1000,
            'pattern = "disk \\"a\\"|ERROR", context = 1',
        ]
        bare = (await client.get(f"/results/{handle}/given", params={"texts": False})).json()["given"]
        assert bare == [{**one, "text": None} for one in given]
        questions = (await client.get("/sessions/s/questions")).json()
        assert questions["questions"] == [
            {"entry_id": one["entry_id"], "handle": handle, "question": one["question"]}
            for one in reversed(given[1:])
        ]
        assert questions["next_cursor"] is None
        exported = await client.get("/accounting/entries", headers={"Accept": "application/x-ndjson"})
        assert "Which disk" not in exported.text
        await client.delete("/sessions/s")
        await client.put("/sessions/s", json={})
        assert (await client.get(f"/results/{handle}/given")).status_code == 404
        assert (await client.get("/sessions/s/questions")).json()["questions"] == []
        assert (await client.get("/sessions/unknown/questions")).status_code == 404


async def test_an_admins_key_reads_no_command(serve: Serve, tmp_path: Path) -> None:
    keys = key_file(tmp_path / "keys", "red:agent", "ops:admin:admin:ada")
    async with serve(storage_url="memory:", api_keys_file=keys) as client:
        red = {"Authorization": "Bearer agent"}
        sent = {"session_id": "s", "tool_name": "Bash", "content": BIG, "tool_arguments": {"command": "make"}}
        await client.post("/results", json={**sent, "project": "shop"}, headers=red)
        admin = {"Authorization": "Bearer admin", "Spillgate-Tenant": "red"}
        for headers, command in ((red, "make"), (admin, "")):
            answer = await client.get("/sessions", params={"last_call": True}, headers=headers)
            call = answer.json()["sessions"][0]["last_call"]
            assert (call["command"], call["project"]) == (command, "shop")
        for path in ("/results", "/sessions/s/questions"):
            assert (await client.get(path, headers=admin)).status_code == 403


async def test_hooks_name_the_agent_and_the_folder_that_it_works_in(client: httpx.AsyncClient) -> None:
    cursor = changed(payload("cursor", "mcp"), ("workspace_roots",), ["C:\\work\\shop\\"])
    for name, sent in (("claude-code", payload("claude-code", "Bash")), ("cursor", cursor)):
        assert (await client.post(f"/hooks/{name}", json=sent)).status_code == 200
    entries = (await client.get("/accounting/entries")).json()["entries"]
    assert [(one["client"], one["project"]) for one in entries] == [
        ("claude-code", "project"),
        ("cursor", "shop"),
    ]
