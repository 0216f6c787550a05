"""SQL over stored data: over HTTP, in the confined process of a query, and as text for a model."""

import functools
import json
from contextlib import suppress
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from domain.errors import BadQuery, QueryTooCostly
from extraction import query_child, query_tables
from extraction.query_tables import confine, connect
from extraction.query_terms import DataQuery
from tests.app.answering.test_query import CSV, NDJSON, ROWS, keep
from tests.counts import count

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]


@pytest.fixture(scope="module")
def client(shared_client: httpx.AsyncClient) -> httpx.AsyncClient:
    return shared_client


BY_HOST = (
    "SELECT host, count(*) AS n, sum(ms) AS ms FROM data WHERE level = 'ERROR' GROUP BY host ORDER BY host"
)
CUSTOMERS = json.dumps(
    {
        "total": 400,
        "page": {"next": "abc", "sizes": [100, 200]},
        "items": [
            {
                "id": n,
                "order": n % 7,
                "price": f"{n}.50",
                "code": f"{n:04}",
                "active": n % 2 == 0,
                "billing": {"email": f"c{n}@example.com", "tags": [f"t{n % 3}"]},
                "lines": [{"sku": f"s{k}", "qty": k} for k in range(n % 4)],
            }
            for n in range(400)
        ],
    }
)


async def selected(client: httpx.AsyncClient, handle: str, sql: str, **more: Any) -> dict[str, Any]:
    answer = await client.get(f"/results/{handle}/query", params={"expression": sql, **more})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def rows_of(client: httpx.AsyncClient, handle: str, sql: str) -> list[Any]:
    rows: list[Any] = (await selected(client, handle, sql))["result"]
    return [next(iter(row.values())) if len(row) == 1 else tuple(row.values()) for row in rows]


