"""Queries over stored data, over HTTP."""

import csv
import io
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from app.main import create_app
from extraction import queries
from tests.app.http.edge_support import head, served, settings_of, wait_for
from tests.conftest import Serve, StillClock
from tests.counts import FULL
from tests.keys import key_file

pytestmark = pytest.mark.anyio
NUMBERS = json.dumps([1] * 1000)
"""More than the message that replaces it."""

ROWS = [
    {"id": n, "level": "ERROR" if n % 50 == 0 else "ok", "ms": n * 1.5, "host": f"web-{n % 3}"}
    for n in range(2000)
]
NDJSON = "\n".join(map(json.dumps, ROWS))
CSV = "id,level,ms,host\r\n" + "".join(
    f'{row["id"]},{row["level"]},{row["ms"]},"{row["host"]}"\r\n' for row in ROWS
)
HOSTILE = {
    "exponential": "[@, @]" + " | [@, @]" * 60,
    "nested": "map(&map(&length(to_string(@)), values(@)), @)" + " | [@, @, @, @, @, @] | []" * 12,
    "strings": "[].to_string(@)" + " | [join('', @), join('', @)]" * 40,
    "sorted": "[@, @, @, @] | []" + " | [@, @, @, @] | []" * 6 + " | sort_by(@, &to_string(@))",
    "objects": "{a: @, b: @}" + " | {a: @, b: @}" * 60,
    "recursion": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
    "join": "SELECT a.id, b.ms, c.host FROM data a, data b, data c, data d ORDER BY b.ms + c.id + d.id",
    "memory": "WITH RECURSIVE c(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM c) SELECT length(x) FROM c",
    "repeated": "SELECT length(repeat('x', 1000000000) || repeat('y', 1000000000))",
    "range": "SELECT sum(length(md5(i::VARCHAR))) FROM range(1000000000000) t(i)",
    "lists": "SELECT list(a.text || b.text) FROM lines a, lines b, lines c",
}
"""Queries that would not end, or would take all memory."""
OF_EACH_KIND = ("exponential", "strings", "join", "repeated")
"""By time and by memory, in JMESPath and in SQL."""
ATTACKS = [HOSTILE[name] for name in (HOSTILE if FULL else OF_EACH_KIND)]


async def keep(client: httpx.AsyncClient, text: str, **fields: Any) -> str:
    answer = await client.post("/results", json={"tool_name": "t", "content": text, **fields})
    return str(answer.json()["handle"])


async def as_csv(client: httpx.AsyncClient, handle: str, expression: str) -> httpx.Response:
    params = {"expression": expression, "limit": 3, "offset": 1}
    return await client.get(f"/results/{handle}/query", params=params, headers={"Accept": "text/csv"})


@pytest.mark.usefixtures("queries_here")
async def test_all_rows_of_a_query_are_csv_that_a_spreadsheet_may_open(client: httpx.AsyncClient) -> None:
    handle = await keep(client, NDJSON, session_id="s")
    answer = await as_csv(client, handle, 'SELECT id, level, host AS "the, host" FROM data ORDER BY id')
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    read = list(csv.reader(io.StringIO(answer.text)))
    assert read[0] == ["id", "level", "the, host"]
    assert read[1:] == [[str(row["id"]), row["level"], row["host"]] for row in ROWS]
    none = await as_csv(client, handle, "SELECT id, ms FROM data WHERE id < 0")
    assert none.text == "id,ms\r\n"
    made = await as_csv(client, handle, "[:2].{formula: '=1+1', nested: @, nothing: none, less: `-5`}")
    names, first, _ = csv.reader(io.StringIO(made.text))
    assert names == ["formula", "nested", "nothing", "less"]
    assert [first[0], json.loads(first[1]), *first[2:]] == ["'=1+1", ROWS[0], "", "-5"]
    one = await as_csv(client, handle, "length(@)")
    assert (one.status_code, one.json()["detail"]) == (
        422,
        "Only rows can be CSV: the query selects one value.",
    )
    large = await as_csv(client, handle, "SELECT repeat('x', 2000) FROM data a, data b LIMIT 10000")
    assert large.status_code == 422
    assert "select fewer" in large.json()["detail"]
    reads = (await client.get("/accounting/entries?type=read")).json()["entries"]
    assert len(reads) == 3


