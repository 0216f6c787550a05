"""Tables that programs print: cells stand below their header, and empty cells are cells."""

import time

import pytest

from content.formats.printed import is_rule, printed_in
from content.layout import layout_of
from content.source_text import SourceText

ALIGNED = """\
NAME    STATE    PORTS      AGE
web-0   Up                  3 hours ago
db      Exited   5432/tcp   2 days ago
cache   Up       6379/tcp   10 days ago

STATE = what the daemon knows of it
3 services.
"""
RIGHT = """\
  UNIT           COUNT  NOTE
  alpha.service     12  one
● beta.service   1,200
  gamma.service      3  three words here
  delta.service      4  four
"""
WIDE = """\
城市      人口   注
東京        13   首都
Kraków       1   a
Lima        11   b
"""
PSQL = """\
 parent |  name  | note
--------+--------+-------
        | one    | first+
        |        | second
 p1     | two    |
 p2     | three  | x
(3 rows)
"""
BOX = """\
┌────┬────────┐
│ id │  zone  │
├────┼────────┤
│ 1  │ Łódź   │
│ 2  │        │
└────┴────────┘
"""
MYSQL = """\
+----+------+
| id | name |
+----+------+
|  1 | a    |
|  2 | NULL |
+----+------+
2 rows in set (0.00 sec)
"""
MARKDOWN = """\
| id | command |
|---:|:--------|
| 1 | `ps \\| grep x` |
| 2 | `ls` |
"""
OVERFLOW = """\
USER       PID  COMMAND
root         1  init
a-very-long-user 2 sh -c "sleep 1"
www          3  nginx worker
ada          4  vim
"""


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        (
            ALIGNED,
            ["NAME", "STATE", "PORTS", "AGE"],
            [
                ["web-0", "Up", "", "3 hours ago"],
                ["db", "Exited", "5432/tcp", "2 days ago"],
                ["cache", "Up", "6379/tcp", "10 days ago"],
            ],
        ),
        (
            RIGHT,
            ["UNIT", "COUNT", "NOTE"],
            [
                ["alpha.service", "12", "one"],
                ["beta.service", "1,200", ""],
                ["gamma.service", "3", "three words here"],
                ["delta.service", "4", "four"],
            ],
        ),
        (WIDE, ["城市", "人口", "注"], [["東京", "13", "首都"], ["Kraków", "1", "a"], ["Lima", "11", "b"]]),
        (
            PSQL,
            ["parent", "name", "note"],
            [["", "one", "first\nsecond"], ["p1", "two", ""], ["p2", "three", "x"]],
        ),
        (BOX, ["id", "zone"], [["1", "Łódź"], ["2", ""]]),
        (MYSQL, ["id", "name"], [["1", "a"], ["2", "NULL"]]),
        (MARKDOWN, ["id", "command"], [["1", "`ps | grep x`"], ["2", "`ls`"]]),
    ],
    ids=["aligned", "right", "wide", "psql", "box", "mysql", "markdown"],
)
def test_each_cell_belongs_to_the_name_above_it(text: str, names: list[str], rows: list[list[str]]) -> None:
    lines = text.split("\n")
    printed = printed_in(lines)
    assert printed is not None
    assert list(printed.names) == names
    assert list(printed.rows(lines)) == rows


def test_a_cell_wider_than_its_column_moves_only_its_own_row() -> None:
    lines = OVERFLOW.split("\n")
    printed = printed_in(lines)
    assert printed is not None
    assert [row[0] for row in printed.rows(lines)] == ["root", "a-very-long-user", "www", "ada"]


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox\njumps over the lazy\ndog and runs away\nto the other side\n",
        "def f(a,  b):\n    return a\n\ndef g(a,  b):\n    return b\n",
        "error:  cannot find  x\nerror:  cannot find  y\nwarning: unused z here\nnote: see there\n",
        "12K  dir0\n13K  dir1\n14K  dir2\n15K  dir3\n",
    ],
)
def test_other_lines_are_no_table(text: str) -> None:
    assert printed_in(text.split("\n")) is None


@pytest.mark.parametrize("piece", ["-", " ", "| ", " -"])
def test_long_lines_beside_bars_are_read_in_linear_time(piece: str) -> None:
    """Each takes 10 ms of processor time, and seconds where a pattern is quadratic."""
    text = f"a | b\n{piece * 20_000}x | y\n".encode()
    began = time.thread_time()
    layout_of(SourceText(text))
    is_rule(text.decode().split("\n")[1])
    assert time.thread_time() - began < 1