async def told(client: httpx.AsyncClient, handle: str, sql: str) -> tuple[str, bool]:
    body = {"name": "tool_output", "arguments": {"handle": handle, "query": sql}}
    answer = await client.post("/tools/call", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["text"], answer.json()["is_error"]


async def test_json_lines_json_and_tables_are_the_same_rows(client: httpx.AsyncClient) -> None:
    wanted = [
        {"host": f"web-{h}", "n": len(found), "ms": sum(found)}
        for h in range(3)
        if (found := [row["ms"] for row in ROWS if row["level"] == "ERROR" and row["host"] == f"web-{h}"])
    ]
    for text, kind in ((CSV, "csv"), (NDJSON, "ndjson"), (json.dumps(ROWS), "json")):
        answer = await selected(client, await keep(client, text), BY_HOST)
        whole = {"type": "array", "total": 3, "next_offset": None, "truncated": False, "hint": ""}
        assert answer == {"result": wanted, "kind": kind, "columns": ["host", "n", "ms"], **whole}


async def test_select_and_with_begin_sql_in_any_case_after_comments(client: httpx.AsyncClient) -> None:
    handle = await keep(client, NDJSON)
    for sql in (
        "  sElEcT count(*) FROM data;",
        "-- how many\n/* in all */ SELECT\ncount(*) FROM data -- done",
        "WITH errors AS (SELECT * FROM data) SELECT count(*) FROM errors",
        "SELECT(SELECT count(*) FROM data)",
        "FROM data SELECT count(*)",
        "```sql\nSELECT count(*) FROM data\n```",
    ):
        assert await rows_of(client, handle, sql) == [2000]
    text = json.dumps({"select": {"a": 7}, "rest": ["x"] * 5000})
    handle = await keep(client, text)
    for path in ("select.a", '"select".a'):
        answer = await selected(client, handle, path)
        assert (answer["result"], answer["columns"]) == (7, None)


async def test_the_records_within_an_object_are_the_rows_and_the_rest_is_document(
    client: httpx.AsyncClient,
) -> None:
    handle = await keep(client, CUSTOMERS)
    answer = await selected(client, handle, "SELECT count(*), sum(id), count(*) FILTER (active) n FROM data")
    assert answer["result"] == [{"count(*)": 400, "sum(id)": 79_800, "n": 200}]
    assert answer["hint"] == "data is $.items."
    for sql, wanted in (
        ("SELECT total FROM document", [400]),
        ("SELECT page.next FROM document", ["abc"]),
        ("SELECT unnest(page.sizes) FROM document", [100, 200]),
        ("SELECT billing.email FROM data WHERE id = 3", ["c3@example.com"]),
        (
            "SELECT d.billing.email FROM data AS d WHERE d.billing.email LIKE 'c39_@%' LIMIT 1",
            ["c390@example.com"],
        ),
        ("SELECT billing.tags[1] FROM data WHERE id = 5", ["t2"]),
        ("SELECT billing.tags FROM data LIMIT 1", [["t0"]]),
        ('SELECT "order" FROM data ORDER BY "order" DESC LIMIT 1', [6]),
        ("SELECT code FROM data WHERE code = '0007'", ["0007"]),
        ("SELECT id FROM data WHERE price = '7.50'", [7]),
        ("SELECT max(CAST(price AS DOUBLE)) FROM data", [399.5]),
        ("SELECT id FROM data WHERE active = true AND id < 4", [0, 2]),
        ("SELECT id FROM data WHERE active = 'true' AND id < 4", [0, 2]),
        ("SELECT sum(l.qty) FROM (SELECT unnest(lines) l FROM data)", [400]),
        ("SELECT rowid FROM data WHERE id = 9", [9]),
    ):
        assert await rows_of(client, handle, sql) == wanted, sql


@pytest.mark.parametrize(
    ("value", "columns", "count"),
    [
        ([{"Name": 1, "name": 2, "NAME": 3}], ["Name", "name_2", "NAME_3"], 1),
        (
            [{"": 1, 'a"b': 2, "a`b": 3, "a b\n": 4, "x.y": 5, "x": {"y": 6}}],
            ["column_1", 'a"b', "a`b", "a b", "x.y", "x"],
            1,
        ),
        ([{"a": 1, "a_1": 2, "A": 3}], ["a", "a_1", "A_2"], 1),
        ([{"x": {"k": 1, "K": 2}}], ["x"], 1),
        ([1, "a", None], ["value"], 3),
        ([[1, 2], [3]], ["column_1", "column_2"], 2),
        ([["id", "n"], [1, "x"], [2, "y"]], ["id", "n"], 2),
        ([[{"a": 1}], [{"a": 2}, {"a": 3}]], ["_list", "a"], 3),
        ({"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}, ["key", "n"], 3),
        ({"x": [1, 2, 3], "y": [4, 5, 6]}, ["x", "y"], 3),
        ({"name": "n", "tags": ["a", "b"]}, ["name", "tags"], 1),
        ({"r": {"s": {"items": [{"a": 1}]}}, "few": []}, ["a"], 1),
        ([{"a\x00b": "x\x00y", "s": "\ud83d", "n": 2**70, "m": -(2**63)}], ["a b", "s", "n", "m"], 1),
        ([], ["value"], 0),
    ],
    ids=str,
)
async def test_any_value_has_columns_whose_names_sql_can_spell(
    client: httpx.AsyncClient, value: object, columns: list[str], count: int
) -> None:
    text = json.dumps(value) + " " * 20_000
    handle = await keep(client, text)
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    answer = await selected(client, handle, f"SELECT {names} FROM data")
    assert (answer["total"], answer["columns"]) == (count, columns)
    assert (await selected(client, handle, "SELECT * FROM data"))["columns"] == columns


async def test_beyond_2000_columns_the_rest_is_json(client: httpx.AsyncClient) -> None:
    handle = await keep(
        client, json.dumps([{f"k{n}": n for n in range(3000)}, {"k2999": "x"}]), session_id="wide"
    )
    await client.put("/sessions/wide", json={"policy": {"max_bytes": 200_000}})
    assert len((await selected(client, handle, "SELECT * FROM data LIMIT 1"))["columns"]) == 2000
    sql = "SELECT k1998, _more->>'k2999' FROM data"
    assert await rows_of(client, handle, sql) == [(1998, "2999"), (None, "x")]


async def test_a_name_that_is_unknown_is_answered_with_all_names(client: httpx.AsyncClient) -> None:
    handle = await keep(client, NDJSON)
    for sql, said in (
        (
            "SELECT hst FROM data",
            "No column is named hst. The nearest is host. Columns of data: id BIGINT, level, ms DOUBLE, "
            "host. lines has line, text.",
        ),
        (
            "SELECT id FROM logs",
            "No table is named logs. Columns of data: id BIGINT, level, ms DOUBLE, host.",
        ),
        ('SELECT id FROM data WHERE level = "FATAL"', "No column is named FATAL. Columns of data: id BIGINT"),
        ("SELECT id FROM data WHERE level = 'error'", "level has ok (1,960), ERROR (40)."),
        ("SELECT id FROM data WHERE level = 'error'", "“error” is in 40 rows of level, such as “ERROR”."),
        ("SELECT id FROM data WHERE host LIKE 'WEB%'", "LIKE tells case: ILIKE finds 2,000 rows."),
        ("SELECT id FROM data WHERE level = 'fatal'", "“fatal” is nowhere in the data."),
        ("SELECT id FROM data WHERE level = 'web'", "“web” is in no cell of level, but in 2,000 lines."),
        ("SELECT id FROM data WHERE ms > 90000", "ms is from "),
        ("SELECT * FROM data LIMIT 5 OFFSET 5000", "2,000 rows: offset 5,000 is past the last."),
        ("SELECT id FROM data WHERE level = 'x' LIMIT 5 OFFSET 9", "level has ok (1,960)"),
    ):
        answer = await selected(client, handle, sql)
        assert (answer["result"], answer["total"]) == ([], 0)
        assert said in answer["hint"], sql
        text, is_error = await told(client, handle, sql)
        assert (text, is_error) == (f"[]\n[Nothing is selected. {answer['hint']}]", False)


async def test_rows_are_paged_within_the_cap(client: httpx.AsyncClient) -> None:
    handle = await keep(client, NDJSON)
    seen: list[int] = []
    offset: int | None = 0
    while offset is not None:
        page = await selected(
            client, handle, "SELECT id FROM data WHERE level = 'ERROR'", limit=17, offset=offset
        )
        assert page["total"] == 40
        seen += [row["id"] for row in page["result"]]
        offset = page["next_offset"]
    assert seen == list(range(0, 2000, 50))
    text, _ = await told(client, handle, "SELECT id, host FROM data")
    lines = text.splitlines()
    assert lines[:2] == ["id | host", "0 | web-0"]
    count = len(lines) - 2
    assert lines[-1] == f"[Rows 1 to {count:,} of 2,000. Go on with: LIMIT {count} OFFSET {count}]"
    text, _ = await told(client, handle, f"SELECT id, host FROM data LIMIT {count} OFFSET {count}")
    assert text.splitlines()[1] == f"{count} | web-{count % 3}"
    text, _ = await told(client, handle, "SELECT id, host FROM data LIMIT 1500 OFFSET 10")
    shown = len(text.splitlines()) - 2
    assert text.endswith(f"of 1,500. Go on with: LIMIT {1500 - shown} OFFSET {10 + shown}]")


async def test_a_model_reads_a_table_or_the_single_value(client: httpx.AsyncClient) -> None:
    handle = await keep(client, NDJSON)
    assert await told(client, handle, "SELECT count(*) FROM data") == ("2000", False)
    text, _ = await told(client, handle, "SELECT max(ms) FROM data WHERE id < 0")
    assert text == "null\n[id is from 0 to 1999.]"
    text, _ = await told(client, handle, "SELECT level, count(*) AS n FROM data GROUP BY level ORDER BY n")
    assert text.splitlines() == ["level | n", "ERROR | 40", "ok | 1960", "[2 rows.]"]
    handle = await keep(client, json.dumps([{"id": n, "body": f"{n} " + "word " * 20_000} for n in range(3)]))
    text, _ = await told(client, handle, "SELECT id, body FROM data WHERE id = 1")
    assert text.startswith("id | body\n1 | 1 word word")
    assert text.endswith("[1 row. Texts are cut: substr(column, 1, 1000) selects a part.]")
    assert 1000 < len(text) < 12_288
    plain = {"Accept": "text/plain"}
    asked = {"expression": "SELECT id FROM data", "limit": 1, "offset": 1}
    answer = await client.get(f"/results/{handle}/query", params=asked, headers=plain)
    assert answer.text == "id\n1\n[Rows 2 to 2 of 3. Go on with: LIMIT 1 OFFSET 2]"


REFUSED = {
    "INSERT INTO data VALUES (1)": "can only read",
    "UPDATE data SET id = 1": "can only read",
    "PRAGMA table_info(data)": "can only read",
    "ATTACH '/tmp/S3cret' AS s": "can only read",
    "EXPLAIN SELECT 1": "can only read",
    "COPY data TO '/tmp/S3cret'": "can only read",
    "INSTALL httpfs": "can only read",
    "LOAD 'S3cret'": "can only read",
    "SET memory_limit = '9GB'": "can only read",
    "RESET lock_configuration": "can only read",
    "EXPORT DATABASE '/tmp/S3cret'": "can only read",
    "CALL pragma_version()": "can only read",
    "WITH x AS (INSERT INTO data (id) VALUES (1) RETURNING 1) SELECT * FROM x": "can only read",
    "SELECT 1; DROP TABLE data": "can only read",
    "SELECT 1; SELECT 2": "can only read",
    "SELECT * FROM read_csv('/etc/S3cret')": "can only read",
    "SELECT * FROM read_text('/etc/S3cret')": "can only read",
    "SELECT * FROM glob('/S3cret*')": "can only read",
    "SELECT load_extension('/tmp/S3cret.so')": "no such function",
    "SELECT getenv('S3cret')": "no such function",
    "SELECT S3cret(id) FROM data": "no such function",
    "SELECT id FORM data": "is not SQL as DuckDB reads it",
    "SELECT sum(id": "something is missing at its end",
    "SELECT 'S3cret": "is not SQL",
    "SELECT": "something is missing at its end",
    "SELEC id FROM data": "SQL begins with SELECT or WITH. This expression does not, and is no JMESPath",
    "SELECT sum(count(*)) FROM data": "cannot run the query",
    "SELECT sum(level) FROM data": 'level is text ("ERROR"): CAST it, or take the number with part().',
    "SELECT CAST(level AS INTEGER) FROM data": "TRY_CAST gives NULL instead",
    "SELECT level FROM data GROUP BY id": "level must be in GROUP BY",
    "SELECT id FROM data GROUP BY 9": "GROUP BY",
    "SELECT list_transform([1], x -> x + 1)": "[x + 1 FOR x IN list IF x > 0]",
    "SELECT id\x00 FROM data": "null character",
    "SELECT " + "(" * 300: "DuckDB",
}


async def test_what_does_not_read_is_refused_in_two_sentences(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_tables, "connect", connect)
    monkeypatch.setattr(query_tables, "confine", confine)
    # Of these bytes no unconfined tables are kept.
    handle = await keep(client, f"{NDJSON}\n")
    for sql, said in REFUSED.items():
        answer = await client.get(f"/results/{handle}/query", params={"expression": sql})
        problem = answer.json()
        refused = (answer.status_code, problem["code"], problem["retryable"])
        assert refused == (422, "bad_query", False), sql
        assert said in problem["detail"], sql
        assert "S3cret" not in answer.text
        text, is_error = await told(client, handle, sql)
        assert is_error, sql
        assert text.startswith(problem["detail"]), sql
        assert len(text) < 500, sql
    assert await rows_of(client, handle, "SELECT count(*) FROM data") == [2000]


async def test_the_model_is_shown_where_its_query_cannot_be_read(client: httpx.AsyncClient) -> None:
    text, _ = await told(client, await keep(client, NDJSON), "SELECT id FROM data WERE level = 'ok'")
    assert text.endswith("It cannot be read near: data WERE level = 'ok'")


@pytest.mark.parametrize("depth", [900, 3000, 45_000])
async def test_deep_data_is_read_or_refused(client: httpx.AsyncClient, depth: int) -> None:
    """How deep Python's parser and the walk over its value go differs between versions of Python."""
    handle = await keep(client, "[" * depth + "]" * depth + " " * 20_000)
    answer = await client.get(f"/results/{handle}/query", params={"expression": "SELECT * FROM data"})
    assert answer.status_code == 200 or "nested too deeply" in answer.json()["detail"], answer.text


SYNTAX = """
SELECT WITH FROM data WHERE GROUP BY ORDER LIMIT OFFSET id level ms host "host" `ms` [id] 'x' "x 'x
count( * ( ) , ; -- /* */ = < LIKE AND OR NOT NULL 1 -1 1e999 x'00' CAST( AS TEXT json_each(
json_extract( '$.a' UNION ALL JOIN ON a b . .. || -> ->> ? :x @y $z CASE WHEN THEN END DESC DISTINCT
HAVING OVER( VALUES EXISTS IN document duckdb_settings() main. temp. rowid UNNEST( data.id
data.level.x \x00 \ud800 é 中 RECURSIVE
"""
WORDS = SYNTAX.split()


@functools.cache
def over_few_rows() -> query_child.Answerer:
    data = json.dumps([{**row, "n": {"a": row["id"], "b": [1]}} for row in ROWS[:5]]).encode()
    # `SELECT .id` is JMESPath, which reads the data each time.
    return query_child.Answerer(lambda: data)


@settings(max_examples=count(20, 200))
@given(
    words=st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=14),
    start=st.sampled_from(["SELECT ", "WITH "]),
)
@example(words=["1"], start="SELECT ")
@example(words=[".", "id"], start="SELECT ")
def test_any_sql_is_answered_or_refused_by_the_child(words: list[str], start: str) -> None:
    with suppress(BadQuery, QueryTooCostly, MemoryError):
        answer = over_few_rows().answer(DataQuery(start + " ".join(words), 2000))
        msgspec.json.decode(answer.slice.result)


def _table(mark: str, names: str, *cells: tuple[str, ...]) -> str:
    rows = (mark.join(f'"{cell}"' if mark in cell else cell for cell in row) for row in cells)
    return "\n".join((mark.join(names.split()), *rows)) + "\n"


async def test_numbers_in_a_form_for_people_are_numbers(client: httpx.AsyncClient) -> None:
    numbers = [n * 1237 for n in range(900)]
    dollars = [(f"item {n}", f"${n:,}.25", f"{n:,}") for n in numbers]
    shop = await keep(client, _table(",", "name price sold", *dollars))
    for sql, wanted, note in (
        (
            "SELECT sum(price) FROM data",
            sum(numbers) + 225,
            "price is read as numbers without its commas and its",
        ),
        ("SELECT max(sold) FROM data", numbers[-1], "sold is read as numbers without its commas."),
        ("SELECT count(*) FROM data WHERE sold > 5000", sum(n > 5000 for n in numbers), "without its commas"),
    ):
        answer = await selected(client, shop, sql)
        assert list(answer["result"][0].values()) == [wanted], sql
        assert note in answer["hint"], answer["hint"]
    assert (await selected(client, shop, "SELECT name FROM data"))["hint"] == ""


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1,234", "12,500"], [1234, 12500]),
        (["$1,234.50", "$76.50"], [76.5, 1234.5]),
        (["12%", "7.5%"], [7.5, 12]),
        (["($7.10)", "-$5", "$1,000"], [-7.1, -5, 1000]),
        (["0.1234567890123", "9.5"], [0.1234567890123, 9.5]),
        ([".097", "5.", "+3"], [0.097, 3, 5]),
        (["1e-05", "0.5"], [1e-05, 0.5]),
        (["170141183460469231731687303715884105727", "5"], [5, "170141183460469231731687303715884105727"]),
    ],
)
async def test_numbers_have_one_form(
    client: httpx.AsyncClient, cells: list[str], numbers: list[float]
) -> None:
    table = _table(",", "amount text", *((cell, "some more words here") for cell in cells * 400))
    sql = "SELECT DISTINCT amount FROM data WHERE amount > -99 ORDER BY amount"
    assert await rows_of(client, await keep(client, table), sql) == numbers