async def asked(client: httpx.AsyncClient, handle: str, expression: str, **more: Any) -> dict[str, Any]:
    answer = await client.get(f"/results/{handle}/query", params={"expression": expression, **more})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def refused(client: httpx.AsyncClient, handle: str, expression: str, code: str, *said: str) -> None:
    answer = await client.get(f"/results/{handle}/query", params={"expression": expression})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["retryable"]) == (422, code, False), expression[:40]
    assert answer.headers["content-type"] == "application/problem+json"
    for part in said:
        assert part in problem["detail"]
    assert "S3cret" not in answer.text
    assert "web-" not in answer.text


@pytest.mark.usefixtures("queries_here")
async def test_counts_lists_extremes_and_filters_are_answered(client: httpx.AsyncClient) -> None:
    for text, kind in ((CSV, "csv"), (NDJSON, "ndjson"), (json.dumps(ROWS), "json")):
        handle = await keep(client, text)
        counted = await asked(client, handle, "length([?level == 'ERROR' && ms > `10`])")
        rest = {"total": None, "next_offset": None, "truncated": False, "hint": "", "columns": None}
        assert counted == {"result": 39, "type": "number", "kind": kind, **rest}
    assert (await asked(client, handle, "max_by(@, &ms)"))["result"] == ROWS[-1]
    assert (await asked(client, handle, "[?ms > `2995`].id"))["result"] == [1997, 1998, 1999]


@pytest.mark.usefixtures("queries_here")
async def test_an_array_is_paged_by_items(client: httpx.AsyncClient) -> None:
    handle = await keep(client, NDJSON)
    seen: list[int] = []
    offset: int | None = 0
    while offset is not None:
        page = await asked(client, handle, "[?level == 'ERROR'].id", limit=17, offset=offset)
        assert page["total"] == 40
        assert page["truncated"]
        seen += page["result"]
        offset = page["next_offset"]
    assert seen == list(range(0, 2000, 50))


@pytest.mark.usefixtures("queries_here")
async def test_an_answer_keeps_to_the_sessions_size_cap(client: httpx.AsyncClient) -> None:
    await client.put("/sessions/s", json={"policy": {"max_bytes": 1000}})
    handle = await keep(client, json.dumps(ROWS), session_id="s")
    page = await asked(client, handle, "@", limit=500)
    assert len(json.dumps(page["result"], separators=(",", ":"))) <= 1000
    assert page["next_offset"] == len(page["result"]) > 5
    string = await asked(client, handle, "to_string(@)")
    assert string["truncated"]
    assert 900 < len(json.dumps(string["result"])) <= 1000
    wide = await client.get(f"/results/{handle}/query", params={"expression": "{all: @}"})
    assert wide.status_code == 422
    assert wide.json()["code"] == "query_too_costly"
    assert "an answer holds 1,000" in wide.json()["detail"]


@pytest.mark.usefixtures("queries_here")
async def test_what_is_read_is_accounted(client: httpx.AsyncClient) -> None:
    handle = await keep(client, json.dumps(ROWS))
    page = await asked(client, handle, "[].host", limit=3)
    entries = (await client.get("/accounting/entries", params={"type": "read"})).json()["entries"]
    assert [entry["details"]["tool_output_handle"] for entry in entries] == [handle]
    assert entries[0]["charactersOut"] == len(json.dumps(page["result"], separators=(",", ":")))
    assert entries[0]["tokens_saved"] == -entries[0]["tokens_out"] < 0
    await refused(client, handle, "S3cret[?", "bad_query", "at its end")


