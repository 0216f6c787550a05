"""A question for a count, a sum, an extreme or groups is answered by the query that it needs, over HTTP."""

import datetime
import json
import random

import httpx
import pytest

from domain.errors import Overloaded
from extraction.queries import Queries
from tests.app.test_answers_that_end import asked
from tests.app.test_tool_calls import keep

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def client(shared_client: httpx.AsyncClient) -> httpx.AsyncClient:
    return shared_client


STATES = ("open", "paid", "failed")
ORDERS = [
    {"id": n, "customer": f"customer {n}", "state": STATES[n % 7 % 3], "amount": n * 7919 % 1009}
    for n in range(900)
]
JSON = json.dumps({"orders": ORDERS})
CHINESE = json.dumps(
    [
        {
            "订单": n,
            "状态": ("待付款", "已付款", "已取消")[n % 3],
            "金额": n * 7919 % 1009,
            "城市": ("上海", "北京")[n // 3 % 3 > 0],
        }
        for n in range(900)
    ],
    ensure_ascii=False,
)
DATED = "order_id,created_at,total\n" + "".join(
    f"{n},2026-{n % 12 + 1:02}-{n % 28 + 1:02},{n * 7 % 301}\n" for n in range(900)
)
PRICED = "id,price\n" + "".join(f'{n},"${n:,}.50"\n' if n != 6000 else f"{n},free\n" for n in range(6500))
NAMED = "order_id,created_at,customer\n" + "".join(
    f"{n},2026-{n % 12 + 1:02}-{n % 28 + 1:02},{('Mary', 'Jane', 'June')[n % 3]}\n" for n in range(900)
)
ACCESS = "".join(
    f'10.0.0.{n % 9} - - [17/May/2024:10:{n // 60 % 60:02}:{n % 60:02} +0000] "GET /page{n % 13} HTTP/1.1" '
    f'{404 if n % 10 == 3 else 200} {n * 7919 % 5003} "-" "{"Googlebot/2.1" if n % 4 else "curl/8"}"\n'
    for n in range(1500)
)
LOG = "".join(
    f"2026-03-01 08:{n // 60:02}:{n % 60:02} {'ERROR' if n % 9 == 1 else 'INFO'} "
    f"request of user{n % 5} took {n * 37 % 911} ms {'and timed out' if n % 18 == 1 else ''}\n"
    for n in range(1500)
)
PATHS = "".join(f"./src/part{n % 40}/{'x' * (n % 23 + 3)}.{'py' if n % 3 else 'txt'}\n" for n in range(1800))
RECORDS = "".join(f"{n:05} worker-{n % 7} {'failed' if n % 11 == 2 else 'passed'}\n" for n in range(1500))
NUMBERED = "".join(
    f"2026-03-01 08:{n // 60:02}:{n % 60:02} {'ERROR' if n % 9 == 1 else 'INFO'} "
    f"request {n} of user u{n % 5} {'failed' if n % 9 == 1 else f'took {n * 37 % 911} ms'}\n"
    for n in range(1500)
)
TIMES = [n * 37 % 911 for n in range(1500) if n % 9 != 1]
LISTED = "".join(
    f"{'d' if n % 10 == 0 else '-'}rwxr-xr-x  1 root root {n * 7919 % 5_000_011:>9} Apr  3  2026 "
    f"{f'part{n}' if n % 10 == 0 else f'tenth{n}.h'}\n"
    for n in range(1500)
)
SIZES = [n * 7919 % 5_000_011 for n in range(1500) if n % 10]
TUPLES = repr(
    [(f"city {n}", n * 7919 % 10007, datetime.date(2020 + n % 5, n % 12 + 1, 3)) for n in range(900)]
)


def largest(sizes: list[int]) -> str:
    return str(max(sizes))


QUESTIONS = [
    (JSON, "How many orders are there in each state?", f"paid | {sum(n % 7 % 3 == 1 for n in range(900))}"),
    (JSON, "Which order has the largest amount?", "| 1008"),
    (ACCESS, "How many requests returned 404?", "\n150\n"),
    (ACCESS, "How many requests per status code?", "404 | 150"),
    (ACCESS, "Which page was requested most often?", "/page0 | 116"),
    (ACCESS, "How many requests per day?", "17/May/2024 | 1500"),
    (ACCESS, "How many requests per hour?", "10 | 1500"),
    (ACCESS, "How many GET requests returned 404?", "\n150\n"),
    (ACCESS, "What is the largest response size?", largest([n * 7919 % 5003 for n in range(1500)])),
    (ACCESS, "number of requests from Googlebot that returned 404",
     f"\n{sum(n % 10 == 3 and n % 4 > 0 for n in range(1500))}\n"),
    (LOG, "What was the slowest request?", largest([n * 37 % 911 for n in range(1500)])),
    (LOG, "How many ERROR lines say that a request timed out?",
     f"\n{sum(n % 18 == 1 for n in range(1500))}\n"),
    (LOG, "average ms that a request took",
     f"\n{round(sum(n * 37 % 911 for n in range(1500)) / 1500, 2)}\n"),
    (ACCESS, "How many different IP addresses made requests?", "\n9\n"),
    (PATHS, "How many files end in .txt?", "\n600\n"),
    (PATHS, "how many files are in part3?", "\n45\n"),
    (PATHS, "Which file has the longest name?", "x" * 25),
    (PATHS, "How many files of each extension?", "py | 1200"),
    (PATHS, "how many files are in part39?", "\n45\n"),
    (LOG, "how many events of each level", f"ERROR | {sum(n % 9 == 1 for n in range(1500))}"),
    (LOG, "What is the number of lines with user2?", "\n300\n"),
    (RECORDS, "How many workers failed?", f"\n{sum(n % 11 == 2 for n in range(1500))}\n"),
    ("The ferry leaves at noon.\nIt is late, as ever, for a reason that is not known.\n" * 300,
     "How many lines contain ferry?", "\n300\n"),
    (NUMBERED, "Which request took the longest?", largest(TIMES)),
    (NUMBERED, "Which three requests were the slowest?", "[3 rows.]"),
    (NUMBERED, "How many requests took more than 800 ms?", f"\n{sum(one > 800 for one in TIMES)}\n"),
    (NUMBERED, "How many requests took longer than 0.8 seconds?", f"\n{sum(one > 800 for one in TIMES)}\n"),
    (NUMBERED, "Which requests took more than 905 ms?", largest(TIMES)),
    (NUMBERED, "How many requests took at least 800 ms?", f"\n{sum(one >= 800 for one in TIMES)}\n"),
    (NUMBERED, "How many requests took no more than 100 ms?", f"\n{sum(one <= 100 for one in TIMES)}\n"),
    (NUMBERED, "How many fatal errors were logged?", "\n0\n"),
    (NUMBERED, "average ms per user", "u1 | "),
    (NUMBERED, "How many errors per user?", "u1 | 34\n"),
    (NUMBERED, "Which user has the most errors?", "u1 | 34\n"),
    (LISTED, "How many directories are there in total?", "\n150\n"),
    (LISTED, "What are the ten largest files?", "[10 rows.]"),
    (LISTED, "List the 5 largest files", largest(SIZES)),
    (LISTED, "How many files are larger than 1 MB?", f"\n{sum(one > 1_000_000 for one in SIZES)}\n"),
    (LISTED, "How many .h files are there?", "\n1350\n"),
    (JSON, "How many orders have an amount of at least 1000?",
     f"\n{sum(one['amount'] >= 1000 for one in ORDERS)}\n"),
    (JSON, "How many states are there?", "\n3\n"),
    (JSON, "the two orders with the highest amount", "[2 rows. "),
    (LOG, "Which user has the most errors?", "user1 | 34\n"),
    (RECORDS, "Which worker failed most often?", "worker-1 | "),
    (CHINESE, "有多少待付款的订单？", "\n300\n"),
    (CHINESE, "金额最大的订单", "| 1008"),
    (CHINESE, "每个城市有多少订单？", "上海 | 300"),
    (DATED, "How many orders were there in March?", "\n75\n"),
    (NAMED, "How many orders for Jane?", "\n300\n"),
    (NAMED, "How many orders of Mary?", "\n300\n"),
    (PRICED.replace("free", "$9.99"), "What is the highest price?", "6499.5"),
    (DATED, "total of March 2026", f"\n{sum(n * 7 % 301 for n in range(2, 900, 12))}.0\n"),
    (DATED, "How many orders in March 2025?", "\n0\n"),
    (TUPLES, "Which city has the largest population?", largest([n * 7919 % 10007 for n in range(900)])),
]  # fmt: skip


@pytest.mark.usefixtures("queries_here")
@pytest.mark.parametrize(("text", "question", "answer"), QUESTIONS, ids=[one[1] for one in QUESTIONS])
async def test_the_query_is_run_and_is_the_whole_answer(
    client: httpx.AsyncClient, text: str, question: str, answer: str
) -> None:
    body = await asked(client, await keep(client, text), question)
    first, _, rest = body.partition("\n")
    assert first.startswith("[From all rows, query: SELECT ")
    assert answer in f"\n{rest}"
    assert "\n[line" not in body
    assert len(body.encode()) < 1100


async def test_a_query_that_leaves_out_a_name_is_no_answer(client: httpx.AsyncClient) -> None:
    body = await asked(client, await keep(client, JSON), "How many orders of each state came from Reykjavik?")
    assert "rows, query:" not in body


async def test_a_word_beside_what_is_counted_is_no_part_of_its_name(client: httpx.AsyncClient) -> None:
    for text, question in (
        (LISTED, "How many hidden files are there?"),
        (JSON, "How many large orders failed?"),
    ):
        body = await asked(client, await keep(client, text), question)
        assert "rows, query:" not in body or "\n[Not in the query: " in body


async def test_a_query_that_leaves_out_words_is_shown_with_the_passage(client: httpx.AsyncClient) -> None:
    rows = [(f"city {n}", n * 7919 % 100_003) for n in range(900)] + [("Reykjavik", 777_677)]
    random.Random(7).shuffle(rows)
    body = await asked(
        client, await keep(client, repr(rows)), "How many people live in the city of Reykjavik?"
    )
    assert "[Not in the query: " in body
    assert "777677" in body


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (JSON, "How many orders are not paid?"),
        (JSON, "How many orders between 2020 and 2021 were paid?"),
        (JSON, "How many customers have more than 3 orders?"),
        (JSON, "How many orders took more than 2 seconds?"),
        (JSON, "What percentage of the orders failed?"),
        (JSON, "Which is the second largest amount?"),
        (JSON, "How many orders failed in the last hour?"),
        (JSON, "How many orders are open or have an amount of 5 or more?"),
        (JSON, "How many more orders are open than paid?"),
        (NUMBERED, "How many requests took more than 3 tries?"),
        (NUMBERED, "How many errors are there at 08:03?"),
        (LISTED, "How many files and directories are there?"),
        (LISTED, "How many files start with report?"),
        (NUMBERED, "How many requests are larger than 2 MB?"),
        (ACCESS, "What was the slowest request?"),
        (DATED, "How many orders on March 5?"),
        (DATED, "How many orders in March and April?"),
        (DATED, "How many orders before March and in May?"),
        (PRICED, "What is the total price?"),
        (PRICED, "What is the highest price?"),
        (PRICED, "How many have a price above 5000?"),
        (PRICED.replace("free", "$9.99") + " " * (1 << 20) + "\n1,free\n", "What is the total price?"),
        (
            json.dumps([{"id": n, "price": f"${n:,}" if n < 6000 else "free"} for n in range(6001)]),
            "What is the total price?",
        ),
        (DATED.replace("-", "/"), "How many orders in March?"),
    ],
)
async def test_a_condition_that_no_query_here_tells_names_none(
    client: httpx.AsyncClient, text: str, question: str
) -> None:
    body = await asked(client, await keep(client, text), question)
    assert "rows, query:" not in body
    assert "\n[To count, group or compare, query: SELECT " in body


