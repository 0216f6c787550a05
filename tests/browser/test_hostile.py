"""Content that was written to harm its reader is shown as text. It is never run, and stops nothing."""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watch, axe
from tests.browser.serving import Service

SCRIPTS = [
    "<script>document.title = 'run'; alert(1)</script>",
    "<img src=x onerror=\"document.title = 'run'\">",
    "<svg onload=\"document.title = 'run'\"><a href=\"javascript:document.title='run'\">x</a></svg>",
    "<iframe srcdoc=\"<script>parent.document.title='run'</script>\"></iframe>",
    "</pre></main><style>* { display: none }</style><form action=https://example.com>",
    "{{constructor.constructor('document.title=1')()}} ${document.title='run'}",
    "__proto__ constructor toString",
]
ANSI = "\x1b[2J\x1b[31mred\x1b[0m \x1b]8;;http://example.com\x07link\x1b]8;;\x07 \x07\x00"
BIDI = "user\u202e\u2066 // admin check \u2069\u2066 \u200b\u200f\ufeff end"
TEXT = "\n".join([*SCRIPTS, ANSI, BIDI]) + "\n" + "filler\n" * 3000


def went_untouched(page: Page) -> None:
    assert "run" not in page.title()
    assert (
        page.locator("main img, main svg, main iframe, main script, main style, main form[action]").count()
        == 0
    )


def test_hostile_text_is_text_in_every_view(page: Page, watch: Watch, service: Service) -> None:
    handle = service.handle(TEXT, session_id="hostile", tool_name=SCRIPTS[1], tool_call_id=SCRIPTS[0])
    asked = {"handle": handle, "extract": "script admin", "mode": "retrieve"}
    service.http.post("/extract", json=asked)
    page.goto(f"{service.url}/ui#/results/{handle}")
    lines = page.get_by_role("region", name="Lines of the result")
    for place, text in enumerate(SCRIPTS):
        expect(lines.locator(".line .text").nth(place)).to_have_text(text)
    for mark in ("␛", "␇", "␀"):
        expect(lines.locator(".line").nth(len(SCRIPTS))).to_contain_text(mark)
    bidi = lines.locator(".line").nth(len(SCRIPTS) + 1)
    for mark in ("U+202E", "U+2066", "U+2069", "U+200B", "U+200F", "U+FEFF"):
        expect(bidi).to_contain_text(mark)
    assert not set("\u202e\u2066\u2069\x1b\x00") & set(page.locator("body").inner_text())
    went_untouched(page)
    for pattern in ("<script>", "admin", "."):
        page.get_by_label("Search lines").fill(pattern)
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="Matching lines")).to_contain_text("matching line")
    page.get_by_label("Question").fill("script onerror")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_label("Answer", exact=True)).to_be_visible()
    page.locator(".given summary").last.click()
    went_untouched(page)
    assert axe(page) == []
    for where in ("/", "/sessions/hostile", f"/?{'tool_name=' + '%3Cimg%20src=x%20onerror=alert(1)%3E'}"):
        page.goto(f"{service.url}/ui#{where}")
        expect(page.locator(".card").first).to_be_visible()
        went_untouched(page)
    page.goto(f"{service.url}/ui#/policy")
    page.get_by_label("Tool", exact=True).fill(SCRIPTS[1])
    page.get_by_label("Cap in bytes").fill("10")
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("status")).to_contain_text("of 1")
    went_untouched(page)


def test_hostile_data_is_text_as_a_tree_and_as_a_table(page: Page, watch: Watch, service: Service) -> None:
    rows = [{"<b>key</b>": text, "__proto__": {"x": 1}, "constructor": BIDI} for text in SCRIPTS] * 300
    handle = service.handle(json.dumps(rows), session_id="hostile")
    page.goto(f"{service.url}/ui#/results/{handle}")
    page.get_by_role("tab", name="Tree").click()
    tree = page.get_by_role("region", name="The data as a tree")
    tree.get_by_role("button", name="0:", exact=False).first.click()
    expect(tree).to_contain_text("<b>key</b>")
    expect(tree).to_contain_text("U+202E")
    went_untouched(page)
    page.get_by_role("tab", name="Table").click()
    expect(page.get_by_role("region", name="Rows")).to_contain_text(SCRIPTS[1])
    went_untouched(page)


def test_a_line_of_50_mb_is_shown_in_part_and_searched(page: Page, watch: Watch, service: Service) -> None:
    handle = service.handle(b"x" * 25_000_000 + b"needle<b>" + b"y" * 25_000_000, session_id="long")
    page.goto(f"{service.url}/ui#/results/{handle}")
    lines = page.get_by_role("region", name="Lines of the result")
    expect(lines.locator(".line").first).to_contain_text("xxxx")
    page.get_by_role("button", name="long line: read more").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("longer than one answer")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_label("Search lines").fill("needle")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Matching lines")).to_contain_text("needle<b>")
    page.get_by_role("tab", name="Tree").click()
    expect(page.locator("#panel")).to_contain_text("The tree is for at most 8.0 MiB")
    page.get_by_role("tab", name="Table").click()
    expect(page.locator("#panel")).to_contain_text("Queries read at most 32 MiB")


@pytest.mark.parametrize("columns", [50, 1_000_000])
def test_a_million_columns_stop_nothing(page: Page, watch: Watch, service: Service, columns: int) -> None:
    head = ",".join(f"c{n}" for n in range(columns))
    row = ",".join("7" for _ in range(columns))
    handle = service.handle(f"{head}\n" + f"{row}\n" * (2 if columns > 50 else 400), session_id="wide")
    watch.may_fail = True
    page.goto(f"{service.url}/ui#/results/{handle}")
    # Rows open as a table, unless their query is refused.
    usual = "Table" if columns == 50 else "Lines"
    expect(page.get_by_role("tab", name=usual)).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Lines").click()
    lines = page.get_by_role("region", name="Lines of the result")
    expect(lines.locator(".line").first).to_contain_text("c1")
    page.get_by_role("tab", name="Table").click()
    if columns == 50:
        expect(page.get_by_role("region", name="Rows").locator("thead th")).to_have_count(41)
        expect(page.locator("#panel")).to_contain_text("The first 40 of 50 columns")
    else:
        # The service refuses the query: it costs too much, or one row does not fit an answer.
        expect(page.locator("#panel .warning")).to_be_visible()
    assert page.locator("*").count() < 10_000
