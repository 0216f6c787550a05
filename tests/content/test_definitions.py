import re
from pathlib import Path

import pytest

from content.describe import outline, structure
from content.formats.definitions import Definition, definitions
from content.formats.languages import Language, language_of

SOURCES = Path(__file__).parent / "sources"

# Depth is shown by indentation here.
EXPECTED = {
    "shop.c": """\
define SQUARE (line 4)
struct order (line 6)
typedef line_t (line 13)
enum state (line 15)
function total (line 17)
function label (line 18)
function total (line 21)
function label (line 29)
function main (line 36)""",
    "shop.cpp": """\
namespace shop (line 4)
  class Order (line 7)
    function Order (line 9)
    function ~Order (line 10)
    function operator< (line 11)
    function label (line 12)
  struct Line (line 18)
  enum State (line 22)
  using Lines (line 24)
  function Order<int>::label (line 26)
  function first (line 30)""",
    "Shop.cs": """\
namespace Shop.Orders (line 4)
  class Order (line 7)
    constructor Order (line 11)
    method Total (line 16)
      method Half (line 18)
  interface IPriced (line 23)
    method Price (line 25)
  struct Line (line 28)
  enum State (line 30)
  record Page (line 32)
  delegate Changed (line 34)""",
    "shop.go": """\
struct Order (line 9)
interface Priced (line 13)
type Amount (line 17)
func (o *Order) Price (line 19)
func Total (line 23)""",
    "Shop.java": """\
class Shop (line 6)
  constructor Shop (line 9)
  method toString (line 14)
  interface Priced (line 18)
    method price (line 19)
  enum State (line 22)
    method isOpen (line 26)
  record Line (line 31)""",
    "shop.js": """\
class Order (line 4)
  method constructor (line 6)
  method label (line 10)
  method handle (line 14)
function total (line 19)
function pages (line 23)
function half (line 25)
function Order.prototype.close (line 29)""",
    "Shop.kt": """\
interface Priced (line 5)
  fun price (line 6)
class Order (line 9)
  fun price (line 10)
  fun open (line 13)
object Shop (line 17)
class State (line 21)
typealias Orders (line 23)
fun total (line 25)""",
    "shop.php": """\
namespace Shop\\Orders (line 3)
interface Priced (line 7)
  function price (line 9)
trait Named (line 12)
  function name (line 14)
class Order (line 20)
  function __construct (line 24)
  function price (line 28)
enum State (line 34)
function total (line 39)""",
    "shop.py": """\
class Order (line 7)
  def __init__ (line 8)
  def __lt__ (line 11)
  class Line (line 14)
    def price (line 15)
def total (line 19)
  def one (line 20)""",
    "shop.rb": """\
module Shop (line 3)
  class Order (line 4)
    def initialize (line 7)
    def self.open (line 11)
    def open? (line 15)
def total (line 23)""",
    "shop.rs": """\
struct Order (line 4)
enum State (line 8)
trait Priced (line 13)
  fn price (line 14)
impl Priced for Order (line 17)
  fn price (line 18)
impl fmt::Display for Order (line 23)
  fn fmt (line 24)
macro_rules order (line 29)
mod tests (line 35)
  fn adds (line 37)""",
    "shop.sh": """\
function usage (line 4)
function open_shop (line 10)""",
    "Shop.swift": """\
protocol Priced (line 3)
  func price (line 4)
struct Order (line 7)
  func init (line 10)
  func price (line 14)
class Shop (line 19)
enum State (line 23)
extension Shop (line 28)
typealias Orders (line 32)
func total (line 34)""",
    "shop.ts": """\
interface Line (line 3)
type Amount (line 8)
enum State (line 10)
class Order (line 15)
  method constructor (line 18)
  method label (line 20)
  method total (line 22)
namespace Shop (line 27)
  function open (line 28)
function half (line 31)
function ring (line 33)""",
    "shop.tsx": """\
interface Props (line 3)
function Orders (line 7)
  function open (line 8)
function App (line 20)""",
}


def source(name: str) -> bytes:
    return (SOURCES / name).read_bytes()


def shown(found: list[Definition]) -> str:
    return "\n".join(f"{'  ' * definition.depth}{definition}" for definition in found)


def found_in(name: str, data: bytes, most: int = 200) -> list[Definition]:
    language = language_of(name, data)
    assert language is not None
    return definitions(data, language, most)


@pytest.mark.parametrize("name", EXPECTED)
def test_definitions_of_each_language_are_found_on_their_lines(name: str) -> None:
    assert shown(found_in(name, source(name))) == EXPECTED[name]


def test_every_language_has_a_source_here() -> None:
    assert {language_of(name, b"") for name in EXPECTED} == set(Language)