async def test_a_question_for_a_column_names_a_query_over_it(client: httpx.AsyncClient) -> None:
    body = await asked(client, await keep(client, DATED.replace("total", "fee")), "tell me about the fee")
    assert body.endswith("; columns order_id, created_at, fee.]")
    assert "0 of 1 words" not in body


async def test_a_name_in_the_data_is_no_month(client: httpx.AsyncClient) -> None:
    body = await asked(client, await keep(client, NAMED), "How many orders for June?")
    assert "customer = 'June'" in body
    assert "LIKE" not in body


async def test_how_many_records_there_are_is_no_question_for_a_word(client: httpx.AsyncClient) -> None:
    log = LOG + "2026-03-02 08:00:00 ERROR the record is broken\n"
    for question in ("How many records are there?", "how many lines are there"):
        body = await asked(client, await keep(client, log), question)
        assert "rows, query:" not in body
        assert "in 1,502 lines" in body


async def test_a_query_that_cannot_be_run_is_named_alone(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: object) -> None:
        raise Overloaded("Too many queries are running.")

    monkeypatch.setattr(Queries, "run", busy)
    body = await asked(client, await keep(client, JSON), "How many orders are there in each state?")
    query = "SELECT state, count(*) FROM data GROUP BY state ORDER BY 2 DESC LIMIT 10"
    assert body == f"[To answer from all rows, query: {query}]\n"