@pytest.mark.parametrize(
    "cells",
    [
        ["$5", "5"],
        ["$5", "€5"],
        ["1,2", "10,20"],
        ["1.2.3", "1.2.4"],
        ["007", "12"],
        ["2e00017", "3e00018"],
        ["12%", "ten"],
        ["30d", "7d"],
        ["899Mi", "1Gi"],
        ["1'234.50", "7.00"],
        ["--5", "5"],
        ["N/A", "5"],
        ["1" * 50, "5"],
    ],
)
async def test_other_texts_stay_as_they_are(client: httpx.AsyncClient, cells: list[str]) -> None:
    table = _table(",", "code text", *((cell, "some more words here") for cell in cells * 400))
    for text in (table, json.dumps([{"code": cell} for cell in cells * 400])):
        handle = await keep(client, text)
        assert await rows_of(client, handle, "SELECT DISTINCT code FROM data ORDER BY code") == sorted(cells)
        hint = (await selected(client, handle, "SELECT max(code) FROM data"))["hint"]
        are_digits = all(cell.lstrip("-$€")[:1].isdigit() and cell != "--5" for cell in cells)
        assert ("compared as text" in hint) is are_digits, hint


async def test_a_text_whose_order_is_that_of_what_it_says_has_no_note(client: httpx.AsyncClient) -> None:
    rows = [(f"2026-11-{n % 28 + 1:02}", f"name {n}") for n in range(900)]
    handle = await keep(client, _table(",", "day name", *rows))
    for sql in ("SELECT max(day) FROM data", "SELECT name FROM data ORDER BY name LIMIT 1"):
        assert (await selected(client, handle, sql))["hint"] == ""


