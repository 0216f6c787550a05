"""Hostile statements: each is refused or harmless, and the next query over the same data is answered."""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from domain.errors import BadQuery, QueryTooCostly
from extraction import query_child
from extraction.queries import Queries
from extraction.query_terms import DataQuery
from tests.counts import FULL

pytestmark = pytest.mark.anyio

DATA = json.dumps({"orders": [{"id": n, "status": "ok"} for n in range(2000)]}).encode()
COUNT = DataQuery("SELECT count(*) AS n FROM data", 1000)

WRITING = """
INSERT INTO data VALUES (1)
UPDATE data SET id = 1
DELETE FROM data
TRUNCATE data
DROP TABLE data
DROP VIEW lines
ALTER TABLE data ADD COLUMN x INT
CREATE TABLE t AS SELECT 1
CREATE TEMP TABLE t AS SELECT 1
CREATE VIEW v AS SELECT 1
CREATE MACRO m() AS 1
CREATE OR REPLACE MACRO part(a, b) AS 'x'
CREATE SCHEMA s
CREATE SEQUENCE s
CREATE TYPE e AS ENUM ('a')
CREATE INDEX i ON data (id)
CREATE SECRET (TYPE s3, KEY_ID 'a', SECRET 'b')
CREATE PERSISTENT SECRET s (TYPE http, BEARER_TOKEN 'x')
COMMENT ON TABLE data IS 'x'
MERGE INTO data USING (SELECT 1 AS id) u ON u.id = data.id WHEN MATCHED THEN DELETE
WITH x AS (SELECT 1) DELETE FROM data
WITH x AS (SELECT 1) INSERT INTO data SELECT * FROM data
WITH x AS (DELETE FROM data RETURNING *) SELECT * FROM x
SELECT * FROM (DELETE FROM data RETURNING *)
SELECT 1 INTO x
SELECT 1; DROP TABLE data
SELECT 1; SELECT 2
SELECT 1; COMMIT; DROP TABLE data
; DROP TABLE data
/* SELECT */ DROP TABLE data
PREPARE p AS SELECT 1
EXECUTE p
DEALLOCATE p
EXPLAIN SELECT 1
EXPLAIN ANALYZE SELECT * FROM data
PIVOT data ON status
SELECT * FROM query('DROP TABLE data')
SELECT write_log('x')
"""

SETTINGS = """
SET enable_external_access = true
SET GLOBAL enable_external_access = true
SET lock_configuration = false
SET memory_limit = '10GB'
SET threads = 64
SET temp_directory = '/tmp'
SET home_directory = '/tmp'
SET VARIABLE x = 1
SET SESSION search_path = 'main'
RESET enable_external_access
RESET ALL
PRAGMA version
PRAGMA database_list
PRAGMA enable_external_access = true
PRAGMA memory_limit = '10GB'
PRAGMA enable_profiling
PRAGMA import_database('/tmp')
CALL pragma_version()
CALL enable_logging()
CALL force_checkpoint()
FORCE CHECKPOINT
USE main
INSTALL httpfs
INSTALL spatial FROM community
FORCE INSTALL httpfs
LOAD httpfs
LOAD '/tmp/a.duckdb_extension'
UPDATE EXTENSIONS
SELECT * FROM enable_logging()
SELECT set_config('threads', '9', false)
SELECT current_setting('nothing')
SELECT load_extension('/tmp/x.so')
"""

