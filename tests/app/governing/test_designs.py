"""The published designs over HTTP: each program's own tools, numbers and texts."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from content.tokens import load_encoding

pytestmark = pytest.mark.anyio

LOG = "".join(f"line {number} of the log\n" for number in range(1, 1001))
CODE = "import os\n\n\nclass DataProcessor:\n    def load(self):\n        return 1\n" + "x = 1\n" * 1000


async def post(client: httpx.AsyncClient, content: str, tool: str, **fields: Any) -> Any:
    answer = await client.post("/results", json={"tool_name": tool, "content": content, **fields})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def commands(told: Any) -> list[str]:
    """The commands of a recovery section, without what `keep` adds."""
    text: str = told["content"].split("\nCommands:\n")[1].partition("\n\n")[0]
    return [line.removeprefix("  • ") for line in text.splitlines()]


# oxide-code, under its own tool names

OXIDE = {"profile": "oxide-code", "keep": False}


def numbered(count: int, first: int = 1) -> str:
    return "\n".join(f"{number}\tline of a file" for number in range(first, first + count))


async def test_a_footer_of_the_tools_own_view_is_no_row_and_stays(client: httpx.AsyncClient) -> None:
    paths = "\n".join(f"src/{number}.rs" for number in range(100))
    matches = "\n".join(f"src/a.rs:{number}:use it" for number in range(1, 251))
    cases = [
        ("read", f"{numbered(2000)}\n\n(Showing lines 1–2000 of 5230 total)"),
        ("read", f"{numbered(2000)}\n\n(Showing lines 1-2000 of 5230 total)\n"),
        ("read", f"{numbered(2000)}\r\n\r\n(Showing lines 1–2000 of 5230 total)"),
        ("read_file", f"{numbered(2000, 101)}\n\n(Showing lines 101–2100 of 5230 total)"),
        ("grep", f"{matches}\n\n(Results limited to 250 lines)"),
        ("glob", f"{paths}\n\n(Showing 100 of 311 matches. Use a more specific pattern.)"),
        ("glob", f"{paths}\n\n(Showing 100 of 311 matches.)"),
    ]
    for tool, text in cases:
        for policy in (OXIDE, OXIDE | {"max_line_chars": 30}):
            told = await post(client, text, tool, policy=policy)
            assert (told["outcome"], told["content"]) == ("pass", text)


async def test_a_view_of_a_view_is_the_same_view(client: httpx.AsyncClient) -> None:
    cases = [
        ("read", numbered(3000)),
        ("read", "x" * 700),
        ("grep", "\n".join(f"src/a.rs:{number}:{'x' * 700}" for number in range(300))),
        ("glob", "\n".join(f"src/{number}.rs" for number in range(311))),
    ]
    for tool, text in cases:
        first = await post(client, text, tool, policy=OXIDE)
        again = await post(client, first["content"], tool, policy=OXIDE)
        assert (first["outcome"], again["outcome"]) == ("cap", "pass")
        assert again["content"] == first["content"]


async def test_a_smaller_view_takes_the_total_from_the_footer(client: httpx.AsyncClient) -> None:
    text = f"{numbered(3000)}\n\n(Showing lines 1–3000 of 5230 total)"
    told = await post(client, text, "read", policy=OXIDE)
    assert told["content"] == f"{numbered(2000)}\n\n(Showing lines 1–2000 of 5230 total)"
    assert told["truncated_total"] == 5230
    paths = "\n".join(f"src/{number}.rs" for number in range(150))
    told = await post(client, f"{paths}\n\n(Results limited to 150 files)", "glob", policy=OXIDE)
    assert told["content"].endswith(
        "src/99.rs\n\n(Showing 100 of 150 matches.)\n(Results limited to 150 files)"
    )


async def test_the_total_that_the_caller_sends_is_taken(client: httpx.AsyncClient) -> None:
    paths = "\n".join(f"src/{number}.rs" for number in range(150))
    told = await post(client, paths, "glob", policy=OXIDE, truncated_total=311)
    assert told["content"].endswith("\n(Showing 100 of 311 matches.)")
    assert told["truncated_total"] == 311
    passed = await post(client, paths[:100], "glob", policy=OXIDE, truncated_total=311)
    assert (passed["outcome"], passed["truncated_total"]) == ("pass", 311)
    *_, entry = (await client.get("/accounting/entries?type=tool")).json()["entries"]
    assert entry["details"]["truncated_total"] == 311
    fields = {"tool_name": "glob", "truncated_total": "311", "policy": json.dumps(OXIDE)}
    plain = {"Content-Type": "text/plain", "Accept": "text/plain"}
    answer = await client.post("/results", params=fields, content=paths, headers=plain)
    assert answer.headers["spillgate-truncated-total"] == "311"


async def test_the_limit_in_the_arguments_goes_over_the_default_of_a_view(client: httpx.AsyncClient) -> None:
    rows = numbered(5000)
    cases: list[tuple[str, dict[str, Any], int | None]] = [
        ("read", {"limit": 3000}, 3000),
        ("read", {"params": {"limit": 3000}}, 3000),
        ("read_file", {"start_line": 1, "end_line": 2500}, 2500),
        ("read", {"limit": 0}, 2000),
        ("read", {"limit": 10}, 2000),
        ("grep", {"head_limit": 0}, None),
        ("grep", {"head_limit": 400}, 400),
        ("glob", {"max_results": 150}, 150),
    ]
    for tool, arguments, shown in cases:
        told = await post(client, rows, tool, tool_arguments=arguments, policy=OXIDE)
        assert told["outcome"] == ("pass" if shown is None else "cap")
        assert shown is None or told["content"].split("\n\n(")[0].count("\n") == shown - 1


async def test_context_of_a_search_is_no_match(client: httpx.AsyncClient) -> None:
    groups = (
        "src/a-1-b.rs-{0}-before\nsrc/a-1-b.rs:{1}:at 12:30:45\nsrc/a-1-b.rs-{2}-at 12:30:45\n--",
        "src/a-1-b.rs:{0}-before\nsrc/a-1-b.rs:{1}:at 12:30:45\nsrc/a-1-b.rs:{2}-at 12:30:45\n--",
        "Makefile-{0}-before\nMakefile:{1}:at 12:30:45\nMakefile-{2}-at 12:30:45\n--",
        "{0}-before\n{1}:at 12:30:45\n{2}-at 12:30:45\n--",
    )
    for group in groups:
        text = "\n".join(group.format(9 * n + 1, 9 * n + 2, 9 * n + 3) for n in range(100))
        told = await post(client, text, "grep", tool_arguments={"context": 1}, policy=OXIDE)
        assert told["content"].endswith("\n(Showing 63 of 100 matches.)")
        assert told["truncated_total"] == 100


async def test_the_matches_of_a_search_are_counted_as_what_they_are(client: httpx.AsyncClient) -> None:
    dated = "".join(f"app.log:2026-01-{n % 28 + 1:02} 10:00:00 ERROR {n}\n" for n in range(400))
    names = "".join(f"logs/2026-11-20/{n}.log\n" for n in range(400))
    headed = "\n".join(f"src/{n}.py\n1:x\n4:x\n5-y\n7:x\n" for n in range(100))
    counts = "".join(f"src/{n}.py:3\n" for n in range(300))
    unmarked = "".join(f"2026-11-02 {n}\n2026-11-02 needle\n--\n" for n in range(200))
    cases = [
        ("grep", dated, "(Showing 250 of 400 matches.)", 400),
        ("grep", names, "(Showing 250 of 400 matches.)", 400),
        ("glob", names, "(Showing 100 of 400 matches.)", 400),
        ("grep", headed, "(Showing 125 of 300 matches.)", 300),
        ("grep", counts, "(Showing 750 of 900 matches.)", 900),
        ("grep", unmarked, "(Showing lines 1–250 of 600 total)", 600),
    ]
    for tool, text, footer, total in cases:
        for more in ({}, {"max_line_chars": 9}):
            told = await post(client, text, tool, policy=OXIDE | more)
            assert told["content"].endswith(f"\n{footer}")
            assert told["truncated_total"] == total
            again = await post(client, told["content"], tool, policy=OXIDE | more)
            assert (again["outcome"], again["content"]) == ("pass", told["content"])


async def test_rows_of_a_table_are_counted_and_never_cut(client: httpx.AsyncClient) -> None:
    rows = "".join(f'{n},"first\nof ""two"" lines",3" x 4"\n' for n in range(200))
    policy = {"max_rows": 10, "keep": False}
    for header in ("id,text,size\n", 'id,"the\ntext",size\n'):
        for text in (f"{header}{rows}", f"{header}{rows[:-1]}"):
            told = await post(client, text, "mcp__db__query", policy=policy)
            shown = header + "".join(rows.splitlines(keepends=True)[:20])
            assert told["content"] == f"{shown}\n(Showing rows 1–10 of 200 total)"
            assert told["truncated_total"] == 200
            again = await post(client, told["content"], "mcp__db__query", policy=policy)
            assert (again["outcome"], again["content"]) == ("pass", told["content"])
    told = await post(client, f"id,text,size\n{rows}", "read_file", policy={"max_rows": 10, "keep": False})
    shown = "id,text,size\n" + "".join(rows.splitlines(keepends=True)[:10])
    assert told["content"] == f"{shown}\n(Showing lines 1–11 of 401 total)"
    without = "".join(f"{n},{n * 3},{n % 7}\n" for n in range(200))
    told = await post(client, without, "mcp__db__query", policy=policy)
    assert told["content"].endswith("\n9,27,2\n\n(Showing rows 1–10 of 200 total)")


async def test_elements_of_json_are_counted_and_never_cut(client: httpx.AsyncClient) -> None:
    rows = [{"id": n, "of": [{"a": "}]\n\\"}, {"b": '"'}], "c": {}} for n in range(200)]
    policy = {"max_rows": 10, "max_bytes": 0, "keep": False}
    for indent in (1, 2, "\t"):
        for end in ("", "\n"):
            told = await post(client, json.dumps(rows, indent=indent) + end, "mcp__db__query", policy=policy)
            shown, _, footer = told["content"].rpartition("\n\n")
            assert footer == "(Showing rows 1–10 of 200 total)"
            assert json.loads(f"{shown.rstrip(',')}]") == rows[:10]
            assert told["truncated_total"] == 200
            again = await post(client, told["content"], "mcp__db__query", policy=policy)
            assert (again["outcome"], again["content"]) == ("pass", told["content"])
    few = json.dumps(rows[:10], indent=1)
    assert (await post(client, few, "mcp__db__query", policy=policy))["content"] == few


async def test_a_quote_without_an_end_does_not_show_all_of_a_table(client: httpx.AsyncClient) -> None:
    rows = "".join(f"{n},some text,{n}\n" for n in range(9000))
    text = f'id,text,size\n1,"open,3\n{rows}'
    told = await post(client, text, "db", policy={"max_rows": 10, "max_bytes": 0, "keep": False})
    assert 65_536 < len(told["content"]) < 67_000
    assert told["complete"] is False


async def test_the_characters_of_a_line_count_without_its_file_and_number(client: httpx.AsyncClient) -> None:
    prefix = "src/some/long/path.rs:120:"
    for tool, before in (("grep", prefix), ("grep", "120:"), ("grep", "src/a.rs-119-"), ("read", "   120\t")):
        fits = f"{before}{'x' * 500}"
        assert (await post(client, fits, tool, policy=OXIDE))["outcome"] == "pass"
        told = await post(client, f"{fits}{'y' * 200}\nend", tool, policy=OXIDE)
        assert told["content"] == f"{fits}… [+200 chars]\nend"
    told = await post(client, f"{prefix}{'x' * 700}", "read", policy=OXIDE)
    assert told["content"] == f"{prefix}{'x' * (500 - len(prefix))}… [+{200 + len(prefix)} chars]"


async def test_a_line_that_the_tool_has_cut_is_not_cut_again(client: httpx.AsyncClient) -> None:
    for mark in (
        "… [+1234567890 chars]",
        "...",
        " ... [truncated, 1,234,567 more characters]",
        " [truncated]",
    ):
        text = f"src/a.rs:120:{'x' * 500}{mark}\r\nend"
        assert (await post(client, text, "grep", policy=OXIDE))["content"] == text


# structure


OURO = {"profile": "ouro", "keep": False}


async def test_a_truncated_search_names_the_files_with_the_most_matches(client: httpx.AsyncClient) -> None:
    counts = {
        "src/big.py": 300,
        "src/mid.py": 120,
        "src/low.py": 30,
        "a.py": 3,
        "b.py": 2,
        "c.py": 1,
        "d.py": 1,
    }
    text = "".join(f"{file}:{n}:def f{n}(a):\n" for file, count in counts.items() for n in range(count))
    text += "".join(f"src/mid.py-{n}-    # context\n--\n" for n in range(500))
    arguments = {"pattern": "def f", "path": "."}
    told = await post(client, text, "grep_content", tool_arguments=arguments, policy=OURO)
    assert (
        "\nMatches by file:\n  - src/big.py: 300 matches\n  - src/mid.py: 120 matches\n"
        "  - src/low.py: 30 matches\n  - a.py: 3 matches\n  - b.py: 2 matches\n  - ... 2 more\n"
    ) in told["content"]
    shown = told["content"].split("\n\n[...")[0].count("\n")
    following = f"grep -nE -e 'def f' src/big.py | sed -n '{shown + 1},{shown + 50}p'"
    assert commands(told) == [
        f'shell(command="{following}")  # Next matches',
        'grep_content(pattern="def f", path="src/mid.py")  # 120 matches',
        'grep_content(pattern="def f", path="src/low.py")  # 30 matches',
    ]
    ran = {"command": "rg -n 'def f' ."}
    told = await post(client, text, "execute_shell", tool_arguments=ran, policy=OURO)
    assert "--- Recovery Options ---\nCommand: rg -n 'def f' . | " in told["content"]
    assert "\n  - src/big.py: 300 matches\n" in told["content"]
    assert commands(told)[-3] == ("""shell(command="rg -n 'def f' . | grep -F src/mid.py")  # 120 matches""")
    assert "<" not in "".join(commands(told))


