import resource
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content.code import definitions
from content.grammars import GRAMMARS
from content.language import Language
from content.outline import outline, structure
from content.parser import Parsed, Parser
from content.parser_child import MEMORY_BYTES

SIZE = 256 * 1024
# What grammars of one language or another swell, crash or spin on.
PIECES = {
    "brackets": b"(",
    "braces": b"{",
    "closed braces": b"}",
    "calls": b"f(",
    "generics": b"a<",
    "templates": b"template<",
    "blocks": b"f{",
    "words": b"x ",
    "quotes": b"'\"`",
    "interpolations": b'"#{',
    "classes": b"class A {\n",
    "one-line definitions": b"def a\n",
    "conditions": b"a?b:",
    "negations": b"!",
    "zeros": b"\0",
    "not UTF-8": b"\xff\xfe",
    "here documents": b"<<A\n",
}
HOSTILE = {name: (piece * SIZE)[:SIZE] for name, piece in PIECES.items()}
CODE = st.text("(){}[]<>\n\t :;=\"'`#$\\class def fn let function é\0", max_size=600).map(str.encode)
DEFINED = "class Here:\n    pass\n"


@pytest.fixture(autouse=True)
def memory() -> Callable[[], int]:
    """Most memory that this process, without its children, ever had: KiB."""
    return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("language", [Language.JAVA, Language.CPP])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_source_harms_nobody(name: str, language: Language, memory: Callable[[], int]) -> None:
    before = memory()
    found = definitions(HOSTILE[name], language)
    assert len(found) <= 200
    assert memory() - before < 128 * 1024
    assert [found.name for found in definitions(b"class Here {\n}\n", Language.JAVA)] == ["Here"]


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=600) | CODE, st.sampled_from([*Language, None]), st.integers(1, 20))
def test_whatever_the_source_its_definitions_are_in_order_and_within_it(
    data: bytes, language: Language | None, most: int
) -> None:
    found = definitions(data, language, most)
    assert len(found) <= most
    assert found == definitions(data, language, most)
    assert [definition.start for definition in found] == sorted(definition.start for definition in found)
    if language and not data[:1].isdigit():
        assert all(definition.start <= definition.end for definition in found)
    assert all(definition.name == " ".join(definition.name.split()) != "" for definition in found)


@settings(deadline=None, max_examples=60)
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


def test_random_bytes_and_half_a_megabyte_on_one_line_have_an_outline_or_none() -> None:
    line = b"var a={b:function(){return[1,2,3]},c:function(d){return d}};" * 20_000
    assert "function b (line 1)" in outline(line, 1024, path="a.min.js")
    assert structure("a.py", bytes(range(256)) * 2000) == []


def test_a_parser_that_dies_is_started_again() -> None:
    parser = Parser()
    try:
        grammar = GRAMMARS[Language.PYTHON]
        assert parser.definitions(grammar, DEFINED.encode())
        assert parser._child
        parser._child.kill()
        parser._child.wait()
        parsed = parser.definitions(grammar, DEFINED.encode())
        assert parsed
        assert [found.keyword for found in parsed.found] == ["class"]
    finally:
        parser.close()


def test_a_parser_that_cannot_be_started_leaves_the_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = Parser()
    monkeypatch.setattr("content.code.PARSER", parser)
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    found = definitions(DEFINED.encode(), Language.PYTHON)
    assert [str(definition) for definition in found] == ["class Here (line 1)"]


def test_many_threads_share_one_parser() -> None:
    found: list[list[str]] = []

    def ask(number: int) -> None:
        data = f"class C{number}:\n    pass\n".encode()
        found.append([definition.name for definition in definitions(data, Language.PYTHON)])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted([f"C{number}"] for number in range(20))


def test_who_waits_too_long_for_the_parser_goes_without_it() -> None:
    parser = Parser()
    grammar = GRAMMARS[Language.PYTHON]
    found: list[Parsed | None] = []
    try:
        assert parser.definitions(grammar, DEFINED.encode())
        assert parser._child
        parser._child.send_signal(signal.SIGSTOP)
        first = threading.Thread(
            target=lambda: found.append(parser.definitions(grammar, DEFINED.encode())), daemon=True
        )
        first.start()
        while not parser._turn.locked():
            first.join(0.01)
        assert parser.definitions(grammar, DEFINED.encode()) is None
        assert found == []
        parser._child.send_signal(signal.SIGCONT)
        first.join()
        assert found[0]
    finally:
        parser.close()


def test_the_child_sees_no_secret_of_the_service_and_has_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPILLGATE_LLM_API_KEY", "s3cret")
    parser = Parser()
    try:
        parser.definitions(GRAMMARS[Language.PYTHON], DEFINED.encode())
        assert parser._child
        about = Path(f"/proc/{parser._child.pid}")
        assert b"s3cret" not in (about / "environ").read_bytes()
        assert f"Max address space {MEMORY_BYTES}" in " ".join((about / "limits").read_text().split())
    finally:
        parser.close()
