"""Logs: levels by weight, times, order, events with their traces."""

import pytest

from content.describe import about, extent
from content.kind import Kind
from content.source import Source


def log(levels: str, form: str = "2026-11-20 08:{:02}:{:02} {} request {}") -> bytes:
    names = {"E": "ERROR", "W": "WARNING", "I": "INFO", "D": "DEBUG", "F": "FATAL"}
    lines = (form.format(n // 60 % 60, n % 60, names[one], n) for n, one in enumerate(levels))
    return "".join(f"{line}\n" for line in lines).encode()


def said(data: bytes) -> str:
    return about(data, data[-4096:], len(data), data.count(b"\n") + 1)


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ("I" * 900 + "EEE" + "I" * 300 + "W" * 41, "3 ERROR, 41 WARNING, 1,200 INFO"),
        ("I" * 50 + "F" + "D" * 20, "1 FATAL, 50 INFO, 20 DEBUG"),
        ("I" * 9, "9 INFO"),
    ],
)
def test_levels_are_named_by_weight_with_their_counts(levels: str, told: str) -> None:
    data = log(levels)
    assert said(data).startswith(f"log, {told}, from 2026-11-20 08:00:00 to ")
    assert extent(Source(data)).startswith(f"log, {told}, from ")


def test_levels_of_a_part_are_named_and_not_counted() -> None:
    data = log("IW" * 2000)
    assert about(data[:16_384], data[-4096:], len(data), 4001).startswith(
        "log, levels at its beginning and end: WARNING, INFO, from "
    )


def test_words_of_a_message_are_no_levels() -> None:
    data = b"2026-11-20 08:00:00 INFO ERROR and WARN are words\n" * 400
    assert said(data).startswith("log, levels at its beginning and end: INFO, from ")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("03-17 16:13:38.811  1702  2395 E Manager: no", "9 ERROR"),
        ("[Thu Jun 09 06:07:04 2005] [notice] LDAP: Built", "9 NOTICE"),
        ('2024-05-01T10:00:00Z level=warn msg="INFO"', "9 WARN"),
    ],
)
def test_levels_in_other_forms_are_counted(line: str, told: str) -> None:
    assert told in said(f"{line}\n".encode() * 9)


@pytest.mark.parametrize(
    ("text", "is_ascending"),
    [
        (log("IIII"), True),
        (b"".join(reversed(log("IIII").splitlines(keepends=True))), False),
        (
            b"commit 1a2b3c4\nDate:   Sat Nov 21 10:00:00 2026\n\n  b\n\n"
            b"commit 2b3c4d5\nDate:   Fri Nov 20 10:00:00 2026\n",
            False,
        ),
        (b"1. one\n2. two\n3. three\n", True),
        (b"#9: nine\n#8: eight\n#7: seven\n", False),
        (b"date,n\n2026-01-01,1\n2026-02-01,2\n2026-03-01,3\n2026-04-01,4\n", True),
        (b"Some words.\nOthers.\n", None),
        (b"10:00:00 INFO a\n10:00:00 INFO b\n", None),
    ],
)
def test_order_is_known_where_there_is_one(text: bytes, is_ascending: bool | None) -> None:
    source = Source(text)
    assert source.format.is_ascending(source) is is_ascending


def test_a_log_of_brackets_is_no_json_and_a_dated_list_a_log() -> None:
    assert Source(b"[2016-12-19 21:00:06,509] INFO Rolled (kafka)\n" * 9).format.kind is Kind.LOG
    assert Source(b"2016-12-19 21:00 did it\n2016-12-20 21:00 did it\n").format.kind is Kind.LOG