async def test_a_truncated_search_in_one_file_goes_on_after_the_head(client: httpx.AsyncClient) -> None:
    text = "".join(f"{n}:def f{n}(a):\n" for n in range(1, 500))
    arguments = {"pattern": "def f", "path": "src/a.py"}
    told = await post(client, text, "grep_content", tool_arguments=arguments, policy=OURO)
    first = told["content"].split("\n\n[...")[0].count("\n") + 1
    assert commands(told)[-1] == (
        f"""shell(command="grep -nE -e 'def f' src/a.py | sed -n '{first},{first + 49}p'")  # Next matches"""
    )


async def test_no_command_repeats_the_call_or_names_what_is_shown_whole(client: httpx.AsyncClient) -> None:
    def rows(file: str, count: int) -> str:
        return "".join(f"{file}:{3 * n}:    raise Wrong({n})\n" for n in range(1, count + 1))

    one = {"pattern": "raise", "path": "./src/a.py"}
    some, folder = rows("src/a.py", 9) + rows("src/b.py", 400), {"pattern": r"(?i)raise\d", "path": "src/"}
    paths = "".join(f"src/{name}/{n}.py\n" for name, count in (("a", 9), ("b", 400)) for n in range(count))
    dated = "".join(f"2026-11-02 raise {n}\n" for n in range(400))
    cases: list[tuple[str, str, dict[str, Any], list[str]]] = [
        ("grep_content", rows("src/a.py", 400), one, ['shell(command="grep -nE -e raise src/a.py | sed -n']),
        ("grep_content", some, folder, ["shell(command=\"grep -nP -e '(?i)raise\\\\d' src/b.py | sed -n '"]),
        (
            "grep_content",
            dated,
            one | {"-i": True},
            ['shell(command="grep -niE -e raise ./src/a.py | sed -n'],
        ),
        ("grep_content", dated, folder, ['grep_content(pattern="<more specific pattern>", path="src/")']),
        (
            "grep_content",
            paths,
            folder,
            ['grep_content(pattern="(?i)raise\\\\d", path="src/b")  # 400 files'],
        ),
        (
            "glob_files",
            paths,
            {"pattern": "src/**/*.py"},
            ['glob_files(pattern="src/b/**/*.py")  # 400'],
        ),
        (
            "glob_files",
            paths,
            {"pattern": "src/b/**/*.py"},
            [
                'glob_files(pattern="<directory>/**/*")  # One directory',
                'glob_files(pattern="**/*.<extension>")  # One extension',
            ],
        ),
        (
            "web_fetch",
            "some words\n" * 900,
            {"url": "https://x.org", "save_to": "a.html"},
            ['grep_content(pattern="<pattern>", path="a.html")  # Then search it'],
        ),
    ]
    for tool, text, arguments, wanted in cases:
        told = await post(client, text, tool, tool_arguments=arguments, policy=OURO)
        made = commands(told)
        assert len(made) == len(wanted), made
        assert all(command.startswith(start) for command, start in zip(made, wanted, strict=True)), made


