"""SQL over the lines of logs, listings and texts, and RE2 in any SQL."""

from collections import Counter

import httpx
import pytest

from tests.app.answering.test_query import NDJSON, keep, refused
from tests.app.answering.test_sql import rows_of, selected, told

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]


@pytest.fixture(scope="module")
def client(shared_client: httpx.AsyncClient) -> httpx.AsyncClient:
    return shared_client


USERS = ("root", "admin", "deploy")
LOGIN_ADDRESSES = [f"10.0.{n % 7}.{n * n % 11}" for n in range(1500)]
LOGINS = "".join(
    f"Jan {1 + n // 200:>2} 10:{n % 60:02}:01 host sshd[{n}]: "
    f"Invalid user {USERS[n % 3]} from {address} port {n}\n"
    for n, address in enumerate(LOGIN_ADDRESSES)
)
LEVELS = ["ERROR" if n % 50 == 0 else "WARN" if n % 7 == 0 else "INFO" for n in range(2000)]
LOG = "\r\n".join(
    f"2026-11-21 10:{n // 60 % 60:02}:{n % 60:02} {level} worker-{n % 3} took {n % 90} ms"
    for n, level in enumerate(LEVELS)
)
LISTING = "".join(f"src/part{n % 9}/file{n}.{'py' if n % 4 else 'md'}\n" for n in range(1200))
SEARCH = "".join(f"src/part{n % 9}.py:{n + 1}:    return value_{n}\n" for n in range(900))
PAGE = "<html><body>\n" + "".join(f"<p>Item {n} costs {n} EUR</p>\n" for n in range(900)) + "</body></html>"
CODE = "import os\n\n" + "".join(f"def work_{n}(a):\n    return a + {n}\n\n" for n in range(500))
WORDS = "some plain words of nothing\n" * 900


async def test_the_lines_of_a_log_are_grouped_by_what_a_pattern_finds(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOGINS)
    sql = r"SELECT part(text, 'from (\S+)') ip, count(*) n FROM data GROUP BY ip ORDER BY n DESC, ip LIMIT 5"
    wanted = sorted(Counter(LOGIN_ADDRESSES).items(), key=lambda one: (-one[1], one[0]))[:5]
    assert await rows_of(client, handle, sql) == wanted
    answer = await selected(client, handle, "SELECT * FROM data WHERE line = 3")
    assert (answer["kind"], answer["columns"]) == ("log", ["line", "text", "time"])
    [row] = answer["result"]
    assert (row["text"], row["time"]) == (LOGINS.split("\n")[2], "Jan  1 10:02:01")
    for sql, count in (
        ("SELECT count(*) FROM data WHERE matches(text, 'Invalid user (root|admin)')", 1000),
        ("SELECT count(*) FROM data WHERE regexp_matches(text, '(?i)USER ROOT')", 500),
        ("SELECT count(DISTINCT part(text, 'sshd.(\\d+)')) FROM data", 1500),
    ):
        text, is_error = await told(client, handle, sql)
        assert (text.split("\n")[0], is_error) == (str(count), False)
    counted, _ = await told(client, handle, "SELECT count(*) n FROM data WHERE matches(text, 'user admin')")
    assert counted == f"500\n[From 500 rows, the first: 2: {' '.join(LOGINS.splitlines()[1].split())}.]"