@pytest.mark.usefixtures("queries_here")
async def test_a_wrong_expression_is_422_and_says_what_to_do(client: httpx.AsyncClient) -> None:
    handle = await keep(client, json.dumps(ROWS))
    for expression, says in (
        ("S3cret]x", "character 7"),
        ("S3cret(@)", "Known are: abs"),
        ("sum([].host)", "sum() takes array-number, and gets string here."),
        ("&S3cret", "give it to a function"),
        ("(" * 3000, "too deeply"),
    ):
        await refused(client, handle, expression, "bad_query", says)
    for parameters in ({}, {"expression": ""}, {"expression": "x" * 5000}, {"expr": "@"}):
        answer = await client.get(f"/results/{handle}/query", params=parameters)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")


@pytest.mark.usefixtures("queries_here")
async def test_what_is_no_data_is_named_and_another_way_is_told(client: httpx.AsyncClient) -> None:
    for text, says in (
        ("some words S3cret\n" * 2000, "plain text"),
        ("<html><body>S3cret</body></html>\n" * 1000, "HTML"),
        ('{"S3cret": 1,\n' + '"a": [1, 2],\n' * 2000, "line 2002, column 1"),
        ("[" * 200_000, "too deeply"),
        ('a,b,c\n1,2,3\n1,"S3cret,3\n' + "1,2,3\n" * 3000, "not closed"),
    ):
        await refused(client, await keep(client, text), "@", "not_queryable", says, "`pattern`")


