import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from content.describe import outline, structure
from content.formats.definitions import definitions
from content.formats.languages import Language

SIZE = 1 << 13
# What costs a scanner of one language or another most.
PIECES = [
    *(b"(", b"{", b"}", b"f(", b"a<", b"template<", b"f{", b"x ", b"'\"`", b'"#{', b"class A {\n"),
    *(b"def a\n", b"a?b:", b"\0", b"\xff\xfe", b"<<A\n", b"a\n", b"\n", b"/*", b"/* ", b"/**/", b'""'),
    *(b'"""', b'R"(', b"{{}}\n", b"a.b=", b"const x:a\n", b"typedef a ", b"struct a:b,\n", b"f(a,\n"),
    *(b"int f(int a)\n", b"=/[", b"#if {\n", b"a b c d e f g h i j\n", b"a a a a a a a a a(b)c\n"),
    *(b"a(b) -> c c c\n", b"a=function(\n", b" a(b){\n", b"x = y = z = w.v = (\n", b"fun a.b.c.d.e.f\n"),
    *(b"impl a\n", b"public A(\n", b"create table a(\n", b"@a @a "),
]
CODE = st.text("(){}[]<>\n\t :;=\"'`#$\\class def fn let function é\0", max_size=600).map(str.encode)


@pytest.mark.parametrize("language", Language)
def test_hostile_text_is_read_in_linear_time(language: Language) -> None:
    """8 KiB take 1.5 ms of processor time, and a quarter of a second where a pattern is quadratic.
    `bench.outline` measures 1 MiB."""
    for piece in PIECES:
        text = (piece * (SIZE // len(piece) + 1))[:SIZE]
        assert any(_processor_seconds(text, language) < 0.05 for _ in range(5)), piece


@pytest.mark.parametrize("piece", [b"(", b"\n", b"/**/", b"a(b){\n"])
def test_of_a_text_beyond_its_bounds_the_beginning_is_read(piece: bytes) -> None:
    text = b"class First {\n}\n" + piece * (1 << 20)
    names = [found.name for found in definitions(text, Language.JAVA)]
    assert names[:1] == ["First"]


def _processor_seconds(text: bytes, language: Language) -> float:
    start = time.thread_time()
    assert len(definitions(text, language)) <= 200
    return time.thread_time() - start


@given(st.binary(max_size=600) | CODE, st.sampled_from(Language), st.integers(1, 20))
def test_whatever_the_source_its_definitions_are_in_order_and_within_it(
    data: bytes, language: Language, most: int
) -> None:
    found = definitions(data, language, most)
    assert len(found) <= most
    assert found == definitions(data, language, most)
    assert [definition.line for definition in found] == sorted(definition.line for definition in found)
    assert all(definition.name == " ".join(definition.name.split()) != "" for definition in found)


@given(
    st.binary(max_size=300) | CODE,
    st.sampled_from(["a.py", "a.ts", "a.cc", "a.rb", None]),
    st.integers(0, 300),
)
def test_whatever_the_text_its_structure_is_lines_and_its_outline_within_bounds(
    data: bytes, path: str | None, max_bytes: int
) -> None:
    assert all(line.lstrip(" ").startswith("- ") and "\n" not in line for line in structure(path, data))
    assert len(outline(data, max_bytes, path=path).encode()) <= max_bytes


def test_random_bytes_and_a_megabyte_on_one_line_have_an_outline_or_none() -> None:
    line = b"var a={b:function(){return[1,2,3]},c:function(d){return d}};" * 20_000
    assert outline(line, 1024, path="a.min.js").startswith("Outline (javascript, of its first")
    assert structure("a.py", bytes(range(256)) * 2000) == []
