"""The tables of an HTML page, as `query` reads them."""

import time

import pytest

from content.formats.page_tables import page_tables

PAGE = """<table class="a"><tr><th>Name</th><th>Q1 &amp; Q2</th><th>name</th></tr>
<tr><td rowspan=2>north</td><td>x<br>y</td><td>1</td></tr>
<tr><td>z<script>if (a < b) { "<td>" }</script></td><td>2<!-- <td>no</td> --></td></tr>
<tr><td colspan="2">both</td><td>3</td></tr></table>"""


def test_a_cell_stands_in_each_place_that_it_covers() -> None:
    [table] = page_tables(PAGE)
    assert list(table.names) == ["Name", "Q1 & Q2", "name"]
    assert [list(row) for row in table.rows] == [
        ["north", "x y", "1"],
        ["north", "z", "2"],
        ["both", "both", "3"],
    ]


def test_a_table_in_a_cell_is_a_table_of_its_own_which_may_have_no_names() -> None:
    inner = "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>"
    outer, nested = page_tables(
        f"<table><tr><td>1</td><td>{inner}</td></tr><tr><td>2</td><td>3</td></tr></table>"
    )
    assert (list(nested.names), nested.is_named) == (["", ""], False)
    assert [list(row) for row in outer.rows] == [["1", ""], ["2", "3"]]
    assert page_tables("<table><tr><td>one cell</td></tr></table><p>text") == []


HOSTILE = """
<p a
<table
<tr><td
<!--
<script
<script>
<td colspan=9999999 rowspan=99999>x
<td colspan=20 rowspan=20>x
<td>
<table><tr><td>
<p "
<p '<p "
<td a="<
"""


@pytest.mark.parametrize("piece", HOSTILE.strip("\n").split("\n"))
def test_no_page_takes_long(piece: str) -> None:
    began = time.thread_time()
    page_tables("<table><tr>" + piece * (500_000 // len(piece)))
    assert time.thread_time() - began < 2
