"""Lines of a TOML text: found for every way in which TOML can write a key."""

import pytest

from policies.documents import line_numbers

TEXT = """\
# first
profile = "ouro"

[defaults] # with a comment ]
max_bytes = 1
"head_chars" = 2
extract_models = [
  "a", # ]
  "b",
]
'preview' = \"\"\"
[tools.no]
max_bytes = 9
\"\"\"

[tools]
dotted.max_bytes = 3
"a.b" = { max_chars = 4, keep = true }
[ tools . "x [y]" ]
keep = false
[models."gpt-4o"]
context_window = 5
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("profile",), 2),
        (("defaults",), 4),
        (("defaults", "max_bytes"), 5),
        (("defaults", "head_chars"), 6),
        (("defaults", "extract_models"), 7),
        (("defaults", "preview"), 11),
        (("tools",), 16),
        (("tools", "dotted"), 17),
        (("tools", "dotted", "max_bytes"), 17),
        (("tools", "a.b", "keep"), 18),
        (("tools", "x [y]"), 19),
        (("tools", "x [y]", "keep"), 20),
        (("models",), 21),
        (("models", "gpt-4o", "context_window"), 22),
    ],
)
def test_each_key_has_the_line_where_its_statement_begins(path: tuple[str, ...], line: int) -> None:
    assert line_numbers(TEXT)[path] == line


def test_what_stands_in_a_string_is_no_key() -> None:
    assert ("tools", "no") not in line_numbers(TEXT)


def test_windows_line_ends_and_odd_separators_do_not_shift_lines() -> None:
    text = '[defaults]\r\nx = "a\u2028b"\r\ny = 1\r\n'
    assert line_numbers(text)["defaults", "y"] == 3


def test_arrays_of_tables_and_empty_texts_are_read() -> None:
    assert line_numbers("") == {}
    assert line_numbers("[[tools.x]]\n")["tools", "x"] == 1


def test_strings_that_hold_quotes_brackets_and_comments_do_not_end_a_statement() -> None:
    values = [
        *('"""a""""', '""""\n]"\\"""#\n"""', "'''\n'['''", '"\\"#["', "'#{'", "[[1, # ]\n], []]", '""'),
        "''",
    ]
    text = "".join(f"k{number} = {value} # ]\n\n" for number, value in enumerate(values))
    found = line_numbers(text)
    assert [text.split("\n")[line - 1].split(" = ")[0] for line in found.values()] == [
        path[0] for path in found
    ]
    assert len(found) == len(values)


def test_a_value_of_very_many_lines_is_read_in_linear_time() -> None:
    """The time was quadratic: hours for this text."""
    text = "[defaults]\nextract_models = [\n" + '  "a",\n' * 100_000 + "]\nkeep = true\n"
    assert line_numbers(text)["defaults", "keep"] == 100_004
