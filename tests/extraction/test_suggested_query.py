"""The query that an answer names answers the question, when it is run over the data."""

import csv
import io
import json
import re
from contextlib import closing
from datetime import date, timedelta
from typing import Any

import pytest

from content.source import Source
from content.sql import Database
from content.values import read_value
from extraction.retrieve.instruction import parse
from extraction.retrieve.suggested_query import suggested_query

CITIES = ("Rome", "Oslo", "Lima", "Kyoto", "New York")
ORDERS: list[dict[str, Any]] = [
    {
        "order_id": f"A{n:04}",
        "customer": f"customer {n % 40}",
        "city": CITIES[n % 5],
        "status": "failed" if n % 9 == 0 else "open" if n % 4 == 0 else "paid",
        "amount": round(n * 37.5 % 911 + n / 100, 2),
        "items": [{"sku": k} for k in range(n % 6)],
        "shipping": {"method": "air" if n % 3 else "sea", "weight": n % 17},
        "created_at": f"{date(2024, 1, 1) + timedelta(days=n * 7 % 600)}T08:00:00Z",
    }
    for n in range(600)
]
JSON = json.dumps({"page": 1, "orders": ORDERS})
NDJSON = "\n".join(map(json.dumps, ORDERS))
FLAT = ("order_id", "customer", "city", "status", "amount", "created_at")
_table = io.StringIO()
csv.writer(_table).writerows([FLAT, *([row[name] for name in FLAT] for row in ORDERS)])
CSV = _table.getvalue()
FILES = json.dumps(
    {f"src/part{n}.py": {"size": n * 97 % 1009, "language": "python" if n % 3 else "c"} for n in range(90)}
)


def count_by(key: str, rows: list[dict[str, Any]] = ORDERS) -> dict[str, int]:
    names = [row[key] for row in rows]
    return {name: names.count(name) for name in names}


def total(rows: list[dict[str, Any]]) -> float:
    return float(sum(row["amount"] for row in rows))


FAILED = [row for row in ORDERS if row["status"] == "failed"]
PAID = [row for row in ORDERS if row["status"] == "paid"]
DEAREST = max(ORDERS, key=lambda row: float(row["amount"]))
NEWEST = max(row["created_at"] for row in ORDERS)
QUESTIONS: list[tuple[str, str, object]] = [
    ("How many orders are there of each status?", JSON, count_by("status")),
    ("How many orders failed?", NDJSON, len(FAILED)),
    ("What is the sum of amount for Rome?", CSV, total([row for row in ORDERS if row["city"] == "Rome"])),
    ("total amount by city", CSV, {c: total([r for r in ORDERS if r["city"] == c]) for c in CITIES}),
    ("average amount of paid orders", JSON, total(PAID) / len(PAID)),
    ("Which is the most expensive order?", NDJSON, DEAREST["order_id"]),
    (
        "Which city has the most failed orders?",
        CSV,
        max((n, c) for c, n in count_by("city", FAILED).items())[1],
    ),
    ("the latest order", CSV, NEWEST),
    ("how many orders have an amount over 900", JSON, sum(row["amount"] > 900 for row in ORDERS)),
    ("which file is the largest", FILES, max((n * 97 % 1009, f"src/part{n}.py") for n in range(90))[1]),
    ("how many items has each order", NDJSON, 5),
    ("how many orders by shipping method", JSON, {"air": 400, "sea": 200}),
    ("Wie viele Bestellungen pro status?", CSV, count_by("status")),
    ("¿Cuántos pedidos por city?", NDJSON, count_by("city")),
    ("combien de commandes par status", JSON, count_by("status")),
    ("quanti ordini per city", CSV, count_by("city")),
    ("每个 city 有多少订单", JSON, count_by("city")),
    ("höchster amount", CSV, DEAREST["amount"]),
]


def answered(text: str, sql: str) -> list[tuple[Any, ...]]:
    with closing(Database(read_value(text.encode())[1])) as database:
        return list(database.select(sql).rows)


def named(text: str, question: str) -> str:
    suggested = suggested_query(Source(text.encode()), parse(question))
    assert suggested is not None, question
    return suggested.sql


@pytest.mark.parametrize(
    ("question", "text", "answer"), QUESTIONS, ids=[question for question, *_ in QUESTIONS]
)
def test_the_query_that_is_named_answers_the_question(question: str, text: str, answer: object) -> None:
    rows = answered(text, named(text, question))
    if isinstance(answer, dict):
        assert dict(rows) == pytest.approx(answer)
    elif isinstance(answer, float):
        assert answer in [pytest.approx(cell, abs=0.006) for cell in rows[0] if isinstance(cell, float)]
    else:
        assert answer in rows[0]


