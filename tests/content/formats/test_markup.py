"""Pages and documents: titles, headings, what a reader sees, rows of tables, elements."""

import pytest

from content.formats.hidden_parts import is_seen
from content.kind import Kind
from content.match_view import page_text
from content.passages import split
from content.source_text import SourceText
from tests.content.formats.describing import kind_of, outlined, pieces, said, shown_around

# The answer of Python's HTTP server for a folder.
LISTING = """\
<!DOCTYPE HTML>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Directory listing for /docs/</title>
</head>
<body>
<h1>Directory listing for /docs/</h1>
<hr>
<ul>
<li><a href="agents.md">agents.md</a></li>
<li><a href="api.md">api.md</a></li>
</ul>
<hr>
</body>
</html>
"""
PLIST = """\
<?xml version="1.0" encoding="UTF-8"?>
<!-- <a>not the root</a> -->
<manifest>
  <package><name>a</name></package>
  <package><name>b</name></package>
</manifest>
<!-- <left
"""


def test_a_page_is_said_by_its_title_and_outlined_by_its_headings() -> None:
    assert said(LISTING) == "HTML page"
    assert outlined(LISTING) == [
        "Outline (html):",
        "title: Directory listing for /docs/ (line 5)",
        "h1: Directory listing for /docs/ (line 8)",
    ]


def test_a_document_is_said_by_its_root_and_outlined_by_its_elements() -> None:
    assert said(PLIST) == "XML, root element manifest"
    assert outlined(PLIST) == ["Outline (xml):", "root element: manifest", "  package: 2", "  name: 2"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<p>one</p>" * 9, Kind.HTML),
        ("<svg xmlns='x'><g/></svg>", Kind.XML),
        ("<34>1 2026-11-20T08:00:00Z web app\n" * 9, Kind.LOG),
        ("<- back to the list that is long\n" * 9, Kind.TEXT),
    ],
)
def test_an_angle_bracket_alone_is_no_markup(text: str, kind: Kind) -> None:
    assert kind_of(text) is kind


def test_a_list_of_a_page_keeps_its_numbers() -> None:
    items = "".join(
        f"{n}. <span>Item {n} is described here in some more words</span>\n" for n in range(1, 40)
    )
    for text, _ in pieces(f"<html><body>\n{items}</body></html>"):
        assert text.count(". <span>") == text.count("<span>") == text.count("</span>")


def test_what_a_reader_of_a_page_does_not_see_is_not_seen() -> None:
    words = "Words to be read are here. " * 30
    source = SourceText(f"<html><style>p {{ color: red; margin: 0 }}</style><p>{words}</p></html>".encode())
    test = is_seen(source.data, source.format.kind)
    seen = [source.data[one.start : one.end] for one in split(source) if test(one)]
    assert seen
    assert not any(b"color" in page_text(text) for text in seen)


def test_a_row_of_a_table_is_shown_whole_with_the_heads_of_its_cells() -> None:
    rows = "".join(f"<tr><td>city {n}</td><td>{n * 1000} people</td></tr>" for n in range(60))
    text = f"<html><table><tr><th>name</th><th>size</th></tr>{rows}</table></html>"
    source = SourceText(text.encode())
    around = shown_around(text, "city 40<")
    assert around.count("<tr>") == around.count("</tr>") >= 1
    passage = next(one for one in split(source) if one.start <= text.index("city 40<") < one.end)
    assert source.format.around(source.data, passage).columns == "name | size"
