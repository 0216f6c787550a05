"""No view cuts anything off: on a phone, a tablet and two desks, light and dark."""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watch, axe, opened
from tests.browser.serving import Service, log_of

WIDTHS = (390, 768, 1280, 1360)
LONG = "mcp__company_inventory__list_all_servers_of_every_region"

CUT = """() => {
    // A person scrolls in these: lines, data of any width, texts. A command ends with its second line.
    const free = ".lines, .tree, .cells, .hits, pre, textarea, .words, .unseen, .skip, svg, input, select";
    const found = [], wide = document.documentElement.scrollWidth;
    if (wide > innerWidth) found.push(`the page: ${wide}`);
    for (const one of document.querySelectorAll("body *")) {
        const style = getComputedStyle(one), box = one.getBoundingClientRect();
        if (one.closest(free) || style.clipPath !== "none" || style.display === "inline") continue;
        const text = `${one.tagName} ${one.className} ${one.textContent.slice(0, 60)}`;
        const isCut = style.overflowX !== "visible" && one.scrollWidth > one.clientWidth + 1;
        if (isCut) found.push(`cut: ${text}`);
        if (box.width && box.right > innerWidth + 1) found.push(`outside: ${text}`);
    }
    return found;
}"""
"""What is cut off at the right of its box or of the window."""

HIDDEN = """() => [...document.querySelectorAll("main td")]
    .filter((cell) => cell.textContent.trim() && !cell.getClientRects().length && !cell.closest(".unseen"))
    .map((cell) => cell.dataset.head)"""


@pytest.fixture(scope="module")
def views(service: Service, log: str, orders: str) -> dict[str, str]:
    """The address of each view, with long names in it."""
    command = (
        "journalctl --unit web --since '2 hours ago' --no-pager | grep --invert-match healthz | tail -n 5000"
    )
    arguments = json.dumps({"command": command})
    fields = {"door": "claude-code", "project": "a-project-with-a-long-name", "tool_arguments": arguments}
    session = "a-session-with-a-long-name-0123456789abcdef"
    handle = service.handle(log_of(3000), session_id=session, tool_name=LONG, **fields)
    asked = {"handle": handle, "extract": "Which requests FAILED?", "mode": "retrieve"}
    assert service.http.post("/extract", json=asked).status_code == 200
    # Read back twice: its cap does not pay, and the overview says so.
    for _ in range(2):
        service.http.get(f"/results/{handle}/content?accounted=true").raise_for_status()
    tree = service.handle(json.dumps([{"name": "x" * 40}] * 900), session_id=session, tool_name=LONG)
    return {
        "overview": "/?range=1%20h",
        "results": f"/results?text={LONG[:8]}",
        "sessions": "/sessions",
        "session": f"/sessions/{session}",
        "lines": f"/results/{handle}",
        "tree": f"/results/{tree}",
        "table": f"/results/{orders}",
        "policy": "/policy",
        "health": "/health",
    }


@pytest.mark.parametrize(
    "view",
    ["overview", "results", "sessions", "session", "lines", "tree", "table", "policy", "health"],
)
def test_nothing_is_cut_off_at_four_widths_light_and_dark(
    page: Page, watch: Watch, service: Service, views: dict[str, str], view: str
) -> None:
    opened(page, service, views[view])
    expect(page.locator("#read time")).to_be_visible()
    expect(page.locator("main :is(table, .lines, .tree, .timeline)").first).to_be_visible()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            # The charts follow the size of their boxes.
            page.evaluate(
                "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
            )
            assert page.evaluate(CUT) == [], (view, width, scheme)
            assert set(page.evaluate(HIDDEN)) <= {"Share"}, (view, width, scheme)
            # Colours depend on no width, and places on no colour.
            if scheme == "light" or width == WIDTHS[-1]:
                assert axe(page) == [], (view, width, scheme)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


WATCH_CHARTS = """(() => {
    window.widest = 0;
    new MutationObserver(() => {
        for (const one of document.querySelectorAll(".chart canvas"))
            widest = Math.max(widest, one.getBoundingClientRect().right);
    }).observe(document, { childList: true, subtree: true });
})()"""
"""Runs before the page is painted, and before a chart is told the size of its box."""


def test_a_chart_is_drawn_as_wide_as_its_box(
    page: Page, watch: Watch, service: Service, views: dict[str, str]
) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.add_init_script(WATCH_CHARTS)
    opened(page, service, views["overview"])
    expect(page.locator(".chart canvas")).to_have_count(2)
    assert 0 < page.evaluate("widest") <= 390


def test_on_a_phone_a_row_names_each_of_its_cells(
    page: Page, watch: Watch, service: Service, views: dict[str, str]
) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    opened(page, service, views["results"])
    row = page.locator("tbody tr").last
    for head in ("Stored", "Tool", "Session", "Client", "Project", "Size", "Tokens", "Kept until"):
        cell = row.locator(f"td[data-head='{head}']")
        expect(cell).to_be_visible()
        shown = cell.evaluate("one => getComputedStyle(one, '::before').content")
        assert shown == f'"{head}"'