@pytest.mark.parametrize(
    "question",
    [
        "What did customer 7 order?",
        "How many rows are there?",
        "the reason of the failure",
        "Which order was sent to the moon?",
    ],
)
def test_a_question_that_no_query_answers_better_names_none(question: str) -> None:
    assert suggested_query(Source(CSV.encode()), parse(question)) is None


@pytest.mark.parametrize(
    "text", ["word " * 5000, "[" * 5000, '{"a": 1}', "# Title\n\nErrors and levels.\n" * 90, "a,b\n1,2\n"]
)
def test_data_without_rows_names_none(text: str) -> None:
    assert suggested_query(Source(text.encode()), parse("how many errors by level")) is None


def test_of_large_data_the_beginning_names_the_columns() -> None:
    text = '{"rows": [' + ", ".join([json.dumps(row) for row in ORDERS] * 12) + "]}"
    assert len(text) > 1 << 20
    sql = named(text, "how many orders by status")
    assert sql == "SELECT status, count(*) FROM data GROUP BY status ORDER BY 2 DESC LIMIT 10"
    assert dict(answered(text, sql)) == {name: 12 * n for name, n in count_by("status").items()}


def test_numbers_arrays_and_words_of_texts_are_counted() -> None:
    rows = [{"code": 404 if n % 4 else 200, "hits": [1] * (n % 3)} for n in range(80)]
    text = json.dumps(rows)
    for question, first in (("how many answers with code 404 came", (60,)), ("how many hits each", (2,))):
        assert answered(text, named(text, question))[0] == first
    text = json.dumps([{"note": f"the driver's door {n}" if n % 5 else f"roof {n}"} for n in range(80)])
    for question in ("how many notes tell of driver's trouble", "number of notes with door"):
        assert answered(text, named(text, question)) == [(64,)], question


RUNS = json.dumps(
    [
        {
            "branch": ("main", "next", "old")[n % 3],
            "country": ("US", "IN", "DE")[n % 3],
            "kind": "Warning" if n % 4 == 0 else "Normal",
            "retries": n * 7 % 10,
            "total": n * 13 % 101,
            "temp_max": 20 + n % 9,
            "temp_min": n % 9,
        }
        for n in range(120)
    ]
)
RETRIES = {
    name: sum(n * 7 % 10 for n in range(at, 120, 3)) for at, name in enumerate(("main", "next", "old"))
}
ASKED: list[tuple[str, object]] = [
    ("Which branch has the most retries?", RETRIES),
    ("How many retries per branch?", RETRIES),
    ("How many retries are there?", sum(RETRIES.values())),
    ("How many warnings per branch?", dict.fromkeys(RETRIES, 10)),
    ("What is the highest total per country?", dict.fromkeys(("US", "IN", "DE"), 100)),
    ("What is the highest total in DE?", 99),
    ("How many runs are there in each country?", dict.fromkeys(("US", "IN", "DE"), 40)),
]


@pytest.mark.parametrize(("question", "answer"), ASKED, ids=[question for question, _ in ASKED])
def test_the_numbers_that_are_asked_for_are_those_of_what_owns_them(question: str, answer: object) -> None:
    rows = answered(RUNS, named(RUNS, question))
    if isinstance(answer, dict):
        assert dict(rows) == pytest.approx(answer, abs=2)
    else:
        assert answer in rows[0]


@pytest.mark.parametrize(
    "question",
    ["What is the highest temperature?", "How many runs have more than 5 GB?", "branches without retries"],
)
def test_a_question_that_fits_two_columns_or_none_names_none(question: str) -> None:
    assert suggested_query(Source(RUNS.encode()), parse(question)) is None


def test_letters_that_are_longer_in_lower_case_move_no_text() -> None:
    lines = [f"2026-03-01 08:00:{n:02} INFO {'İ' * 90}" for n in range(60)] + [
        "2026-03-01 08:01:00 INFO zeppelin"
    ]
    assert "zeppelin" in named("\n".join(lines), "How many lines mention zeppelin?")


def test_names_and_values_are_quoted() -> None:
    rows = [{'the "kind"': f"it's {n % 2}", "order": n % 3} for n in range(50)]
    text = json.dumps(rows)
    sql = named(text, "how many it's 1 are there?")
    assert answered(text, sql) == [(25,)]
    sql = named(text, "count per order")
    assert re.search('"order"', sql)
    assert dict(answered(text, sql)) == {0: 17, 1: 17, 2: 16}