FILES = """
COPY data TO '{place}/a.csv'
COPY (SELECT 1) TO '{place}/a.parquet' (FORMAT parquet)
COPY data FROM '{secret}'
COPY data TO '/dev/stdout'
EXPORT DATABASE '{place}/export'
IMPORT DATABASE '{place}'
ATTACH '{place}/a.db' AS s
ATTACH ':memory:' AS s
ATTACH 'https://example.org/a.db' AS s
DETACH memory
SELECT * FROM read_csv('{secret}')
SELECT * FROM read_csv_auto('{secret}')
SELECT * FROM read_csv(['{secret}', '{secret}'])
SELECT * FROM read_csv('http://127.0.0.1:1/x')
SELECT * FROM read_csv('s3://bucket/x')
SELECT * FROM read_csv('/proc/self/environ')
SELECT * FROM read_csv('/dev/fd/0')
SELECT * FROM read_csv('/dev/fd/3')
SELECT * FROM read_csv('/proc/self/fd/3')
SELECT * FROM read_text('{secret}')
SELECT * FROM read_text('{place}/*')
SELECT * FROM read_text('/proc/self/cmdline')
SELECT * FROM read_blob('{secret}')
SELECT * FROM read_blob('/proc/self/mem')
SELECT * FROM read_json('{secret}')
SELECT * FROM read_json_objects('{secret}')
SELECT * FROM read_ndjson('{secret}')
SELECT * FROM read_parquet('{secret}')
SELECT * FROM parquet_scan('{secret}')
SELECT * FROM parquet_metadata('{secret}')
SELECT * FROM read_duckdb('{place}/a.db')
SELECT * FROM sniff_csv('{secret}')
SELECT * FROM glob('{place}/*')
SELECT * FROM '{secret}'
SELECT * FROM '{place}/secret.csv'
SELECT * FROM "https://example.org/a.parquet"
SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')
SELECT * FROM query_table('{place}/secret.csv')
SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM read_text(''{secret}'')'))
SELECT readfile('{secret}')
SELECT writefile('{place}/a', 'x')
SELECT file_exists('{secret}')
SELECT getenv('PATH')
SELECT system('id')
SELECT * FROM os
SELECT * FROM sys
SELECT * FROM connection
SELECT * FROM pandas_scan(1)
SELECT * FROM arrow_scan(1, 1, 1)
SELECT * FROM seq_scan('x')
SELECT * FROM which_secret('s3://x', 's3')
"""

SHOWING = """
SELECT * FROM duckdb_settings()
SELECT * FROM duckdb_secrets()
SELECT * FROM duckdb_extensions()
SELECT * FROM duckdb_databases()
SELECT * FROM duckdb_logs()
SELECT * FROM duckdb_temporary_files()
SELECT * FROM pragma_database_list
SELECT * FROM information_schema.tables
SELECT * FROM sqlite_master
SELECT current_setting('home_directory'), current_setting('extension_directory')
SELECT getvariable('x'), current_database(), current_user
SHOW ALL TABLES
SELECT 1 -- ; DROP TABLE data
"""

COSTLY = """
SELECT count(*) FROM range(1000000000000)
SELECT sum(a.id * b.id * c.id) FROM data a, data b, data c
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c
WITH RECURSIVE c(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM c) SELECT length(max(x)) FROM c
SELECT repeat('x', 4000000000)
SELECT repeat('x', 300000000) || repeat('y', 300000000)
SELECT string_agg(a.status, ',') FROM data a, data b, range(100)
SELECT range(1000000000)
SELECT unnest(range(1000000000))
SELECT lpad('x', 2000000000, 'y')
SELECT printf('%2000000000d', 1)
SELECT regexp_replace(repeat('a', 10000000), 'a', repeat('b', 1000), 'g')
SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))
SELECT list_distinct(range(100000000))
SELECT count(DISTINCT a.id * 100000 + b.id) FROM data a, data b, range(100)
SELECT * FROM data a, data b ORDER BY a.id + b.id
SELECT md5(repeat('x', 500000000))
"""


def child_with(*less: str) -> tuple[str, ...]:
    """The command of a child with other bounds."""
    code = ["from extraction import query_child as child", *(f"child.{one}" for one in less), "child.main()"]
    return (sys.executable, "-S", "-P", "-c", "; ".join(code))


