"""Questions in words: the plain ones become queries, all others are left alone."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content.query import Query
from content.questions import MAX_CHARS, read_question, structured_question
from content.record_keys import RecordKeys, keys_of

ORDERS: list[dict[str, Any]] = [
    {
        "id": 1,
        "status": "failed",
        "unitPrice": 3.5,
        "paid": False,
        "ship to": {"city": "Bonn"},
        "zip": "0815",
    },
    {"id": 2, "status": "ok", "unitPrice": 9, "paid": True, "ship to": {"city": "Rome"}, "zip": "4711"},
    {"id": 3, "status": "ok", "unitPrice": 9, "paid": True, "ship to": {"city": None}, "zip": None},
    {"id": 4, "status": "in`s", "unitPrice": None, "paid": None, "ship to": {"city": "Rome"}, "zip": "4711"},
]
DATA = {"total": 4, "orders": ORDERS}


def keys_in(data: object) -> RecordKeys:
    keys = keys_of(data)
    assert keys is not None
    return keys


def ids(answer: Any) -> list[int]:
    return [record["id"] for record in answer]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many orders are there?", 4),
        ("how many records are there in this file", 4),
        ("Count all the rows.", 4),
        ("What is the total number of orders in the data?", 4),
        ("How many orders have status = failed?", 1),
        ("How many orders have a unit price above 5?", 2),
        ("how many orders where status is failed", 1),
        ("Please count the orders with unit_price >= 9 and status = 'ok'", 2),
        ("number of rows where unit price is greater than 3.5", 2),
        ("number of rows where unit price is not null", 3),
        ("how many entries whose paid is true", 2),
        ("how many orders per status", [("ok", 2), ("failed", 1), ("in`s", 1)]),
        ("Count orders by city", [("Rome", 2), ("Bonn", 1), (None, 1)]),
        ("how many distinct statuses", 3),
        ("list all distinct cities", ["Bonn", "Rome"]),
        ("how many distinct values of status are there", 3),
        ("list all distinct zips", ["0815", "4711"]),
        ("what is the highest unit price?", 9),
        ("the minimum UNIT-PRICE of all orders", 3.5),
        ("Average unitPrice", 21.5 / 3),
        ("what is the sum of unit price over all orders", 21.5),
        ("list the ids of all orders", [1, 2, 3, 4]),
        ("what are the ids of orders where zip = 4711", [2, 4]),
        ("list the id for every order where ship to city is Rome", [2, 4]),
        ("list the status and city of orders where id = 1", [{"status": "failed", "ship to.city": "Bonn"}]),
    ],
)
def test_a_plain_question_is_answered(question: str, answer: Any) -> None:
    expression = structured_question(question, keys_in(DATA))
    found = Query(expression).evaluate(DATA) if expression else None
    if isinstance(found, list) and found and isinstance(found[0], dict) and "count" in found[0]:
        found = [(group["value"], group["count"]) for group in found]
    assert found == answer


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Which order has the largest unit price?", [2, 3]),
        ("show me the record with the lowest unit price", [1]),
        ("top 1 orders by unit price", [3]),
        ("the 2 orders with the smallest unit price", [1, 2]),
        ("all orders where status is not 'ok'", [1, 4]),
        ('rows whose status contains "ai"', [1]),
        ("items where status = 'in`s'", [4]),
        ('items where status = "in`s"', [4]),
        ("list all orders with unit price below 9", [1]),
        ("Find rows where city starts with Ro", [2, 4]),
        ("rows where status != ok and unit price < 5", [1]),
    ],
)
def test_a_plain_question_selects_records(question: str, answer: list[int]) -> None:
    expression = structured_question(question, keys_in(DATA))
    assert expression is not None
    assert ids(Query(expression).evaluate(DATA)) == answer


@pytest.mark.parametrize(
    "question",
    [
        "",
        "orders",
        "How many errors are there?",
        "How many failed orders are there?",
        "how many orders failed",
        "how many orders are there and who placed them",
        "how many lines",
        "Which order is the largest?",
        "which order has the largest price",
        "which order has the largest status",
        "which customer has the most orders",
        "what is the highest unit price in Rome",
        "what is the latest order",
        "what is the unique id",
        "average status",
        "average unit price by city",
        "list the names of all orders",
        "list the id of all orders, sorted by unit price",
        "all orders where status is failed or ok",
        "all orders where status is failed or unit price > 5",
        "all orders where status is in (failed, ok)",
        "all orders where status is like f%",
        "all orders where status is empty",
        "all orders where status is not empty",
        "all orders where status is missing",
        "all orders where status is the same",
        "all orders where status > 5",
        "all orders where unit price is high",
        "all orders where unit price is between 1 and 5",
        "all orders where unit price > 1,000",
        "all orders where unit price > $5",
        "all orders where unit price is 9 or less",
        "all orders where unit price contains 9",
        "all orders where paid is yes",
        "all orders where customer = 5",
        "all orders where id = 5 and customer = 6",
        "all orders where id = 1 or id = 2",
        "all customers where id = 1",
        "all orders",
        "rows that look wrong",
        "rows with errors",
        "why did order 4 fail",
        "summarise the orders",
        "find the error message and the stack trace of the failed request",
        "combien de commandes",
        "how many orders where status is failed and summarise them",
        "how many orders where " + "id = 1 and " * 6 + "id = 1",
        "how many orders are there" + " " + "x" * MAX_CHARS,
    ],
)
def test_anything_else_is_left_alone(question: str) -> None:
    assert structured_question(question, keys_in(DATA)) is None


def test_a_name_that_two_keys_share_is_no_name() -> None:
    keys = keys_in([{"a": {"name": "x"}, "b": {"name": "y"}, "user_id": 1, "userId": 2}])
    assert keys.find("name") is None
    assert keys.find("a.name") == ("a", "name")
    assert keys.find("user id") is None
    assert keys.find("--") is None


def test_items_that_a_record_has_itself_are_not_the_records() -> None:
    keys = keys_in({"orders": [{"items": [{"x": 1}, {"x": 2}]}]})
    assert structured_question("how many items are there?", keys) is None
    assert structured_question("how many orders are there?", keys) == "length(orders[])"
    assert structured_question("how many records are there?", keys) == "length(orders[])"


def test_a_key_of_several_types_is_neither() -> None:
    keys = keys_in([{"n": 1}, {"n": "x"}, {"n": None}])
    assert structured_question("max n", keys) is None
    assert structured_question("rows where n = 1", keys) is None
    assert structured_question("count rows by n", keys) == "count_by([], &n)"


@pytest.mark.parametrize(
    "data",
    [
        {"a": [{"x": 1}], "b": [{"y": 1}]},
        [1, 2],
        [{"x": 1}, 2],
        [],
        {"x": 1},
        {"a": {"b": {"c": [{"x": 1}]}}},
        None,
        "text",
    ],
)
def test_where_no_records_stand_out_there_are_no_keys(data: object) -> None:
    assert keys_of(data) is None


def test_records_below_a_key_are_found_by_their_noun() -> None:
    data = {"data": {"line items": [{"x": 1}, {"x": 2}]}, "next": None}
    expression = structured_question("sum of x", keys_in(data))
    assert expression is not None
    assert Query(expression).evaluate(data) == 3


SPEECH = """how many which what list all the rows orders where with has largest top 3 by status unit price is
    not > 5
    'ok' and or per distinct average of"""


@settings(deadline=None)
@given(st.lists(st.sampled_from(SPEECH.split()), max_size=12).map(" ".join) | st.text(max_size=60))
def test_whatever_is_read_is_a_query_over_the_records(question: str) -> None:
    expression = structured_question(question, keys_in(DATA))
    if expression is not None:
        assert read_question(question) is not None
        Query(expression).evaluate(DATA)
