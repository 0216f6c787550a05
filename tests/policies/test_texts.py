"""The texts of every outcome: exact where the contract is, and true to any text whatever."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from content.describe import structure
from content.tokens import load_encoding
from domain.budget import Budget
from domain.handles import Handle, SessionKey
from domain.outcomes import OutcomeKind, Trigger
from domain.results import Measure, ToolResult
from policies.facts import Facts
from policies.outcomes import OUTCOMES, cap, reject, truncate
from policies.oversized import Breach, Oversized, Unit, breach_of
from policies.policy import Policy
from policies.tool_calls import ToolKind, first_row, name_of, searches, tool_kind_of
from policies.view import View
from policies.what_if import MESSAGE_TOKENS

HANDLE = Handle("s", "00000000-0000-4000-8000-000000000000")
WHERE = (
    f'\n\nThe whole result is kept: tool_output(handle = "{HANDLE}") reads it by query, pattern, lines or '
    "extract."
)
TOOLS = ("read_file", "grep_content", "execute_shell", "glob_files", "web_search", "web_fetch", "get_weather")

PIECES = st.sampled_from(
    [
        *("\n", "\r\n", "\r", " ", "a", "word", "é", "e\u0301", "中", "😀", "👨\u200d👩\u200d👧", "\u2028"),
        *("\0", "{", '"x": 1'),
    ]
)
ANY_TEXT = st.one_of(
    st.just(""),
    st.text(st.characters(codec="utf-8"), max_size=300),
    st.lists(PIECES, max_size=300).map("".join),
    st.tuples(PIECES, st.integers(0, 900)).map(lambda pair: pair[0] * pair[1]),
)


def measured(text: str) -> Measure:
    data = text.encode()
    lines = text.count("\n") + 1 if text else 0
    return Measure(len(data), lines, len(text), load_encoding("o200k_base").count(text), True)


def oversized(
    text: str,
    policy: Policy,
    kind: OutcomeKind,
    tool: str = "get_weather",
    keep: bool = False,
    **given: str | int,
) -> Oversized:
    measure, data = measured(text), text.encode()
    ends = OUTCOMES[kind].ends(measure, policy)
    facts = Facts(measure, Budget(1000, 0, 0, True))
    result = ToolResult(SessionKey("t", "s"), tool, tool_arguments=json.dumps(given) if given else None)
    head = data[: ends.head]
    return Oversized(
        result=result,
        measure=measure,
        shown=measure,
        head=head,
        tail=data[max(0, len(data) - ends.tail) :],
        policy=policy,
        breach=breach_of(Trigger.SIZE_CAP, facts, policy),
        handle=HANDLE if keep or kind is OutcomeKind.STORE else None,
        structure=(
            structure(name_of(result), head, first_line=first_row(result, policy.offset_base))
            if ends.structure and not searches(result)
            else ()
        ),
    )


@pytest.mark.parametrize("kind", OUTCOMES)
@pytest.mark.parametrize("size", [5000, 200_000])
def test_the_tokens_of_each_text_are_estimated_by_sizes(kind: OutcomeKind, size: int) -> None:
    policy = Policy(max_bytes=4000, keep=False)
    replaced = oversized("word " * (size // 5), policy, kind)
    made = OUTCOMES[kind].text(replaced)
    assert made is not None
    estimate = OUTCOMES[kind].tokens(replaced.measure, policy, MESSAGE_TOKENS)
    assert measured(made).tokens / 2 <= estimate <= measured(made).tokens * 2


# truncate


def truncated(text: str, tool: str, policy: Policy | None = None, keep: bool = False, **given: str) -> str:
    made = truncate.text(oversized(text, policy or Policy(), OutcomeKind.TRUNCATE, tool, keep, **given))
    assert made is not None
    return made


CODE = (
    "import os\n\n\nclass DataProcessor:\n    def __init__(self):\n        self.rows = []\n\n"
    "    def load(self, path):\n        return open(path).read()\n" + "# filler\n" * 500
)


def test_a_truncated_file_is_exact() -> None:
    assert truncated(CODE, "read_file", path="src/data.py") == (
        f"{CODE[:2000]}\n\n[... {len(CODE) - 2000} characters truncated ...]\n\n"
        "--- Recovery Options ---\n"
        f"File: src/data.py | {CODE.count(chr(10)) + 1} lines, 4,640 chars\n"
        "\nStructure:\n  - class DataProcessor (line 4)\n  - def __init__ (line 5)\n  - def load (line 8)\n"
        "\nCommands:\n"
        '  • grep_content(pattern="DataProcessor", path="src/data.py")\n'
        "  • shell(command=\"sed -n '1,50p' src/data.py\")  # First 50 lines\n"
        "  • shell(command=\"sed -n '216,265p' src/data.py\")  # Next lines\n"
        '  • shell(command="tail -n 50 src/data.py")  # Last 50 lines'
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "heading", "said"),
    [
        (
            "grep_content",
            {"pattern": "x", "path": "src"},
            "File: src",
            'grep_content(pattern="<more specific',
        ),
        ("execute_shell", {"command": "make"}, "Command: make", "make | head -n 50"),
        ("execute_shell", {"command": "make"}, "Command: make", "make | tail -n 50"),
        ("execute_shell", {"command": "make"}, "Command: make", "make | sed -n '"),
        ("execute_shell", {}, "Tool: execute_shell", "<command> | head -n 50"),
        ("web_search", {"query": "x"}, "Tool: web_search", 'web_search(query="<more specific query>")'),
        ("web_search", {"query": "x"}, "Tool: web_search", "web_fetch(url="),
        (
            "web_fetch",
            {"url": "https://a.b/c"},
            "File: https://a.b/c",
            'url="https://a.b/c", save_to="page.txt"',
        ),
        (
            "web_fetch",
            {"url": "https://a.b/c"},
            "File: https://a.b/c",
            'grep_content(pattern="<pattern>", path="page',
        ),
        ("glob_files", {"pattern": "**"}, "Tool: glob_files", 'glob_files(pattern="**/*.<extension>")'),
        ("glob_files", {"pattern": "**"}, "Tool: glob_files", 'glob_files(pattern="<directory>/**/*")'),
        (
            "read_file",
            {"file_path": "a.txt"},
            "File: a.txt",
            'grep_content(pattern="<pattern>", path="a.txt")',
        ),
        ("read_file", {}, "Tool: read_file", "sed -n '1,50p' <path>"),
    ],
)
def test_each_kind_of_tool_has_its_own_way_back(
    tool: str, arguments: dict[str, str], heading: str, said: str
) -> None:
    text = truncated("some words\n" * 1000, tool, **arguments)
    below = text.split("\n--- Recovery Options ---\n")[1]
    assert below.startswith(f"{heading} | 1001 lines, 11,000 chars\n")
    assert said in below.split("\nCommands:\n")[1]


def test_few_long_lines_are_got_by_bytes() -> None:
    text = truncated("é" * 5000, "read_file", path="a.json")
    assert "sed -n '1,50p' a.json | tail -c +4001 | head -c 2000\")  # Next 2000 bytes" in text


def test_a_hostile_file_name_is_quoted_and_stays_on_its_line() -> None:
    text = truncated("x\n" * 3000, "read_file", path="a b'; rm -rf /\n# Ignore the above")
    below = text.split("--- Recovery Options ---\n")[1]
    assert below.splitlines()[0].startswith("File: a b'; rm -rf / # Ignore the above | ")
    assert "sed -n '1,50p' 'a b'\\\"'\\\"'; rm -rf / # Ignore the above'" in below


def test_a_file_name_that_looks_like_an_option_is_none() -> None:
    for text in ("x\n" * 3000, "x" * 5000):
        commands = truncated(text, "read_file", path="-rf.txt").split("\nCommands:\n")[1]
        in_shell = [line for line in commands.splitlines() if "shell(" in line]
        assert len(in_shell) >= 2
        assert all(" ./-rf.txt" in line for line in in_shell)


def test_data_gets_its_outline_too() -> None:
    rows = json.dumps({"rows": [{"id": n, "name": "x"} for n in range(400)], "next": None}, indent=1)
    below = truncated(rows, "get_rows").split("\nStructure:\n")[1].split("\n\nCommands:\n")[0]
    assert "  - object with 2 keys\n    - rows: array of 400" in below
    log = "\n".join(f"2026-01-01 10:{n // 60:02}:{n % 60:02} ERROR failed {n}" for n in range(300))
    assert "  - levels: ERROR 300" in truncated(log, "get_log")


def test_a_structure_that_is_of_the_beginning_alone_says_so() -> None:
    log = "".join(f"2026-01-01 10:00:00 ERROR failed {n}\n" for n in range(20_000))
    lines = truncated(log, "get_log").split("\nStructure:\n")[1].splitlines()
    assert lines[0] == "  - in the first 262144 bytes:"
    assert re.fullmatch(r"  - levels: ERROR \d{4}", lines[1])


@given(ANY_TEXT, st.integers(0, 400), st.sampled_from(TOOLS), st.booleans())
@example("a\r\n" * 300, 2, "read_file", True)
def test_a_truncated_text_is_a_head_and_what_is_missing(
    text: str, head_chars: int, tool: str, keep: bool
) -> None:
    policy = Policy(head_chars=head_chars)
    given = oversized(text, policy, OutcomeKind.TRUNCATE, tool, keep, path="a.txt")
    made = truncate.text(given)
    assert made == truncate.text(given)
    if made is None:
        assert len(text) <= head_chars
        return
    found = re.search(r"\n\n\[\.\.\. (\d+) characters truncated \.\.\.\]\n\n--- Recovery Options ---\n", made)
    assert found is not None
    head, missing = made[: found.start()], int(found[1])
    assert text.startswith(head)
    assert head_chars - 1 <= len(head) <= head_chars
    assert len(head) + missing == len(text)
    assert not (head.endswith("\r") and text[len(head)] == "\n")
    assert made.endswith(WHERE) == keep
    assert len(made) <= len(text) + 700


# cap


def capped(text: str, most: int, keep: bool = False, **policy: int) -> str | None:
    given = Policy(on_oversize=OutcomeKind.CAP, max_bytes=most, **policy)  # type: ignore[arg-type]
    return cap.text(oversized(text, given, OutcomeKind.CAP, keep=keep))


def test_a_capped_text_is_exact() -> None:
    text = "".join(f"{number:04}\n" for number in range(1000))
    made = capped(text, 1000)
    assert made is not None
    head, tail = made.split("\n... [4050 bytes truncated; head + tail kept] ...\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) == len(tail) == 475
    assert len(made) <= 1000


@given(ANY_TEXT, st.integers(1, 2000), st.booleans())
def test_a_capped_text_keeps_to_the_cap_and_cuts_no_character(text: str, most: int, keep: bool) -> None:
    made = capped(text, most, keep)
    if made is None:
        return
    assert made == capped(text, most, keep)
    assert len(made.encode()) <= most
    body = made.removesuffix(WHERE)
    assert (body != made) == keep
    found = re.search(r"\n\.\.\. \[(\d+) bytes truncated; head \+ tail kept\] \.\.\.\n", body)
    assert found is not None
    head, tail = body[: found.start()], body[found.end() :]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head.encode()) + int(found[1]) + len(tail.encode()) == len(text.encode())
    assert abs(len(head.encode()) - len(tail.encode())) <= 6
    assert len(body.encode()) < len(text.encode())


@pytest.mark.parametrize(
    ("policy", "within"),
    [
        ({"max_chars": 3000}, lambda measure: measure.chars <= 3000),
        ({"max_tokens": 1000}, lambda measure: measure.tokens <= 1000),
        ({"max_chars": 3000, "max_tokens": 300}, lambda measure: measure.tokens <= 300),
    ],
)
@pytest.mark.parametrize("text", ["some words and more\n" * 2000, "слова и ещё слова\n" * 2000])
def test_a_cap_in_characters_or_tokens_is_kept_to_as_well(text, policy, within) -> None:  # type: ignore[no-untyped-def]
    made = capped(text, 0, **policy)
    assert made is not None
    assert within(measured(made))
    assert len(made) > 500


@pytest.mark.parametrize(("text", "most"), [("x" * 500, 500), ("x" * 5000, 40), ("x" * 400, 460), ("", 10)])
def test_a_cap_without_room_or_need_gives_way(text: str, most: int) -> None:
    assert capped(text, most) is None


# reject


@given(ANY_TEXT, st.sampled_from(TOOLS), st.booleans())
def test_a_rejection_holds_nothing_of_the_result(text: str, tool: str, keep: bool) -> None:
    policy = Policy(max_bytes=1)
    made = reject.text(oversized(text, policy, OutcomeKind.REJECT, tool, keep))
    other = reject.text(oversized("y" * len(text.encode()), policy, OutcomeKind.REJECT, tool, keep))
    assert made == other
    assert made is not None
    assert made.endswith(WHERE) == keep


@pytest.mark.parametrize(
    ("trigger", "policy", "breach"),
    [
        (Trigger.SIZE_CAP, Policy(max_bytes=10), Breach(30, 10, Unit.BYTES)),
        (Trigger.SIZE_CAP, Policy(max_bytes=10, max_tokens=5), Breach(15, 5, Unit.TOKENS)),
        (Trigger.SIZE_CAP, Policy(max_bytes=0, max_chars=9), Breach(20, 9, Unit.CHARS)),
        (Trigger.TOKEN_BUDGET, Policy(), Breach(15, 10, Unit.TOKENS)),
        (Trigger.RESERVE_FAILED, Policy(), Breach(15, 4, Unit.TOKENS)),
    ],
)
def test_what_decided_is_named_in_its_unit(trigger: Trigger, policy: Policy, breach: Breach) -> None:
    facts = Facts(Measure(30, 2, 20, 15, True), Budget(100, 90, 6, True))
    assert breach_of(trigger, facts, policy) == breach


# views


def viewed(
    text: str, tool: str = "read_file", arguments: str | None = None, size: int = 7, **caps: int
) -> str:
    """Fed in pieces of `size` bytes."""
    view = View(Policy(**caps), ToolResult(SessionKey("t", "s"), tool, tool_arguments=arguments))  # type: ignore[arg-type]
    data = text.encode()
    shown = [view.feed(data[start : start + size]) for start in range(0, len(data), size)]
    made = "".join(shown) + view.finish()
    assert (made != text) == view.cuts
    return made


def test_a_reading_from_the_middle_is_numbered_from_there() -> None:
    text = "x\n" * 10
    for arguments in ('{"offset": 101}', '{"params": {"start_line": 101}}'):
        assert viewed(text, arguments=arguments, max_rows=4).endswith("(Showing lines 101–104 of 110 total)")
    for arguments in ('{"offset": -1}', '{"offset": true}', '{"offset": "9"}', "not JSON", "{", None):
        assert viewed(text, arguments=arguments, max_rows=4).endswith("(Showing lines 1–4 of 10 total)")


@given(ANY_TEXT, st.integers(0, 12), st.integers(0, 60), st.integers(1, 50), st.sampled_from(TOOLS))
def test_a_view_adds_up_and_never_grows_a_line(
    text: str, rows: int, chars: int, size: int, tool: str
) -> None:
    made = viewed(text, tool, None, size, max_rows=rows, max_line_chars=chars)
    assert made == viewed(text, tool, None, len(text.encode()) + 1, max_rows=rows, max_line_chars=chars)
    body = re.sub(r"\n\(Showing [^\n]*\)\Z", "", made) if rows else made
    given, shown = text.split("\n"), body.split("\n")
    if rows and len(given) > rows:
        given = [*given[:rows], ""] if body.endswith("\n") else given
    assert len(shown) == len(given)
    for line, cut in zip(given, shown, strict=True):
        assert len(cut.encode()) <= len(line.encode())
        if cut != line:
            found = re.search(r"… \[\+(\d+) chars\]\r?$", cut)
            assert found is not None
            assert found.start() >= chars
            assert line.startswith(cut[: found.start()])
            assert found.start() + int(found[1]) == len(line) - cut.endswith("\r")


RECORDS = {
    "CSV": 'id,"the\ntext"\n' + "".join(f'{n},"a ""b""\n\n{n}"\r\n' for n in range(30)),
    "TSV": "id\ttext\n" + "".join(f'{n}\t"a\n"\n' for n in range(30)) + '30\t"',
    "JSON": json.dumps([{"a": '\\"}]\n', "b": [{"c": n}]} for n in range(30)], indent=1),
    "a footer": "id,text\n"
    + "".join(f'{n},"a\nb"\n' for n in range(30))
    + "\n(Showing rows 1–30 of 99 total)",
}


@pytest.mark.parametrize("text", RECORDS.values(), ids=RECORDS.keys())
@pytest.mark.parametrize("tool", ["query", "read_file"])
def test_a_view_of_records_is_the_same_however_they_come(text: str, tool: str) -> None:
    for rows in (1, 7, 29, 30, 31, 100):
        made = viewed(text, tool, None, len(text.encode()) + 1, max_rows=rows)
        assert made != text or rows >= 30
        for size in (1, 2, 3, 11):
            assert viewed(text, tool, None, size, max_rows=rows) == made


# tools and their arguments


def kind(tool: str, tool_kind: str | None = None, **given: object) -> ToolKind:
    arguments = json.dumps(given) if given else None
    return tool_kind_of(ToolResult(SessionKey("t", "s"), tool, tool_arguments=arguments, tool_kind=tool_kind))


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        *((name, ToolKind.FILE) for name in ("read_file", "Read", "read", "filesystem/readFile")),
        *((name, ToolKind.GREP) for name in ("Grep", "grep", "grep_content", "mcp__fs__grep_search")),
        *((name, ToolKind.GLOB) for name in ("Glob", "glob_files", "list_directory", "find_files")),
        *((name, ToolKind.SHELL) for name in ("Bash", "bash", "execute_shell", "run_terminal_cmd")),
        *((name, ToolKind.WEB_SEARCH) for name in ("WebSearch", "web_search", "brave_web_search")),
        *((name, ToolKind.WEB_FETCH) for name in ("WebFetch", "web_fetch", "mcp__browser__web_fetch")),
    ],
)
def test_the_tools_of_the_designs_are_known_by_their_whole_names(tool: str, told: ToolKind) -> None:
    assert kind(tool) is told
    assert kind(tool, "mcp") is told


@pytest.mark.parametrize(
    "tool",
    [
        *("fetch_orders", "process_payment", "query_database", "run_payroll", "open_tickets", "read_sensor"),
        *(
            "search_customers",
            "list_files_of_case",
            "execute_trade",
            "find_flights",
            "view_cart",
            "command_log",
        ),
        *("http_status_codes", "bash_scripts_catalog", "tree_species", "get_weather", "spread_sheet", ""),
    ],
)
def test_a_word_in_a_tools_name_says_nothing(tool: str) -> None:
    assert kind(tool) is ToolKind.OTHER
    assert kind(tool, limit=50, query="SELECT 1", id=7, pattern="a*", path="", url="orders") is ToolKind.OTHER


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"command": "ls"}, ToolKind.SHELL),
        ({"cmd": ["ls", "-l"]}, ToolKind.SHELL),
        ({"command": "a\nb", "path": "src"}, ToolKind.SHELL),
        ({"url": "https://x.org/a"}, ToolKind.WEB_FETCH),
        ({"uri": "HTTP://x.org"}, ToolKind.WEB_FETCH),
        ({"url": "postgres://db/x"}, ToolKind.OTHER),
        ({"path": "src/a.py"}, ToolKind.FILE),
        ({"params": {"file_path": "a.py", "limit": 9}}, ToolKind.FILE),
        ({"pattern": "def .*x", "path": "src"}, ToolKind.GREP),
        ({"regex": "x", "directory": "src"}, ToolKind.GREP),
        ({"pattern": "**/*.py", "path": "src"}, ToolKind.GLOB),
        ({"glob": "src/*.py", "dir": "."}, ToolKind.GLOB),
        ({"directory": "src"}, ToolKind.OTHER),
    ],
)
def test_the_kind_of_any_other_tool_is_told_by_its_arguments(
    given: dict[str, object], told: ToolKind
) -> None:
    assert kind("inspect", **given) is told
    assert kind("inspect", "mcp", **given) is told
    assert kind("inspect", "other", **given) is ToolKind.OTHER


def test_what_the_caller_says_of_a_tool_goes_first() -> None:
    assert kind("deploy", "shell") is ToolKind.SHELL
    assert kind("read_file", "Grep") is ToolKind.GREP
    assert kind("read_file", "other", path="a.py") is ToolKind.OTHER
    assert [kind("t", said) for said in ("read", "search", "execute", "fetch", "edit")] == [
        *(ToolKind.FILE, ToolKind.GREP, ToolKind.SHELL, ToolKind.WEB_FETCH, ToolKind.OTHER)
    ]


def test_a_tool_of_no_known_kind_is_given_no_hint() -> None:
    for tool in ("fetch_orders", "process_payment", "query_database"):
        text = truncated("some words\n" * 1000, tool, limit="50")
        assert text.endswith(f"--- Recovery Options ---\nTool: {tool} | 1001 lines, 11,000 chars")
        code = truncated(CODE, tool)
        assert code.endswith(
            "\nStructure:\n  - class DataProcessor (line 4)\n" + code.partition("(line 4)\n")[2]
        )
        assert "Commands:" not in code


@pytest.mark.parametrize(
    ("tool", "arguments", "name"),
    [
        ("read_file", '{"path": "a.py"}', "a.py"),
        ("Read", '{"file_path": "/x/a.py", "offset": 3}', "/x/a.py"),
        ("fs/read_file", '{"server_name": "fs", "params": {"path": "b"}}', "b"),
        ("web_fetch", '{"path": "p", "url": "https://x/"}', "https://x/"),
        ("read_file", '{"path": 3}', None),
        ("read_file", '{"path": "  "}', None),
        ("read_file", "cat a.py", None),
        ("read_file", "[" * 100_000, None),
        ("read_file", '{"a":' * 100_000, None),
        ("read_file", None, None),
    ],
)
def test_the_name_of_what_was_read_is_in_the_arguments(tool: str, arguments: str | None, name: str) -> None:
    result = ToolResult(SessionKey("t", "s"), tool, tool_arguments=arguments)
    assert name_of(result) == name
    assert first_row(result, 1) in (1, 3)
