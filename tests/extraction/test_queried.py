"""retrieve: what is plainly a query is answered by one, and anything else as before."""

import json
import re
from dataclasses import replace

import anyio
import psutil
import pytest

from domain.extraction import Answer, ExtractStatus, Mode, Span
from extraction import ladder, querying, retrieve
from tests.extraction.acting import task_of

pytestmark = pytest.mark.anyio

ORDERS = [
    {"id": n, "city": f"city {n % 7}", "status": "ok" if n % 50 else "failed", "total": n * 3}
    for n in range(2000)
]
JSON = json.dumps({"orders": ORDERS, "page": 1})
NDJSON = "\n".join(map(json.dumps, ORDERS))
CSV = "id,city,status,total\n" + "".join(
    f"{one['id']},{one['city']},{one['status']},{one['total']}\n" for one in ORDERS
)


async def asked(text: str, extract: str, max_bytes: int = 4000, ranges: tuple[Span, ...] = ()) -> Answer:
    return await retrieve.answer(
        await task_of(text, None, extract=extract, max_bytes=max_bytes, ranges=ranges)
    )


def queried(answer: Answer) -> tuple[str, object]:
    """The expression and its value, as the body says them."""
    found = re.match(
        r"\[Answered by a query over all of the data, in JMESPath: (.+) · "
        r"GET /results/\{handle\}/query takes others\]\n(?:\[Columns: id, city, status, total\]\n)?(.+)\n",
        answer.body,
    )
    assert found, answer.body[:200]
    return found[1], json.loads(found[2])


PLAIN = [
    (CSV, "How many rows are there?", 2000),
    (CSV, "how many rows have status = failed", 40),
    (CSV, "which row has the largest total?", [ORDERS[-1]]),
    (NDJSON, "What is the average total?", 2998.5),
    (JSON, "How many orders are there?", 2000),
    (JSON, "Which order has the largest total?", [ORDERS[-1]]),
    (JSON, "all orders where total > 5990", ORDERS[1997:]),
    (JSON, "list the ids of all orders where status is failed", list(range(0, 2000, 50))),
]


@pytest.mark.parametrize(("text", "extract", "value"), PLAIN)
async def test_what_is_plainly_a_query_is_answered_by_it(text: str, extract: str, value: object) -> None:
    answer = await asked(text, extract)
    assert queried(answer)[1] == value
    assert (answer.strategy, answer.status) == (Mode.RETRIEVE, ExtractStatus.COMPLETE)
    assert (answer.coverage.ratio, answer.warnings) == (1.0, ())


LEFT_ALONE = [
    (JSON, "Where is city 4?"),
    (JSON, "how many customers are there?"),
    (JSON, "how many orders failed?"),
    (JSON, "how many orders have status = FAILED"),
    (JSON[:-10], "how many orders are there?"),
    (CSV, "which row has the largest status?"),
    ("".join(f"line {n} of a log of orders, total {n}\n" for n in range(3000)), "How many rows are there?"),
]


@pytest.mark.parametrize(("text", "extract"), LEFT_ALONE)
async def test_what_is_no_plain_query_gets_passages(text: str, extract: str) -> None:
    answer = await asked(text, extract)
    assert re.match(r"\[lines? \d|NO RELEVANT DATA FOUND\n", answer.body)
    assert answer.status is ExtractStatus.COMPLETE


async def test_of_a_table_the_columns_are_said() -> None:
    lines = (await asked(CSV, "How many rows are there?")).body.splitlines()
    assert lines[1:] == ["[Columns: id, city, status, total]", "2000"]
    wide = ",".join(f"name_{n}" for n in range(500)) + "\n" + (",".join(["1"] * 500) + "\n") * 30
    said = (await asked(wide, "How many rows are there?")).body.splitlines()[1]
    assert said.startswith("[Columns: name_0, name_1, ")
    assert said.endswith(", …]")
    assert len(said) < 130


@pytest.mark.parametrize("max_bytes", [600, 1000, 4000, 12_000])
async def test_a_list_that_is_too_long_says_how_much_of_it_is_shown(max_bytes: int) -> None:
    answer = await asked(JSON, "all orders where total > 30", max_bytes)
    expression, value = queried(answer)
    assert isinstance(value, list)
    assert expression == "orders[?total > `30`]"
    assert value == ORDERS[11 : 11 + len(value)]
    assert answer.body.endswith(
        f"\n[Cut: the first {len(value)} of 1989 items; offset={len(value)} in that query gives the next]\n"
    )
    assert max_bytes / 2 - 100 <= len(answer.body.encode()) <= max_bytes
    assert (answer.status, answer.coverage.ratio) == (ExtractStatus.PARTIAL, 1.0)
    assert answer.warnings == ("the answer was cut: it was longer than its cap",)


@pytest.mark.parametrize("max_bytes", [0, 1, 50, 100, 200])
@pytest.mark.parametrize("extract", ["How many orders are there?", "all orders where total > 30"])
async def test_the_answer_of_a_query_is_within_its_cap(max_bytes: int, extract: str) -> None:
    answer = await asked(JSON, extract, max_bytes)
    assert len(answer.body.encode()) <= max_bytes
    assert answer.body.startswith("[Answered") == (max_bytes >= 200 and "many" in extract)


async def test_an_item_that_has_no_room_is_left_to_passages() -> None:
    wide = json.dumps([{"id": n, "note": "lorem ipsum " * 500} for n in range(9)])
    assert not (await asked(wide, "all records where id > 3")).body.startswith("[Answered")


async def test_of_ranges_nothing_is_queried() -> None:
    span = Span(len("id,city,status,total\n"), len(CSV))
    answer = await asked(CSV, "How many rows have status = failed", ranges=(span,))
    assert answer.body.startswith("[bytes ")


async def test_a_query_that_cannot_be_run_is_left_to_passages(monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (("/nonexistent",), ("false",)):
        monkeypatch.setattr(querying, "_COMMAND", command)
        assert (await asked(CSV, "How many rows have status = failed")).body.startswith("[lines 1-")


async def test_a_query_that_takes_too_long_leaves_time_for_passages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(querying, "_COMMAND", ("sleep", "3600"))
    task = await task_of(CSV, None, extract="How many rows have status = failed", max_bytes=4000)
    answer = await ladder.answer(replace(task, ends=anyio.current_time() + 4), Mode.RETRIEVE)
    assert answer.body.startswith("[lines 1-")
    assert "sleep" not in [one.name() for one in psutil.Process().children()]
