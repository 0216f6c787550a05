"""Records of one field a line are rows, and tables within a text are tables."""

import pytest

from content.formats.blocks import blocks_in
from content.layout import layout_of
from content.source_text import SourceText

PSQL = "".join(
    f"-[ RECORD {n} ]--\nname  | tool {n}\nnote  | first +\n      | second\nprice | {n}.5\n" for n in (1, 2)
)
MYSQL = "".join(f"{'*' * 27} {n}. row {'*' * 27}\n  id: {n}\nname: a: {n}\n" for n in (1, 2))
SQLITE = "".join(f"   id = {n}\nname = n = {n}\n\n" for n in range(3))
DEBIAN = "".join(f"Package: p{n}\nSize: {n}\nAbout: long\n text\n\n" for n in range(3))
LDIF = (
    "# all of them\n\n"
    + "".join(f"# number {n}\ndn: uid=u{n}\nmail: a@x\nmail: b@x\n\n" for n in range(9))
    + "search: 2\nresult: 0 Success\n"
)
CARDS = "".join(f"BEGIN:VCARD\nFN:Ann {n}\nTEL;TYPE=home:12\n 3\nEND:VCARD\n" for n in range(2))
DATES = (
    "BEGIN:VCALENDAR\nVERSION:2.0\n"
    + "".join(
        f"BEGIN:VEVENT\nUID:{n}\nBEGIN:VALARM\nTRIGGER:-P1D\nEND:VALARM\nEND:VEVENT\n" for n in range(1)
    )
    + "BEGIN:VEVENT\nUID:7\nEND:VEVENT\nEND:VCALENDAR\n"
)
YAML = "".join(f'- id: {n}\n  name: "n {n}"\n  tags:\n    - a\n    - b\n' for n in range(3))


@pytest.mark.parametrize(
    ("text", "count", "first"),
    [
        (PSQL, 2, {"name": "tool 1", "note": "first\nsecond", "price": "1.5"}),
        (PSQL.replace("\n", "\r\n") + "\r\n(2 rows)\r\n", 2, None),
        (MYSQL + "2 rows in set (0.00 sec)\n", 2, {"id": "1", "name": "a: 1"}),
        (SQLITE, 3, {"id": "0", "name": "n = 0"}),
        (DEBIAN, 3, {"Package": "p0", "Size": "0", "About": "long\ntext"}),
        (LDIF, 9, {"dn": "uid=u0", "mail": "a@x\nb@x"}),
        (CARDS, 2, {"FN": "Ann 0", "TEL": "123"}),
        (DATES, 2, {"UID": "0"}),
        (YAML, 3, {"id": "0", "name": "n 0", "tags": "- a\n- b"}),
    ],
    ids=["psql", "psql, CRLF", "MySQL", "SQLite", "Debian", "LDIF", "vCard", "ICS", "YAML"],
)
def test_a_block_is_a_row(text: str, count: int, first: dict[str, str] | None) -> None:
    found = blocks_in(text)
    assert found is not None
    assert len(found.rows) == count
    assert first is None or found.rows[0] == first


def test_blocks_that_begin_otherwise_are_told() -> None:
    found = layout_of(SourceText(LDIF.encode()))
    assert found.tables[0].rows == 9
    assert found.notes == ("1 block of another kind is only in lines.",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Note: one\n\nNote: two\n\nNote: three\n",
        "Dear all: read this\nand that\n\nIt is late: go home\nnow\n" * 9,
        "a: 1\nb: 2\n\nc: 1\nd: 2\n\ne: 1\nf: 2\n",
        "services:\n  web:\n    image: x\n  db:\n    image: y\n" * 3,
    ],
)
def test_other_text_has_no_blocks(text: str) -> None:
    assert blocks_in(text) is None


PLANS = "| plan | seats |\n|---|--:|\n" + "".join(f"| p{n} | {n} |\n" for n in range(4))


def test_the_only_table_of_a_text_is_data_and_of_several_each_has_its_number() -> None:
    one = layout_of(SourceText(f"# Prices\n\nWords.\n\n{PLANS}\nMore.\n".encode()))
    assert [(table.name, table.rows) for table in one.tables[:2]] == [("data", 4), ("table1", 4)]
    assert [column.name for column in one.tables[0].columns] == ["plan", "seats"]
    two = layout_of(SourceText(f"# Prices\n\n{PLANS}\nMore.\n\n{PLANS}".encode()))
    assert [table.name for table in two.tables] == ["data", "table1", "table2", "lines"]
    assert [column.name for column in two.tables[0].columns] == ["line", "text"]


def test_a_box_below_words_is_a_table_and_a_rule_alone_is_none() -> None:
    box = "+---+---+\n| a | b |\n+---+---+\n| 1 | 2 |\n+---+---+\n"
    found = layout_of(SourceText(f"Connected to the database.\nIt is late.\n{box}Bye.\n".encode()))
    assert [(table.name, table.rows) for table in found.tables[:2]] == [("data", 1), ("table1", 1)]
    assert len(layout_of(SourceText(b"Title\n--|--\nwords\nmore\n")).tables) == 2