@pytest.mark.usefixtures("queries_here")
async def test_data_beyond_the_cap_is_not_queried(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert queries.MAX_DATA_BYTES == 134_217_728
    monkeypatch.setattr(queries, "MAX_DATA_BYTES", 20_000)
    await refused(client, await keep(client, f"[{'1,' * 10_000}1]"), "@", "not_queryable", "up to 20,000 can")


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine: processor time and memory end queries, not the clock."""
    monkeypatch.setattr(queries, "RUN_SECONDS", 600)
    monkeypatch.setattr(queries, "WAIT_SECONDS", 600)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, unhurried: None) -> None:
    """Queries have half of the memory and a quarter of the time, so that hostile ones end sooner."""
    less = "child.MEMORY_BYTES, child.EVALUATE_SECONDS = 320 << 20, 1"
    code = f"from extraction import query_child as child; {less}; child.main()"
    monkeypatch.setattr(queries, "_COMMAND", (sys.executable, "-S", "-P", "-c", code))


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(
    "text", ["[" + "[]," * 1_500_000 + "[]]", "a,b\n" + "10,21\n" * 300_000], ids=["json", "csv"]
)
async def test_data_that_unpacks_to_far_more_is_refused(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    code = "from extraction import query_child as child; child.MEMORY_BYTES = 80 << 20; child.main()"
    monkeypatch.setattr(queries, "_COMMAND", (sys.executable, "-S", "-P", "-c", code))
    await refused(client, await keep(client, text), "@", "query_too_costly")


@pytest.mark.repeated
@pytest.mark.usefixtures("small")
async def test_a_query_without_end_is_stopped_and_the_service_answers_meanwhile(
    client: httpx.AsyncClient,
) -> None:
    handle = await keep(client, json.dumps(ROWS))
    stopped: list[str] = []

    async def attack(expression: str) -> None:
        await refused(client, handle, expression, "query_too_costly")
        stopped.append(expression)

    answered = 0
    async with anyio.create_task_group() as tasks:
        for expression in ATTACKS:
            tasks.start_soon(attack, expression)
        while len(stopped) < len(ATTACKS):
            assert (await client.get("/livez")).status_code == 200
            answered += 1
            await anyio.sleep(0.1)
    assert answered > 10


async def test_what_a_library_prints_in_the_child_is_no_part_of_its_answer(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # DuckDB prints the progress of a query that takes more than two seconds.
    code = """
import os
from extraction import query_child as child
answer = child.Answerer.answer
child.Answerer.answer = lambda *asked: os.write(1, b"12 %\\n") and answer(*asked)
child.main()
"""
    monkeypatch.setattr(queries, "_COMMAND", (sys.executable, "-S", "-P", "-c", code))
    handle = await keep(client, json.dumps(ROWS))
    asked = {"expression": "SELECT count(*) AS n FROM data"}
    answer = await client.get(f"/results/{handle}/query", params=asked)
    assert answer.json()["result"] == [{"n": len(ROWS)}], answer.text


def test_who_hangs_up_ends_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = tmp_path / "began"
    endless = f"import os, time; open({str(began)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    monkeypatch.setattr(queries, "_COMMAND", (sys.executable, "-c", endless))
    settings = settings_of()
    app = create_app(settings)
    app.state.codes = []
    with served(app, settings) as service:
        content = {"tool_name": "t", "content": NUMBERS, "policy": {"max_bytes": 1}}
        handle = httpx.post(f"{service.url}/results", json=content, trust_env=False).json()["handle"]
        with service.connect() as sock:
            sock.sendall(head("GET", f"/results/{handle}/query?expression=@"))
            wait_for(lambda: began.exists() and began.read_text().endswith("\n"))
        wait_for(lambda: not runs(int(began.read_text())))


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")


async def test_a_tenant_that_queries_without_end_holds_up_no_other(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = key_file(tmp_path / "keys", "one:key of one", "two:key of two")
    async with serve(api_keys_file=keys) as client:
        headers = [{"Authorization": f"Bearer key of {tenant}"} for tenant in ("one", "two")]
        sent = {"tool_name": "t", "content": NUMBERS, "policy": {"max_bytes": 1}}
        answers = [await client.post("/results", json=sent, headers=each) for each in headers]
        paths = [f"/results/{answer.json()['handle']}/query?expression=@" for answer in answers]
        started = anyio.Event()
        begin = queries.anyio.open_process

        async def open_process(*arguments: Any, **options: Any) -> Any:
            process = await begin(*arguments, **options)
            started.set()
            return process

        monkeypatch.setattr(queries, "_COMMAND", SLEEP)
        monkeypatch.setattr(queries.anyio, "open_process", open_process)
        async with anyio.create_task_group() as tasks:
            for _ in range(2 * queries.AT_A_TIME):
                tasks.start_soon(partial(client.get, paths[0], headers=headers[0]))
            await started.wait()
            monkeypatch.undo()
            assert (await client.get(paths[1], headers=headers[1])).status_code == 200
            tasks.cancel_scope.cancel()


async def test_a_query_that_the_wall_clock_ends_may_be_tried_again(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await keep(client, NUMBERS, policy={"max_bytes": 1})
    monkeypatch.setattr(queries, "RUN_SECONDS", 0.05)
    monkeypatch.setattr(queries, "_COMMAND", SLEEP)
    answer = await client.get(f"/results/{handle}/query", params={"expression": "@"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert (answer.json()["code"], answer.json()["retryable"]) == ("overloaded", True)
    assert "the service is busy" in answer.json()["detail"]


@pytest.mark.usefixtures("queries_here")
async def test_hostile_text_in_the_data_is_answered_as_json(client: httpx.AsyncClient) -> None:
    text = '\ufeff{"a": "\\ud83d", "n": 12345678901234567890123, "x": NaN, "y": 1e999, "a b": 1, "a b": 2,'
    handle = await keep(client, f'{text} "rest": {NUMBERS}}}', policy={"max_bytes": 50})
    told = await asked(client, handle, '{s: a, n: n, x: x, y: y, d: "a b"}')
    assert told["result"] == {"s": "\ufffd", "n": 12345678901234567890123, "x": None, "y": None, "d": 2}


async def test_a_result_that_is_unknown_expired_or_of_an_ended_session_is_not_queried(
    client: httpx.AsyncClient, clock: StillClock
) -> None:
    expired = await keep(client, NDJSON, session_id="s")
    clock.pass_seconds(100_000)
    ended = await keep(client, NDJSON, session_id="r")
    await client.delete("/sessions/r")
    for handle, status, code in (
        ("nonsense", 404, "result_not_found"),
        ("session-default/file-00000000-0000-4000-8000-000000000000", 404, "result_not_found"),
        (expired, 410, "result_expired"),
        (ended, 410, "session_ended"),
    ):
        answer = await client.get(f"/results/{handle}/query", params={"expression": "@"})
        assert (answer.status_code, answer.json()["code"]) == (status, code)