def test_structure_is_a_flat_list_in_the_words_of_the_contract() -> None:
    data = b"import os\n\n\nclass DataProcessor:\n    def __init__(self):\n        pass\n"
    expected = ["  - class DataProcessor (line 4)", "  - def __init__ (line 5)"]
    assert structure("src/data.py", data) == expected
    assert structure(None, data) == expected


@pytest.mark.parametrize("name", EXPECTED)
def test_line_numbers_of_a_read_tool_are_the_ones_given(name: str) -> None:
    lines = source(name).decode().split("\n")
    numbered = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 100)).encode()
    of_the_file = re.sub(r"(?<=line )\d+", lambda number: str(int(number[0]) + 99), EXPECTED[name])
    assert outline(numbered, 1 << 20, path=name, first_line=1).partition("\n")[2] == of_the_file
    assert outline(numbered, 1 << 20, path=name).partition("\n")[2] == EXPECTED[name]


def test_what_a_tool_says_around_numbered_lines_is_no_source() -> None:
    data = b"[File: a.py (1997 lines total)]\r\n(1456 more lines above)\r\n" + b"".join(
        b"%d:%s\r\n" % (number, line)
        for number, line in enumerate((b"class A:", b"    def f(self):", b"        pass"), 1457)
    )
    assert structure(None, data) == ["  - class A (line 1457)", "  - def f (line 1458)"]


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"shop.sh"}))
def test_a_file_that_is_cut_still_shows_what_begins_before_the_cut(name: str) -> None:
    data = source(name)
    whole = found_in(name, data)
    for share in (0.5, 0.7, 0.9):
        cut = data[: int(len(data) * share)]
        line = cut.count(b"\n") + 1
        shown_names = {found.name for found in found_in(name, cut)}
        begun = [found.name for found in whole if found.depth == 0 and found.line < line - 2]
        assert set(begun) <= shown_names, f"{name} cut at {share}"


def test_a_text_that_begins_within_a_docstring_is_read_after_it() -> None:
    data = b'    Of it.\n    """\n\nclass Date(DateTime):\n    def format(self):\n        """Says "when".\n'
    assert "class Date (line 4)" in map(str, definitions(data, Language.PYTHON))


def test_of_many_definitions_the_outermost_are_kept() -> None:
    data = b"".join(b"class C%d:\n    def f(self):\n        pass\n" % number for number in range(30))
    found = definitions(data, Language.PYTHON, most=40)
    assert len(found) == 40
    assert sum(1 for definition in found if definition.keyword == "class") == 30
    assert found == sorted(found, key=lambda definition: definition.line)


def test_all_of_a_long_file_is_read() -> None:
    body = b"".join(
        b"def f%d(a):\n    return a + %d  # %b\n\n\n" % (number, number, b"-" * 80) for number in range(4_000)
    )
    found = definitions(body, Language.PYTHON, most=100_000)
    assert len(body) > 400_000
    assert [definition.name for definition in found] == [f"f{number}" for number in range(4_000)]
    assert [definition.line for definition in found] == [1 + 4 * number for number in range(4_000)]


@pytest.mark.parametrize("at", range(32_000, 33_000, 97))
def test_a_definition_across_the_end_of_a_window_is_found(at: int) -> None:
    text = (
        b"int filler;\n" * ((at - 500) // 12)
        + b"\n" * (at % 12)
        + b"int\nmany_arguments(\n"
        + b"    int argument,\n" * 60
    )
    found = definitions(text + b"    int last)\n{\n}\nint after(void) {\n}\n", Language.C)
    assert [definition.name for definition in found] == ["many_arguments", "after"]


def test_a_comment_longer_than_a_window_hides_what_stands_in_it() -> None:
    text = b"/*\n" + b"int hidden(void) {\n" * 6_000 + b"*/\nint shown(void) {\n}\n"
    assert [str(found) for found in definitions(text, Language.C)] == ["function shown (line 6003)"]


def test_brackets_in_branches_of_the_preprocessor_do_not_add_up() -> None:
    branches = b"int f(int a) {\n#if A\n  if (a) {\n#else\n  if (!a) {\n#endif\n  }\n}\n"
    found = definitions(b"namespace n {\n" + branches * 3 + b"int last() {\n}\n}\n", Language.CPP)
    assert [(one.name, one.depth) for one in found] == [("n", 0), ("f", 1), ("f", 1), ("f", 1), ("last", 1)]


def test_names_beyond_ascii_and_line_ends_of_windows_are_kept() -> None:
    data = "class Größe:\r\n    def größer(self):\r\n        pass\r\n".encode()
    assert shown(definitions(data, Language.PYTHON)) == "class Größe (line 1)\n  def größer (line 2)"


def test_a_long_name_is_shortened() -> None:
    (found,) = definitions(b"class " + b"A" * 5000 + b":\n    pass\n", Language.PYTHON)
    assert len(found.name) == 120
