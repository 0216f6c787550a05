"""Stored results and sessions are searched and filtered, and a link keeps what is looked for."""

import csv
import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watch, axe, opened, picture
from tests.browser.serving import Service, log_of, serving

CALLS = [
    ("build", "codex", "shop", "Bash", {"command": "npm test -- --coverage"}, 1000),
    ("build", "codex", "shop", "Bash", {"command": "npm run build"}, 4000),
    ("review", "claude-code", "shop", "Grep", {"pattern": "TODO"}, 300),
    ("review", "claude-code", "docs", "Bash", {"command": "git log --stat"}, 300),
    ("query", "opencode", "warehouse", "mcp__db__query", {"query": "SELECT * FROM orders"}, 20_000),
]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("many") / "store") as service:
        for session, door, project, tool, arguments, lines in CALLS:
            fields = {"door": door, "project": project, "tool_arguments": json.dumps(arguments)}
            service.handle(log_of(lines), session_id=session, tool_name=tool, **fields)
        for number in range(250):
            service.handle(log_of(200), session_id=f"other-{number % 130}", tool_name="Other")
        yield service


def test_results_are_found_by_what_is_known_of_them(page: Page, watch: Watch, many: Service) -> None:
    opened(page, many, "/")
    page.get_by_role("link", name="Results").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="More results").click()
    expect(rows).to_have_count(200)
    page.get_by_role("button", name="More results").click()
    expect(rows).to_have_count(len(CALLS) + 250)
    expect(page.get_by_role("button", name="More results")).to_have_count(0)
    filters = page.get_by_role("search", name="Filter")
    filters.get_by_label("Client").fill("codex")
    filters.get_by_label("Client").press("Enter")
    expect(rows).to_have_count(2)
    filters.get_by_label("Search").fill("NPM TEST")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("npm test -- --coverage")
    assert page.url.endswith("#/results?text=NPM+TEST&client=codex")
    assert axe(page) == []
    filters.get_by_role("button", name="Copy link").click()
    expect(filters.get_by_role("button", name="Copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    page.goto("about:blank")
    page.goto(link)
    expect(rows).to_have_count(1)
    expect(filters.get_by_label("Search")).to_have_value("NPM TEST")
    filters.get_by_role("link", name="Clear").click()
    expect(rows).to_have_count(100)
    filters.get_by_label("Project").fill("shop")
    filters.get_by_label("Project").press("Enter")
    expect(rows).to_have_count(3)
    picture(page, "results")
    filters.get_by_label("Size").select_option("From 100 KB")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("npm run build")
    with page.expect_download() as told:
        page.get_by_role("button", name="CSV").click()
    (found,) = csv.DictReader(told.value.path().read_text().splitlines())
    assert (found["tool_name"], found["command"], found["project"]) == ("Bash", "npm run build", "shop")
    assert int(found["bytes"]) == len(log_of(4000))
    page.get_by_role("link", name="Bash").click()
    expect(page.get_by_role("region", name="Lines of the result")).to_contain_text("item 1")
    page.go_back()
    expect(rows).to_have_count(1)
    filters.get_by_label("Search").fill("nowhere")
    expect(page.get_by_text("No stored result is like that.")).to_be_visible()
    # Tools and clients that there are, are suggested.
    names = page.locator("#some-tool_name option").evaluate_all("all => all.map((one) => one.value)")
    assert names == ["Bash", "Grep", "Other", "mcp__db__query"]


def test_the_search_of_the_frame_finds_results_and_opens_handles(
    page: Page, watch: Watch, many: Service
) -> None:
    opened(page, many, "/health")
    find = page.get_by_label("Search results, or open a handle")
    find.fill("from orders")
    find.press("Enter")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    handle = row.get_by_role("link").first.get_attribute("href")
    assert handle is not None
    find.fill(handle.removeprefix("#/results/"))
    find.press("Enter")
    expect(page.get_by_role("heading", name="mcp__db__query")).to_be_visible()


def test_sessions_are_found_by_what_is_known_of_them(page: Page, watch: Watch, many: Service) -> None:
    opened(page, many, "/sessions?client=claude-code&project=docs")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("git log --stat")
    for meaning in ("used, as last reported", "reserved by results since", "used, and exhausted", "left"):
        expect(page.locator(".legend")).to_contain_text(meaning)
    assert axe(page) == []
    filters = page.get_by_role("search", name="Filter")
    filters.get_by_role("link", name="Clear").click()
    expect(rows).to_have_count(100)
    filters.get_by_label("Tool").fill("Grep")
    filters.get_by_label("Tool").press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("review")
    filters.get_by_label("Tool").fill("")
    filters.get_by_label("Search").fill("other-12")
    expect(rows).to_have_count(11)
    filters.get_by_label("Search").fill("npm")
    expect(rows).to_have_count(1)
    # The results of a session, and the link that says so.
    rows.get_by_role("link", name="2", exact=True).click()
    expect(page.get_by_role("heading", name="Stored results")).to_be_visible()
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Remove the filter session_id").click()
    expect(rows).to_have_count(100)
    assert page.url.endswith("#/results")
