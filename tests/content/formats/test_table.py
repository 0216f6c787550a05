"""Tables of lines: their dialect, rows and columns, and the header above a row."""

import time

import pytest

from content.describe import extent
from content.kind import Kind
from content.passages import split, whole
from content.source_text import SourceText
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

DF = """\
Filesystem              1K-blocks     Used Available Use% Mounted on
devtmpfs                 12334460        0  12334460   0% /dev
tmpfs                    24684084   111632  24572452   1% /dev/shm
/dev/vda                264212084 38021896  68369016  36% /
tmpfs                    12342040        0  12342040   0% /sys/fs/cgroup
"""
PIP = """\
Package                                  Version        Editable project location
---------------------------------------- -------------- -------------------------
annotated-doc                            0.0.7
spillgate                                0.1.0          /srv/spill gate
attrs                                    26.1.0
backports.zstd                           1.8.0
"""
PROCESSES = """\
USER       PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
root         1  0.4  0.1  58108 25108 ?        S<Ll 14:49   0:13 /sbin/init --
root         2  0.0  0.0      0     0 ?        S    14:49   0:00 [kthreadd]
root         4  0.0  0.0      0     0 ?        I<   14:49   0:00 [kworker/R-rcu_
root         5  0.0  0.0      0     0 ?        I<   14:49   0:00 [kworker/R-sync
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
        (
            DF,
            [
                {
                    "Filesystem": "devtmpfs",
                    "1K-blocks": 12334460,
                    "Used": 0,
                    "Available": 12334460,
                    "Use%": "0%",
                    "Mounted on": "/dev",
                }
            ],
        ),
        (
            PIP,
            [
                {"Package": "annotated-doc", "Version": "0.0.7", "Editable project location": ""},
                {"Package": "spillgate", "Version": "0.1.0", "Editable project location": "/srv/spill gate"},
            ],
        ),
        (
            PROCESSES,
            [{"USER": "root", "PID": 1, "%CPU": 0.4, "%MEM": 0.1, "VSZ": 58108, "RSS": 25108, "TTY": "?"}],
        ),
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
    ids=["columns", "bars", "df", "pip", "ps", "frame", "semicolons", "quotes", "no header"],
)
def test_rows_are_read_by_the_dialect_of_the_table(text: str, rows: list[dict[str, object]]) -> None:
    kind, value = read_value(text.encode())
    assert kind is Kind.CSV
    assert isinstance(value, list)
    assert [{name: got[name] for name in row} for got, row in zip(value, rows, strict=False)] == rows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PS, "table, 4 rows, 5 columns: NAME, READY, STATUS, LAST SEEN, AGE"),
        (PSQL, "table, 3 rows, 3 columns: id, name, total"),
        (MYSQL, "table, 3 rows, 2 columns: id, city"),
        (DF, "table, 4 rows, 6 columns: Filesystem, 1K-blocks, Used, Available, Use%, Mounted on"),
        (PIP, "table, 4 rows, 3 columns: Package, Version, Editable project location"),
        ('id,city\n1,"Rome, IT"\n2,"the ""one"", DE"\n3,x\n4,y\n5,z\n', "CSV, 5 rows, 2 columns: id, city"),
        ('id,city\n1,"Rome,\nIT"\n2,"Oslo"\n3,x\n4,y\n5,z\n', "CSV, 5 rows, 2 columns: id, city"),
        ("2020\t1.5\n" * 6, "TSV, 6 rows, 2 columns without names"),
        ("id,name,city\n\n1,Ann,Rome\n\n2,Bo,Oslo\n", "CSV, 2 rows, 3 columns: id, name, city"),
    ],
)
def test_rows_are_counted_without_header_rules_and_footer(text: str, said: str) -> None:
    data = text.encode()
    assert extent(SourceText(data)).rpartition("; ")[0] == said


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
    assert SourceText(text.encode()).format.kind is not Kind.CSV


@pytest.mark.parametrize("text", [PS, PSQL, "id,city\n"], ids=["columns", "bars", "commas"])
def test_a_row_is_shown_under_its_header(text: str) -> None:
    header, _, rest = text.partition("\n")
    last_row = rest.removesuffix("(3 rows)\n").rpartition("\n")[0].rpartition("\n")[2] or "1,Rome"
    source = SourceText((text.removesuffix("(3 rows)\n") + f"{last_row}\n" * 90).encode())
    last = list(split(source))[-1]
    shown = whole(source, last)
    assert shown.header is not None
    assert source.data[slice(*shown.header)].decode().startswith(header)
    assert source.data[shown.start - 1 : shown.start] == b"\n"


def test_a_header_too_long_to_be_shown_is_shortened() -> None:
    header = ",".join(f"column_{n}" for n in range(90))
    source = SourceText((header + "\n" + (",".join("1" * 90) + "\n") * 60).encode())
    shown = whole(source, list(split(source))[-1])
    assert shown.header is None
    assert shown.columns.startswith("column_0,column_1,")
    assert len(shown.columns) <= 300


def test_forty_thousand_columns_are_read_in_linear_time() -> None:
    width = 40_000
    text = "\n".join([",".join(f"c{n}" for n in range(width)), *[",".join(["1"] * width)] * 3])
    began = time.thread_time()
    _, value = read_value(text.encode())
    assert time.thread_time() - began < 3
    assert isinstance(value, list)
    assert (len(value), len(value[0]), value[2]["c39999"]) == (3, width, 1)


@pytest.mark.parametrize("mark", [",", "\t", ";"])
def test_rows_of_times_below_names_are_a_table_and_no_log(mark: str) -> None:
    names = mark.join(("timestamp", "host name", "cpu_pct"))
    rows = [mark.join((f"2026-04-01T10:00:{n:02}Z", f"app-{n % 4}", f"{n / 2}")) for n in range(60)]
    kind = SourceText("\n".join((names, *rows)).encode()).format.kind
    assert kind is Kind.CSV
    # Without names, or below a sentence, they are lines of a log.
    assert SourceText("\n".join(rows).encode()).format.kind is Kind.LOG
    lines = [f"2026-04-01 10:00:{n:02},123 INFO started" for n in range(60)]
    assert SourceText("\n".join(("Starting up, please wait", *lines)).encode()).format.kind is Kind.LOG
