"""Logs: levels by weight, times, order, events with their traces."""

import pytest

from content.describe import extent, outline
from content.kind import Kind
from content.passages import split
from content.source_text import SourceText


def log(levels: str, form: str = "2026-11-20 08:{:02}:{:02} {} request {}") -> bytes:
    names = {"E": "ERROR", "W": "WARNING", "I": "INFO", "D": "DEBUG", "F": "FATAL"}
    lines = (form.format(n // 60 % 60, n % 60, names[one], n) for n, one in enumerate(levels))
    return "".join(f"{line}\n" for line in lines).encode()


def said(data: bytes) -> str:
    return extent(SourceText(data)).rpartition("; ")[0]


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
    assert extent(SourceText(data)).startswith(f"log, {told}, from ")


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


def test_a_log_of_brackets_is_no_json_and_a_dated_list_a_log() -> None:
    assert SourceText(b"[2016-12-19 21:00:06,509] INFO Rolled (kafka)\n" * 9).format.kind is Kind.LOG
    assert SourceText(b"2016-12-19 21:00 did it\n2016-12-20 21:00 did it\n").format.kind is Kind.LOG


DPKG = """\
2026-11-24 14:58:52 status installed libgtk-3-0:amd64 3.24.38-2~deb12u3
2026-11-24 14:58:52 configure chromium:amd64 156.0.8078.79-1~deb12u1 <none>
2026-11-24 14:59:10 status half-configured chromium:amd64 156.0.8078.79-1~deb12u1
"""
# Of Python's HTTP server, and of nginx.
SERVED = """\
127.0.0.1 - - [24/Nov/2026 15:35:39] "GET /docs/ HTTP/1.1" 200 -
127.0.0.1 - - [24/Nov/2026 15:35:39] code 404, message File not found
127.0.0.1 - - [24/Nov/2026 15:35:41] "GET /nothing HTTP/1.1" 404 -
"""
ACCESS = """\
83.149.9.216 - - [17/May/2026:10:05:03 +0000] "GET /INFO.png HTTP/1.1" 200 203023 "-" "Mozilla/5.0"
83.149.9.216 - - [17/May/2026:10:05:43 +0000] "GET /ERROR.png HTTP/1.1" 404 171717 "-" "Mozilla/5.0"
"""
JOURNAL = """\
Nov 24 14:49:01 host systemd[1]: Started a service.
Nov 24 14:49:03 host sshd[812]: Accepted publickey for root from 10.0.0.2 port 4242
Nov 24 14:51:03 host kernel: eth0: link becomes ready
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (DPKG, "log, from 2026-11-24 14:58:52 to 2026-11-24 14:59:10 (0:00:18)"),
        (SERVED, "log, from 24/Nov/2026 15:35:39 to 24/Nov/2026 15:35:41 (0:00:02)"),
        (ACCESS, "log, from 17/May/2026:10:05:03 to 17/May/2026:10:05:43 (0:00:40)"),
        (JOURNAL, "log, from Nov 24 14:49:01 to Nov 24 14:51:03 (0:02:02)"),
    ],
)
def test_logs_of_real_programs_say_their_times_and_no_level_that_is_a_word(text: str, told: str) -> None:
    assert said(text.encode()) == told
    assert SourceText(text.encode()).format.kind is Kind.LOG


def test_the_statuses_of_an_access_log_are_counted() -> None:
    assert outline((ACCESS * 20).encode(), 400).splitlines()[1] == "status: 200 20, 404 20"


def test_a_time_that_begins_in_the_first_bytes_is_found_behind_other_colons() -> None:
    line = "INFO a:b c:12 at 2026-11-24 10:00:{:02} done\n"
    text = "".join(map(line.format, range(9)))
    assert said(text.encode()).endswith("from 2026-11-24 10:00:00 to 2026-11-24 10:00:08 (0:00:08)")


def test_each_event_is_in_one_passage_with_its_trace() -> None:
    event = (
        "2026-11-24 10:00:{0:02} INFO a request came from a client\n"
        "2026-11-24 10:00:{0:02} ERROR the request failed\n\tat a.b.C(C.java:1)\n\tat the end\n"
    )
    source = SourceText("".join(event.format(n % 60) for n in range(60)).encode())
    for one in split(source):
        piece = source.data[one.start : one.end]
        assert piece.startswith(b"2026-")
        assert piece.count(b"failed") == piece.count(b"at the end\n")