async def test_a_log_has_the_columns_time_and_level(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG)
    rows = await rows_of(client, handle, "SELECT level, count(*) FROM data GROUP BY level")
    assert dict(rows) == Counter(LEVELS)
    sql = "SELECT max(time), max(cast(part(text, 'took (\\d+)') AS integer)) FROM data WHERE level = 'ERROR'"
    assert await rows_of(client, handle, sql) == [("2026-11-21 10:32:30", 80)]
    assert await rows_of(client, handle, "SELECT line FROM data WHERE text LIKE '%took 89 ms' LIMIT 2") == [
        90,
        180,
    ]
    missing = await selected(client, handle, "SELECT message FROM data")
    assert "Columns of data: line BIGINT, text, time, level." in missing["hint"]


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        (LISTING, "listing", "src/part2/file2.py"),
        (SEARCH, "grep", "src/part2.py:3:    return value_2"),
        (PAGE, "html", "<p>Item 1 costs 1 EUR</p>"),
        (CODE, "code", "def work_0(a):"),
        (WORDS, "text", "some plain words of nothing"),
    ],
    ids=lambda text: text[:12],
)
async def test_any_text_has_a_row_for_each_line(
    client: httpx.AsyncClient, text: str, kind: str, line: str
) -> None:
    handle = await keep(client, text)
    answer = await selected(client, handle, "SELECT line, text FROM data WHERE line = 3")
    assert (answer["kind"], answer["result"]) == (kind, [{"line": 3, "text": line}])
    assert await rows_of(client, handle, "SELECT count(*) FROM data") == [len(text.splitlines())]


async def test_lines_behind_numbers_have_the_numbers_of_the_stored_lines(client: httpx.AsyncClient) -> None:
    numbered = "".join(f"{n:>6}\t{line}\n" for n, line in enumerate(LOG.split("\r\n"), 1))
    handle = await keep(client, numbered)
    rows = await rows_of(client, handle, "SELECT line, text FROM data WHERE line = 51")
    assert rows == [(51, LOG.split("\r\n")[50])]


async def test_a_pattern_runs_over_the_columns_of_any_data(client: httpx.AsyncClient) -> None:
    handle = await keep(client, NDJSON)
    assert await rows_of(client, handle, "SELECT count(*) FROM data WHERE matches(host, '-[01]$')") == [1334]
    assert await rows_of(client, handle, "SELECT part(host, '\\d+'), part(ms, 'x') FROM data LIMIT 1") == [
        ("0", None)
    ]
    sql = "SELECT matches(NULL, 'a'), part('b', '(a)|b'), part('é=ü', '=(.)')"
    answer = await selected(client, handle, sql)
    assert list(answer["result"][0].values()) == [None, None, "ü"]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("S3cret(", "not closed"),
        ("(?=S3cret)", "lookahead"),
        ("((a{1,100}){1,100}){1,100}S3cret", "RE2 cannot take"),
        ("S3cret" * 300, "more than"),
    ],
    ids=["group", "lookahead", "costly", "long"],
)
async def test_a_pattern_that_re2_does_not_take_is_refused_with_the_reason(
    client: httpx.AsyncClient, pattern: str, said: str
) -> None:
    for text in (LOGINS, NDJSON):
        handle = await keep(client, text)
        for function in ("matches", "part"):
            await refused(client, handle, f"SELECT {function}('x', '{pattern}') FROM data", "bad_query", said)


async def test_lines_and_rows_are_joined(client: httpx.AsyncClient) -> None:
    handles = [await keep(client, LOGINS), await keep(client, NDJSON)]
    sql = "SELECT count(*) FROM data1 JOIN data2 ON data2.id = data1.line WHERE matches(text, 'root')"
    answer = await client.post(
        "/tools/call", json={"name": "tool_output", "arguments": {"handle": handles, "query": sql}}
    )
    assert answer.json()["text"].splitlines()[2:] == [
        "500",
        f"[From 500 rows, the first: 1: {' '.join(LOGINS.splitlines()[0].split())}.]",
    ]


async def test_jmespath_over_lines_names_the_arguments_that_read_them(client: httpx.AsyncClient) -> None:
    text, is_error = await told(client, await keep(client, LOGINS), "length(@)")
    assert is_error
    assert all(name in text for name in ("`pattern`", "`lines`", "`extract`", "SELECT … FROM data"))
    assert "grep" not in text
    text, is_error = await told(client, await keep(client, "\0\1\2" * 9000), "SELECT text FROM data")
    assert is_error
    assert "binary" in text
