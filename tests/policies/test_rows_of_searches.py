"""Matches are counted as what they are, in whatever form a search prints them."""

import pytest

from policies.search_output import FileRows, SearchRows, tally

DATES = [f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}" for number in range(60)]

PLAIN = {
    "numbers and files": [f"src/a.py:{n}:x = {n}" for n in range(60)],
    "numbers": [f"{n}:x = {n}" for n in range(60)],
    "numbers, columns and files": [f"src/a.py:{n}:5:x" for n in range(60)],
    "files": [f"src/a.py:x = {n}" for n in range(60)],
    "drives": [f"C:\\src\\a.rs:{n}:x" for n in range(60)],
    "files with spaces": [f"my notes/a b.txt:{n}:x" for n in range(60)],
    "dates": [f"{date} 10:00:00 failed" for date in DATES],
    "dates and files": [f"app.log:{date} 10:00:00 failed" for date in DATES],
    "dates in ISO and files": [f"app.log:{date}T10:00:00 failed" for date in DATES],
    "dates and numbers": [f"{n}:{date} failed" for n, date in enumerate(DATES)],
    "times": [f"12:30:{n:02} failed" for n in range(60)],
    "dates in the names of files": [f"logs/{date}.log:{n}:x" for n, date in enumerate(DATES)],
    "days in the names of files": [f"logs/app-2026-11-{n:02}-x.log:7:x" for n in range(60)],
    "a list of files": [f"logs/{date}/{n}.log" for n, date in enumerate(DATES)],
    "a list of files in order": [f"backup-{n:02}-x.tar" for n in range(60)],
    "ranges": [f"{n}-{n + 1}-x" for n in range(60)],
    "a binary file": ["Binary file x matches", *(f"a.py:{n}:x" for n in range(59))],
    "an end of a month": [*(f"{number} x" for number in ("2026-11-30", "2026-12-01")), *("text",) * 58],
}


@pytest.mark.parametrize("rows", PLAIN.values(), ids=PLAIN.keys())
def test_each_row_is_a_match_where_there_is_no_context(rows: list[str]) -> None:
    found = tally(rows, 20)
    assert found is not None
    assert (found.total, found.shown) == (60, 20)


GROUPS = {
    "files": "{f}-{0}-{t}\n{f}:{1}:{t}\n{f}-{2}-{t}",
    "no files": "{0}-{t}\n{1}:{t}\n{2}-{t}",
    "a colon behind the file": "{f}:{0}-{t}\n{f}:{1}:{t}\n{f}:{2}-{t}",
    "two before": "{f}-{0}-{t}\n{f}-{1}-{t}\n{f}:{2}:{t}",
    "two behind": "{f}:{0}:{t}\n{f}-{1}-{t}\n{f}-{2}-{t}",
    "files alone": "{e}-{t}\n{e}:{t}\n{e}-{t}",
}
FILES = (
    "src/a.py",
    "src/a-1-b.rs",
    "Makefile",
    "logs/2026-11-20/app.log",
    "logs/app-2026-11-20.log",
    "v1.2-b/x",
)
TEXTS = ("x = 1", "2026-11-02 10:00:00 failed", "12:30:45", "3-4-5", "key: 12: x", "", "-- x")


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS.keys())
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("separator", ["\n--\n", "\n"])
def test_context_is_no_match(group: str, file: str, separator: str) -> None:
    for text in TEXTS:
        numbers = range(10, 1210, 30)
        given = {"f": file, "e": "src/a-1.py", "t": text}
        rows = separator.join(group.format(n, n + 1, n + 2, **given) for n in numbers).split("\n")
        found = tally(rows, len(rows) // 2)
        assert found is not None
        assert (found.total, found.shown) == (40, 20), text


def test_headings_are_no_matches() -> None:
    files = ["src/a.py", "Makefile", "logs/2026-11-20.log"]
    for rows in (
        [f"{n}:x" for n in range(9)],
        ["1-x", "2:x", "3-x", "--", "7-x", *(f"{n}:x" for n in range(8, 16))],
        [f"{n}:2026-11-02 x" for n in range(9)],
    ):
        text = "\n\n".join("\n".join((file, *rows)) for file in files)
        found = tally(text.split("\n"))
        assert found is not None
        assert (found.total, dict(found.files)) == (27, dict.fromkeys(files, 9))
    for count in (1, 3):
        blocks = ("\n".join((f"src/{n}.py", *("some text",) * 9)) for n in range(count))
        found = tally("\n\n".join(blocks).split("\n"))
        assert found is not None
        assert found.total == 9 * count


def test_a_count_for_each_file_is_so_many_matches() -> None:
    for name in ("src/{}.py", "logs/2026-11-{:02}.log", "my notes/{}", "C:\\src\\{}.rs"):
        rows = [f"{name.format(number)}:{number}" for number in range(1, 41)]
        found = tally(rows, 10)
        assert found is not None
        assert (found.total, found.shown, found.files[name.format(40)]) == (820, 55, 40)


def test_context_that_nothing_marks_is_not_counted() -> None:
    rows = ["2026-11-02 before", "2026-11-02 needle", "2026-11-02 behind", "--"] * 20
    assert tally(rows) is None


def test_what_a_tool_says_of_its_output_is_no_row() -> None:
    rows = [
        "Found 60 files",
        *(f"logs/2026-11-20/{n}.log" for n in range(60)),
        "",
        "(Results limited to 60 files)",
    ]
    for counts in (SearchRows(), FileRows()):
        for row in rows:
            counts.feed(row, is_shown=False)
        found = counts.finish()
        assert found is not None
        assert found.total == 60
    nothing = SearchRows().finish()
    assert nothing is not None
    assert nothing.total == 0