@pytest.mark.parametrize(
    ("text", "sql", "rows", "note"),
    [
        ("ada,admin\nbob,user\ncy,admin\n" * 900, "SELECT count(*) FROM data", [2700], ""),
        (
            "city,land\n" + "Oslo,no\nLima,pe\n" * 900,
            "SELECT count(*) FROM data",
            [1800],
            "First row taken as names.",
        ),
        (
            "20K\ta\n" + "572K\tb\n260K\tc\n" * 900,
            "SELECT count(*) FROM data",
            [1800],
            "First row taken as names.",
        ),
        (
            "Report of the year\nmade,2026-11-02\n\nid,city,n\n" + "1,Oslo,5\n2,Lima,6\n" * 900,
            "SELECT city, sum(n) FROM data GROUP BY 1 ORDER BY 1",
            [("Lima", 5400), ("Oslo", 4500)],
            "The 3 lines above the header are only in lines.",
        ),
        (
            "sep=;\nid;n\n" + "1;0,50\n2;1.000,25\n" * 900,
            "SELECT sum(n) FROM data",
            [900_675.0],
            "with decimal commas",
        ),
        (
            "id,said,n\n" + '1,"a \\"b\\", c",2\n' * 900,
            "SELECT said, sum(n) FROM data GROUP BY 1",
            [('a "b", c', 1800)],
            "",
        ),
        (
            "at|fare|pay\n" + "2026-03-01 00:00:00|5.5|cash\n2026-03-02 00:00:00||card\n" * 900,
            "SELECT count(fare) FROM data",
            [900],
            "",
        ),
    ],
    ids=["no names", "doubtful", "du", "above", "sep", "backslash", "bars"],
)
async def test_the_rows_of_a_table_are_those_below_its_names(
    client: httpx.AsyncClient, text: str, sql: str, rows: list[Any], note: str
) -> None:
    answer = await selected(client, await keep(client, text), sql)
    found = [next(iter(row.values())) if len(row) == 1 else tuple(row.values()) for row in answer["result"]]
    assert found == rows
    assert note in answer["hint"]