@pytest.fixture(scope="module")
async def queries() -> AsyncIterator[Queries]:
    """Its child is kept from test to test, until a query ends it. The service has a secret."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPILLGATE_LLM_API_KEY", "S3cret")
        # Processor time and memory end a query, however slow the machine is.
        for name in ("RUN_SECONDS", "WAIT_SECONDS", "KEPT_SECONDS"):
            patch.setattr(f"extraction.queries.{name}", 600)
        patch.setattr("extraction.queries._COMMAND", child_with("EVALUATE_SECONDS = 1"))
        made = Queries()
        yield made
        await made.aclose()


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


async def data() -> AsyncIterator[bytes]:
    yield DATA


async def told(queries: Queries, sql: str) -> str:
    """What the query answers, or the refusal."""
    try:
        answer = await queries.run("t", DataQuery(sql, 100_000, limit=1000), len(DATA), data, "orders")
    except (BadQuery, QueryTooCostly) as error:
        return f"refused: {error.detail}"
    return f"answered: {bytes(answer.slice.result).decode()} {answer.hint}"


async def is_alive(queries: Queries) -> bool:
    answer = await queries.run("t", COUNT, len(DATA), data, "orders")
    return bytes(answer.slice.result) == b'[{"n":2000}]'


async def test_statements_that_write_or_change_settings_are_refused(queries: Queries) -> None:
    for sql in lines(WRITING) + lines(SETTINGS):
        assert (await told(queries, sql)).startswith("refused: "), sql
        assert await is_alive(queries), sql


async def test_no_file_is_read_written_or_told_of(queries: Queries, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("S3cret\n1\n")
    for line in lines(FILES):
        sql = line.format(place=tmp_path, secret=secret)
        said = await told(queries, sql)
        assert said.startswith("refused: ") or "No table is named" in said, sql
        assert "S3cret" not in said, sql
        assert await is_alive(queries), sql
    assert os.listdir(tmp_path) == ["secret.csv"]


async def test_what_duckdb_tells_of_itself_holds_no_path_and_no_secret(queries: Queries) -> None:
    for sql in lines(SHOWING):
        said = await told(queries, sql)
        assert not any(text in said for text in ("S3cret", str(Path.home()), os.getcwd())), sql
        assert await is_alive(queries), sql


@pytest.mark.repeated
async def test_a_query_that_would_not_end_or_takes_all_memory_is_stopped(queries: Queries) -> None:
    every = lines(COSTLY)
    for sql in every if FULL else (every[0], every[4]):
        said = await told(queries, sql)
        assert said.startswith("refused: The query takes more "), sql
        assert await is_alive(queries), sql


def test_no_query_has_less_time_than_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr("resource.setrlimit", lambda kind, given: limits.append(given[0]))
    for used in (5.0, 5.01, 5.99):
        monkeypatch.setattr("time.process_time", lambda used=used: used)
        query_child._bound_time(1)
        assert 1 <= limits.pop() - used < 2


async def test_no_query_waits(queries: Queries) -> None:
    with anyio.fail_after(60):
        for sql in ("SELECT pg_sleep(100)", "SELECT sleep_ms(100000)", "SELECT PG_SLEEP(90)"):
            assert (await told(queries, sql)).startswith("refused: A query can only read"), sql


DEEP = {
    "sums": "SELECT " + "+".join(["1"] * 2000),
    # DuckDB's parser takes a time that grows with the square of their number.
    "brackets": "SELECT " + "(" * (2000 if FULL else 700),
    "negations": "SELECT " + "NOT " * 1000 + "true",
    "queries": "SELECT * FROM " + "(SELECT * FROM " * 200 + "data" + ")" * 200,
    "cases": "SELECT " + "CASE WHEN true THEN " * 170 + "1" + " END" * 170,
    "lambdas": "SELECT " + "list_transform([1], lambda x: " * 100 + "x" + ")" * 100,
    "objects": "SELECT " + "{'a':" * 600 + "1" + "}" * 600,
    "tables": "WITH "
    + ", ".join(
        f"a{n} AS (SELECT x.* FROM a{n - 1} x, a{n - 1} y)" if n else "a0 AS (FROM data)" for n in range(25)
    )
    + " SELECT count(*) FROM a24",
}


async def test_a_statement_that_is_nested_deeply_ends_no_service(
    queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two of them fill the memory, whatever there is of it.
    less = child_with("EVALUATE_SECONDS = 1", "MEMORY_BYTES = 384 << 20")
    monkeypatch.setattr("extraction.queries._COMMAND", less)
    await queries.aclose()
    for name, sql in DEEP.items():
        await told(queries, sql)
        assert await is_alive(queries), name