async def test_the_next_matches_are_those_that_are_not_shown(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    for name, count in (("a.py", 9), ("b.py", 900)):
        lines = "".join(f"# line\nraise Wrong({n})\n" for n in range(count))
        (tmp_path / "src" / name).write_text(lines)
    for search in ("-n", "-nC 1"):
        run = f"grep -rH {search} raise src/a.py src/b.py"
        found = subprocess.run(run, shell=True, cwd=tmp_path, capture_output=True, text=True).stdout
        arguments = {"pattern": "raise", "path": "src"}
        told = await post(client, found, "grep_content", tool_arguments=arguments, policy=OURO)
        (command,) = commands(told)
        ran = json.loads(command.removeprefix("shell(command=").partition(")  # ")[0])
        following = subprocess.run(ran, shell=True, cwd=tmp_path, capture_output=True, text=True).stdout
        shown = told["content"].split("\n\n[...")[0].rpartition("\n")[0]
        last = re.findall(r"Wrong\((\d+)\)", shown)[-1]
        assert re.findall(r"Wrong\((\d+)\)", following) == [str(int(last) + n) for n in range(1, 51)]


async def test_a_truncated_list_of_files_names_the_common_directories(client: httpx.AsyncClient) -> None:
    names = [f"src/app/{n}/main.py" for n in range(200)] + [f"src/lib/{n}.toml" for n in range(100)]
    told = await post(
        client, "\n".join(names), "glob_files", tool_arguments={"pattern": "src/**/*"}, policy=OURO
    )
    assert "\nDirectories:\n  - src/app: 200 files\n  - src/lib: 100 files\n" in told["content"]
    assert commands(told) == [
        'glob_files(pattern="src/app/**/*")  # 200 files',
        'glob_files(pattern="src/lib/**/*")  # 100 files',
        'glob_files(pattern="src/**/*.py")  # 200 files',
        'glob_files(pattern="src/**/*.toml")  # 100 files',
    ]


async def test_the_structure_of_a_long_file_shows_its_main_class(client: httpx.AsyncClient) -> None:
    helpers = "".join(f"def helper_number_{n}(argument):\n    return {n}\n\n\n" for n in range(180))
    methods = "".join(f"    def method_{n}(self):\n        return {n}\n\n" for n in range(630))
    text = f"{helpers}class Main:\n{methods}"
    assert text.count("\n") > 2600
    told = await post(client, text, "read_file", tool_arguments={"path": "a.py"}, policy=OURO)
    below = told["content"].split("\nStructure:\n")[1]
    assert below.startswith("  - class Main (line 721)\n  - def helper_number_0 (line 1)\n")
    assert commands(told)[0] == 'grep_content(pattern="Main", path="a.py")'


# truncate within its caps

TEXTS = st.one_of(
    st.text(max_size=2000),
    st.sampled_from(["word ", "é", "中文", "😀", "1,2;", " ", "\r\n", "def f():\n    pass\n"]).map(
        lambda piece: piece * 1500
    ),
)


@given(
    text=TEXTS,
    key=st.sampled_from(["max_bytes", "max_chars", "max_tokens"]),
    most=st.integers(1, 1500),
    head_chars=st.integers(0, 2500),
    tool=st.sampled_from(["read_file", "execute_shell", "web_fetch", "t"]),
    keep=st.booleans(),
)
@example(text="中文" * 3000, key="max_tokens", most=300, head_chars=2000, tool="read_file", keep=True)
@example(text=CODE, key="max_bytes", most=700, head_chars=2000, tool="read_file", keep=False)
@example(text=" " * 50_000, key="max_tokens", most=150, head_chars=2000, tool="t", keep=False)
async def test_a_truncated_text_is_never_larger_than_the_cap(
    client: httpx.AsyncClient, text: str, key: str, most: int, head_chars: int, tool: str, keep: bool
) -> None:
    caps = {"max_bytes": 0, "on_oversize": "truncate", "head_chars": head_chars, "keep": keep, key: most}
    told = await post(client, text, tool, tool_arguments={"path": "a.py", "command": "make"}, policy=caps)
    if told["outcome"] != "truncate":
        assert told["outcome"] in ("pass", "store")
        return
    sizes = {
        "max_bytes": len(told["content"].encode()),
        "max_chars": len(told["content"]),
        "max_tokens": load_encoding("o200k_base").count(told["content"]),
    }
    assert sizes[key] <= most
    head = told["content"].split("\n\n[... ")[0]
    assert text.startswith(head)
    assert f"[... {len(text) - len(head)} characters truncated ...]" in told["content"]


async def test_a_cap_below_the_head_still_shows_a_head_and_commands(client: httpx.AsyncClient) -> None:
    cases: list[dict[str, int]] = [{"max_bytes": 1100}, {"max_chars": 1100}, {"max_tokens": 1000}]
    for caps in cases:
        rules = {"on_oversize": "truncate", "max_bytes": 0, "keep": False, **caps}
        told = await post(client, CODE, "read_file", tool_arguments={"path": "a.py"}, policy=rules)
        assert told["outcome"] == "truncate"
        assert len(told["content"].split("\n\n[... ")[0]) > 100
        assert commands(told)


# RFC 002: counts, pages, words of one's own


async def test_more_rows_than_allowed_are_rejected_whatever_the_policy_names(
    client: httpx.AsyncClient,
) -> None:
    rows = "".join(f"src/{number}.py\n" for number in range(101))
    rules = {"tools": {"glob_files": {"reject_rows": 100, "keep": False}}}
    told = await post(client, rows, "glob_files", policy=rules)
    assert (told["outcome"], told["trigger"], told["handle"]) == ("reject", "size_cap", None)
    assert told["content"] == (
        "Error: Search output (~101 rows) exceeds maximum allowed rows (100).\n"
        "Use a narrower pattern: a directory, or an extension; or set max_results."
    )
    passed = await post(client, rows[: rows.rindex("src/")], "glob_files", policy=rules)
    assert passed["outcome"] == "pass"
    await client.put("/sessions/s", json={"policy": rules})
    asked = {"session_id": "s", "tool_name": "glob_files", "rows": 101}
    assert (await client.post("/check", json=asked)).json()["content"] == told["content"]
    assert (await client.post("/check", json=asked | {"rows": 100})).json()["allowed"]


async def test_a_page_is_not_rejected_for_its_size_as_a_check_says(client: httpx.AsyncClient) -> None:
    rules = {"on_oversize": "reject", "max_bytes": 1000, "keep": False, "reject_rows": 10}
    await client.put("/sessions/s", json={"policy": rules})
    cases: list[tuple[str, dict[str, Any], bool]] = [
        ("read_file", {}, False),
        ("read_file", {"offset": 5}, False),
        ("read_file", {"offset": 1, "limit": 1000}, True),
        ("read_file", {"start_line": 1, "end_line": 900}, True),
        ("show", {"path": "a.py", "limit": 1000}, True),
        ("list_orders", {"limit": 100}, False),
        ("query_database", {"query": "SELECT 1", "limit": 100}, False),
        ("web_search", {"query": "x", "limit": 10}, False),
        ("grep_content", {"pattern": "x", "path": "src", "limit": 100}, False),
        ("execute_shell", {"command": "ls", "limit": 100}, False),
    ]
    for tool, arguments, is_page in cases:
        told = await post(client, "x\n" * 1000, tool, session_id="s", tool_arguments=arguments)
        asked = {"session_id": "s", "tool_name": tool, "bytes": 2000, "rows": 1000}
        for more in ({"tool_arguments": arguments}, {"tool_arguments": arguments, "paginated": is_page}):
            checked = (await client.post("/check", json=asked | more)).json()
            assert checked["allowed"] == (told["outcome"] == "pass") == is_page
            assert is_page or checked["content"] == told["content"]
        stored = await post(client, "x\n" * 1000, tool, tool_arguments=arguments, policy={"max_bytes": 1000})
        assert stored["outcome"] == "store"


async def test_a_check_of_a_page_refuses_what_the_result_would(client: httpx.AsyncClient) -> None:
    """A tool that reads no file has no pages, whatever is said, and a page is rejected by the budget.
    Where nothing is rejected, a page of a file may be read."""
    window = {"context_window": 5000, "buffer_tokens": 0, "max_output_tokens": 0}
    reject = {"profile": "claude-code", "max_tokens": 1000, "keep": False}
    rules: tuple[dict[str, Any], ...] = (reject, {"max_bytes": 5000}, {"bypass": True})
    for policy in rules:
        for number, size in enumerate((900, 3000, 9000)):
            for tool in ("read_file", "Read", "list_orders", "grep_content", "web_fetch"):
                session = f"{tool}-{number}-{rules.index(policy)}"
                await client.put(f"/sessions/{session}", json={**window, "policy": policy})
                text, arguments = "words " * size, {"offset": 1, "limit": 10}
                asked = {"session_id": session, "tool_name": tool, "tokens": size, "bytes": len(text)}
                checked = (await client.post("/check", json=asked | {"paginated": True})).json()
                told = await post(client, text, tool, session_id=session, tool_arguments=arguments)
                if told["outcome"] == "store" and tool in ("read_file", "Read"):
                    assert checked == {"allowed": True, "trigger": None, "content": None}
                else:
                    said = (checked["allowed"], checked["trigger"])
                    assert said == (told["outcome"] == "pass", told["trigger"]), (policy, size, tool)


async def test_a_page_that_the_budget_does_not_hold_is_told_to_read_less(client: httpx.AsyncClient) -> None:
    window = {"context_window": 1000, "buffer_tokens": 0, "max_output_tokens": 0}
    rules = {"on_oversize": "reject", "max_bytes": 0, "keep": False}
    await client.put("/sessions/s", json={**window, "policy": rules})
    cases: list[tuple[dict[str, int], str]] = [
        ({}, "Use offset and limit to read a part of it, or grep_content to search it."),
        ({"offset": 5}, "Use offset and limit to read a part of it, or grep_content to search it."),
        (
            {"offset": 1, "limit": 1000},
            "Read less at once: a smaller limit (about 449), or grep_content to search it.",
        ),
        (
            {"start_line": 1, "end_line": 900},
            "Read less at once: a smaller limit, or grep_content to search it.",
        ),
    ]
    for arguments, suggestion in cases:
        told = await post(client, "word " * 2000, "read_file", session_id="s", tool_arguments=arguments)
        assert told["trigger"] == "token_budget"
        assert told["content"].split("\n")[1] == suggestion


async def test_the_second_line_of_a_rejection_may_be_the_policys_own(client: httpx.AsyncClient) -> None:
    rules = {"on_oversize": "reject", "max_bytes": 10, "keep": False, "suggestion": "Ask the librarian."}
    told = await post(client, "x" * 2000, "read_file", policy=rules)
    assert told["content"].split("\n")[1] == "Ask the librarian."
    await client.put("/sessions/s", json={"policy": rules})
    asked = {"session_id": "s", "tool_name": "read_file", "bytes": 2000}
    assert (await client.post("/check", json=asked)).json()["content"] == told["content"]


async def test_texts_call_tools_what_the_policy_says(client: httpx.AsyncClient) -> None:
    names = {"grep_content": "Grep", "shell": "Bash", "tool_output": "mcp__spillgate__tool_output"}
    rules = {"max_bytes": 0, "max_chars": 3500, "tool_names": names}
    given = {"tool_arguments": {"path": "a.py"}}
    truncated = await post(client, CODE, "Read", policy=rules | {"on_oversize": "truncate"}, **given)
    assert [command.split("(")[0] for command in commands(truncated)] == ["Grep", "Bash", "Bash", "Bash"]
    rejected = await post(client, CODE, "Read", policy=rules | {"on_oversize": "reject"}, **given)
    assert "or Grep to search it." in rejected["content"]
    stored = await post(client, CODE, "Read", policy=rules, **given)
    for told in (truncated, rejected, stored):
        assert f'mcp__spillgate__tool_output(handle = "{told["handle"]}"' in told["content"]
        assert not re.search(r"(?<!__)tool_output\(|grep_content|shell\(", told["content"])


async def test_a_name_that_no_text_uses_is_refused(client: httpx.AsyncClient) -> None:
    rules = {"tool_names": {"grep": "Grep"}}
    answer = await client.post("/results", json={"tool_name": "t", "content": "x", "policy": rules})
    assert answer.json()["code"] == "invalid_policy"
    assert "grep_content" in answer.json()["detail"]


async def test_lines_count_from_the_offset(client: httpx.AsyncClient) -> None:
    cases: list[tuple[Any, int]] = [
        ({}, 101),
        ({"offset_base": 0}, 102),
        ({"profile": "ouro", "keep": False}, 102),
    ]
    for rules, first in cases:
        rules = {"on_oversize": "truncate", "max_bytes": 1000, "head_chars": 30, **rules}
        arguments = {"path": "a.py", "offset": 101}
        told = await post(client, CODE, "read_file", tool_arguments=arguments, policy=rules)
        assert f"class DataProcessor (line {first + 3})" in told["content"]
        view = {**rules, "max_bytes": 0, "max_chars": 0, "max_rows": 2}
        told = await post(client, CODE, "read_file", tool_arguments=arguments, policy=view)
        assert (
            f"(Showing lines {first}–{first + 1} of {first + CODE.count(chr(10)) - 1} total)"
            in told["content"]
        )


# shell hints


async def test_shell_hints_name_the_command_that_ran(client: httpx.AsyncClient) -> None:
    for command, ran in [
        ("make all", "make all"),
        ("make 2>&1 && make test", "(make 2>&1 && make test)"),
        ("echo 'unclosed", "<command>"),
        ("make # all", "<command>"),
        ("a\nb", "<command>"),
        ("x" * 400, "<command>"),
    ]:
        told = await post(client, LOG, "execute_shell", tool_arguments={"command": command}, policy=OURO)
        assert commands(told)[0] == f"shell(command={json.dumps(f'{ran} | head -n 50')})  # First 50 lines"


async def test_shell_hints_name_the_stored_file_so_that_nothing_runs_twice(
    serve: Any, tmp_path: Path
) -> None:
    rules = {"on_oversize": "truncate", "max_bytes": 2000, "head_chars": 500}
    given = {"tool_arguments": {"command": "make"}, "policy": rules}
    async with serve(storage_url=f"disk://{tmp_path / 'a state'}") as client:
        told = await post(client, LOG, "execute_shell", **given)
        rejected = await post(client, LOG, "Bash", policy={"on_oversize": "reject", "max_bytes": 2000})
        shell = [re.match(r"shell\(command=(\".*\")\)", command) for command in commands(told)]
        ran = [json.loads(match[1]) for match in shell if match]
        assert len(ran) == len(commands(told)) == 4
        assert not any("make" in command for command in ran)
        outputs = [
            subprocess.run(
                command.replace("<pattern>", "line 777 "), shell=True, capture_output=True, text=True
            )
            for command in ran
        ]
    lines = LOG.splitlines(keepends=True)
    shown = told["content"].split("\n\n[...")[0].count("\n")
    assert outputs[0].stdout == "".join(lines[:50])
    assert outputs[1].stdout == "".join(lines[shown : shown + 50])
    assert outputs[2].stdout == "".join(lines[-50:])
    assert outputs[3].stdout == "777:line 777 of the log\n"
    assert f"{tmp_path}/a state/tool_output/" in rejected["content"].split("\n")[1]


@pytest.mark.parametrize("setting", [{"local_paths": False}, {"api_keys_file": "keys"}])
async def test_a_file_is_named_to_callers_of_this_machine_alone(
    serve: Any, tmp_path: Path, setting: dict[str, Any]
) -> None:
    headers = {}
    if "api_keys_file" in setting:
        path = tmp_path / "keys"
        digest = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683"
        path.write_text(f"team:{digest}\n")
        setting = {"api_keys_file": path}
        headers = {"Authorization": "Bearer key"}
    async with serve(storage_url=f"disk://{tmp_path / 'state'}", **setting) as client:
        answer = await client.post(
            "/results",
            json={
                "tool_name": "Bash",
                "content": LOG,
                "tool_arguments": {"command": "make"},
                "policy": {"on_oversize": "truncate", "max_bytes": 2000},
            },
            headers=headers,
        )
    assert answer.status_code == 201, answer.text
    assert str(tmp_path) not in answer.text
    assert commands(answer.json())[0].startswith('shell(command="make | head')


# ai-agent: the line of the log


async def test_a_store_is_a_warning_in_the_profile_ai_agent(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "app.operations.logs")
    for policy, level in (
        ({}, "INFO"),
        ({"profile": "ai-agent"}, "WARNING"),
        ({"profile": "oxide-code", "max_bytes": 9000}, "INFO"),
        ({"stored_log": "warning"}, "WARNING"),
        ({"profile": "ai-agent", "stored_log": "info"}, "INFO"),
    ):
        caplog.clear()
        await post(client, LOG, "execute_shell", policy=policy)
        (line,) = (one for one in caplog.records if "output stored for" in one.getMessage())
        assert line.getMessage() == "Tool 'execute_shell' output stored for tool_output (size_cap)."
        assert line.levelname == level