async def test_a_column_or_a_table_under_another_name_is_named(client: httpx.AsyncClient) -> None:
    sections = {
        name: {f"{name}-{n}": {"state": "ok", "n": n} for n in range(200)} for name in ("users", "jobs")
    }
    handle = await keep(client, json.dumps({**sections, "tags": [{"tag": f"t{n}"} for n in range(90)]}))
    assert await rows_of(client, handle, "SELECT key FROM jobs WHERE n = 7") == ["jobs-7"]
    for sql, said in (
        ("SELECT tag FROM data", "tag is a column of tags."),
        ("SELECT key FROM users", "No table is named users. data is $.users."),
    ):
        assert said in (await selected(client, handle, sql))["hint"]


async def test_an_object_whose_keys_are_ids_stays_json(client: httpx.AsyncClient) -> None:
    rows = [{"of": {f"k{n}_{k}": k for k in range(9)}, "n": n} for n in range(100)]
    handle = await keep(client, json.dumps(rows))
    assert await rows_of(client, handle, "SELECT of->>'$.k7_8' FROM data WHERE n = 7") == ["8"]


async def test_a_count_of_nothing_says_what_the_compared_column_holds(client: httpx.AsyncClient) -> None:
    handle = await keep(client, NDJSON)
    answer = await selected(client, handle, "SELECT count(*), sum(ms) FROM data WHERE level = 'E'")
    assert answer["result"] == [{"count(*)": 0, "sum(ms)": None}]
    assert "level has ok (1,960), ERROR (40)." in answer["hint"]
    assert (await selected(client, handle, "SELECT count(*) - 2000 FROM data"))["hint"] == ""