async def test_of_ranges_the_query_is_named_and_not_run(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG)
    asking = {"handle": handle, "extract": "How many ERROR lines?", "ranges": [{"start": 0, "end": 40_000}]}
    body = (await client.post("/extract", json=asking)).json()["body"]
    assert body.startswith(
        "[To answer from all rows, query: SELECT count(*) FROM data WHERE level = 'ERROR']\n"
    )


async def test_a_word_that_lines_are_to_hold_is_a_condition_also_where_it_is_rare(
    client: httpx.AsyncClient,
) -> None:
    log = LOG * 10 + "2026-03-02 08:00:00 ERROR the zeppelin is gone\n" * 3
    body = await asked(client, await keep(client, log), "How many ERROR lines mention zeppelin?")
    assert "matches(text, 'zeppelin')" in body
    assert body.endswith("\n3\n")


async def test_the_headings_below_the_one_that_is_named_are_listed(client: httpx.AsyncClient) -> None:
    words = "Nothing of note is written here, and few read it.\n\n" * 3
    steps = "".join(f"### P{n}: Move the {n}th part\n\n{words * 3}#### Why\n\n{words}" for n in range(1, 15))
    text = f"# Plan\n\n{words}## Work packages\n\n{words}{steps}## Notes\n\n{words}"
    body = await asked(
        client, await keep(client, text + words * 90), "Which work packages does the plan have?"
    )
    first, *listed = body.splitlines()
    assert first == "[14 headings below “Work packages” (line 9):]"
    assert [line.partition(" (line ")[0] for line in listed[:14]] == [
        f"P{n}: Move the {n}th part" for n in range(1, 15)
    ]
