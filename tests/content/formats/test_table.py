"""Tables of lines: their dialect, rows and columns, and the header above a row."""

import pytest

from content.describe import about
from content.kind import Kind
from content.passages import split, whole
from content.source import Source
from content.values import read_value

PS = """\
NAME        READY   STATUS    LAST SEEN   AGE
web-0       1/1     Running   3 s         12d
web-1       0/1     Pending   20 s        4d
database    1/1     Running   1 s         99d
cache       1/1     Running   2 s         7d
"""
PSQL = """\
 id |  name   | total
----+---------+-------
  1 | Ann     |   9.5
  2 | Bo  Lee |    12
  3 | Cy      |
(3 rows)
"""
MYSQL = """\
+----+------+
| id | city |
+----+------+
|  1 | Rome |
|  2 | Oslo |
|  3 | Bonn |
+----+------+
"""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            PS,
            [
                {"NAME": "web-0", "READY": "1/1", "STATUS": "Running", "LAST SEEN": "3 s", "AGE": "12d"},
                {"NAME": "web-1", "READY": "0/1", "STATUS": "Pending", "LAST SEEN": "20 s", "AGE": "4d"},
            ],
        ),
        (PSQL, [{"id": 1, "name": "Ann", "total": 9.5}, {"id": 2, "name": "Bo  Lee", "total": 12}]),
        (MYSQL, [{"id": 1, "city": "Rome"}, {"id": 2, "city": "Oslo"}]),
        (
            "a;b\n1,5;2,5\n2,5;3,5\n3,5;4,5\n4,5;5,5\n5,5;6,5\n",
            [{"a": "1,5", "b": "2,5"}, {"a": "2,5", "b": "3,5"}],
        ),
        (
            'id,"a, b"\n1,"x\ny"\n2,z\n3,w\n4,v\n5,u\n6,t\n',
            [{"id": 1, "a, b": "x\ny"}, {"id": 2, "a, b": "z"}],
        ),
        (
            "1.5\t2020\n2.5\t2021\n3.5\t2022\n4\t2023\n5\t2024\n6\t2025\n",
            [{"column_1": 1.5, "column_2": 2020}],
        ),
    ],
    ids=["columns", "bars", "frame", "semicolons", "quotes", "no header"],
)
def test_rows_are_read_by_the_dialect_of_the_table(text: str, rows: list[dict[str, object]]) -> None:
    kind, value = read_value(text.encode())
    assert kind is Kind.CSV
    assert isinstance(value, list)
    assert value[: len(rows)] == rows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PS, "table, 4 rows, 5 columns: NAME, READY, STATUS, LAST SEEN, AGE"),
        (PSQL, "table, 3 rows, 3 columns: id, name, total"),
        (MYSQL, "table, 3 rows, 2 columns: id, city"),
        ("2020\t1.5\n" * 6, "TSV, 6 rows, 2 columns without names"),
        ("id,name,city\n\n1,Ann,Rome\n\n2,Bo,Oslo\n", "CSV, 2 rows, 3 columns: id, name, city"),
    ],
)
def test_rows_are_counted_without_header_rules_and_footer(text: str, said: str) -> None:
    data = text.encode()
    assert about(data, data[-4096:], len(data), text.count("\n") + 1) == said


@pytest.mark.parametrize(
    "text",
    [
        "He came, and left.\nShe came, and left.\n" * 9,
        "src/a.ts(227,28): error TS2663: Cannot find name 'x'.\n" * 9,
        "foo(a, b);\nbar(c, d);\n" * 9,
        "key: a, b\nother: c, d\n" * 9,
        "app | started\napp | stopped\n" * 9,
        str([("Rome",), ("Oslo",)] * 900),
        "one, two, three and " * 900,
    ],
)
def test_commas_and_bars_alone_make_no_table(text: str) -> None:
    assert Source(text.encode()).format.kind is not Kind.CSV


@pytest.mark.parametrize("text", [PS, PSQL, "id,city\n"], ids=["columns", "bars", "commas"])
def test_a_row_is_shown_under_its_header(text: str) -> None:
    header, _, rest = text.partition("\n")
    last_row = rest.removesuffix("(3 rows)\n").rpartition("\n")[0].rpartition("\n")[2] or "1,Rome"
    source = Source((text.removesuffix("(3 rows)\n") + f"{last_row}\n" * 90).encode())
    last = list(split(source))[-1]
    shown = whole(source, last)
    assert shown.header is not None
    assert source.data[slice(*shown.header)].decode().startswith(header)
    assert source.data[shown.start - 1 : shown.start] == b"\n"


def test_a_header_too_long_to_be_shown_is_shortened() -> None:
    header = ",".join(f"column_{n}" for n in range(90))
    source = Source((header + "\n" + (",".join("1" * 90) + "\n") * 60).encode())
    shown = whole(source, list(split(source))[-1])
    assert shown.header is None
    assert shown.columns.startswith("column_0,column_1,")
    assert len(shown.columns) <= 300