async def test_a_member_of_a_text_that_holds_json_is_told_to_be_one(client: httpx.AsyncClient) -> None:
    rows = [{"id": n, "state": json.dumps({"type": "pie", "n": n})} for n in range(900)]
    handle = await keep(client, json.dumps(rows))
    answer = await selected(client, handle, "[].state.type")
    assert "type is asked of a text that holds JSON: SQL reads it, as in column->>'$.type'." in answer["hint"]
    assert await rows_of(client, handle, "SELECT count(*) FROM data WHERE state->>'$.type' = 'pie'") == [900]


SALES = "region,sold,back\n" + "".join(f"r{n},{n * 7},{n}\n" for n in range(1, 1500))


@pytest.mark.parametrize(
    ("last", "sql", "told"),
    [
        (
            "Grand total,7869750,1124250\n",
            "SELECT sum(sold) FROM data",
            'The last row of data ("Grand total") holds',
        ),
        (
            ",7869750,1124250\n",
            "SELECT avg(back) FROM data",
            "The last row of data holds sums of the rows above",
        ),
        (",7869750,1124250\n", "SELECT region FROM data LIMIT 2", ""),
        ("Total war,5,4\n", "SELECT sum(sold) FROM data", ""),
        ("r200,7869750,1124250\n", "SELECT sum(sold) FROM data", ""),
    ],
)
async def test_a_row_of_totals_is_told_where_rows_are_added(
    client: httpx.AsyncClient, last: str, sql: str, told: str
) -> None:
    answer = await selected(client, await keep(client, SALES + last), sql)
    assert (told or "The last row") in answer["hint"] or not told
    assert bool(told) == ("sums of the rows above it" in answer["hint"])


async def test_that_part_takes_the_first_match_of_a_long_line_is_told(client: httpx.AsyncClient) -> None:
    runs = "".join(f'<run name="r{n}" took="{n}.5"/>' for n in range(900))
    handle = await keep(client, f"<runs>{runs}</runs>\n")
    answer = await selected(client, handle, "SELECT part(text, 'took=.([0-9.]+)') FROM lines")
    assert "part() takes the first match of a line, and 1 long line has more" in answer["hint"]
    short = await keep(client, "took=1 took=2\n" * 2000)
    answer = await selected(client, short, "SELECT part(text, 'took=([0-9]+)') FROM lines")
    assert "first match" not in answer["hint"]


async def test_a_computed_row_says_from_how_many_rows_and_shows_the_first(client: httpx.AsyncClient) -> None:
    handle = await keep(client, NDJSON)
    for sql, said in (
        ("SELECT sum(ms) FROM data WHERE level = 'ERROR'", "From 40 rows, the first: level: ERROR, ms: 0.0."),
        ("WITH t AS (FROM data WHERE id < 9) SELECT max(id) FROM t", "From 9 rows, the first: id: 0."),
    ):
        assert (await selected(client, handle, sql))["hint"] == said
    for sql in (
        "SELECT count(*) FROM data",
        "SELECT id FROM data WHERE id = 3",
        "SELECT level, count(*) FROM data WHERE level = 'ERROR' GROUP BY level",
    ):
        assert (await selected(client, handle, sql))["hint"] == ""


async def test_a_text_that_is_nowhere_is_told_beside_the_most_frequent_ones(
    client: httpx.AsyncClient,
) -> None:
    kinds = ["crate", "npm", *(f"other {n}" for n in range(30))]
    rows = [(str(n), f"{kinds[n % 32 if n % 3 == 0 else n % 2]}     (+1 copy)") for n in range(900)]
    handle = await keep(client, _table(",", "number kind", *rows))
    answer = await selected(client, handle, "SELECT number FROM data WHERE kind LIKE 'npm (+%copy%'")
    assert "kind has most often crate     (+1 copy) (" in answer["hint"]
    assert "“npm (+%copy” is in kind with other spaces, such as “npm     (+1 copy)”." in answer["hint"]
