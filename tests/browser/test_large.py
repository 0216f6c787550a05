"""60 MB are scrolled and 200,000 entries summed up in bounded memory, with few elements and small answers."""

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watch
from tests.browser.serving import Service, log_of

LINES = 920_000
MOST_ELEMENTS = 700
MOST_HEAP = 100_000_000


@pytest.fixture(scope="session")
def large(service: Service) -> tuple[str, int]:
    content = log_of(LINES)
    assert 60_000_000 < len(content) < 67_000_000
    return service.handle(content, session_id="large"), content.count(b"\n") + 1


def heap(page: Page) -> float:
    debugger = page.context.new_cdp_session(page)
    debugger.send("HeapProfiler.collectGarbage")
    debugger.send("Performance.enable")
    metrics = debugger.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "JSHeapUsedSize"))


def test_60_mb_are_scrolled_to_every_place(
    page: Page, watch: Watch, service: Service, large: tuple[str, int]
) -> None:
    handle, total = large
    page.goto(f"{service.url}/ui#/results/{handle}")
    lines = page.get_by_role("region", name="Lines of the result")
    expect(lines).to_contain_text("item 1")
    for number in (LINES, 1, 500_000, 123_456, LINES // 3):
        page.get_by_label("Go to line").fill(str(number))
        page.keyboard.press("Enter")
        expect(lines.locator(".line.at .text")).to_contain_text(f"item {number}")
    # By the scroll bar to both ends, by the keyboard, and line by line with the wheel.
    lines.press("End")
    expect(lines).to_contain_text(f"item {LINES}")
    lines.press("Home")
    expect(lines.locator(".line").first).to_contain_text("item 1")
    box = lines.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    for _ in range(100):
        page.mouse.wheel(0, 400)
    expect(lines.locator(".line.waits")).to_have_count(0)
    # Numbers and texts of one moment: the wheel may still turn.
    rows = page.evaluate(
        """() => [...document.querySelectorAll(".lines .line:not(.waits)")].map(
            (row) => [".number", ".text"].map((part) => row.querySelector(part).textContent))"""
    )
    shown = [int(number.replace(",", "")) for number, _ in rows]
    assert shown == list(range(shown[0], shown[0] + len(shown)))
    assert shown[0] > 1000
    assert [int(text.rpartition(" ")[2]) for _, text in rows] == shown
    # A row that stays in sight stays in the page: selected text stays selected.
    assert page.evaluate(
        """async () => {
            const box = document.querySelector(".lines"), row = box.querySelector(".line:last-child");
            box.scrollTop += 40;
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            return row.isConnected && row !== box.querySelector(".line:last-child");
        }"""
    )
    # From end to end in 100 steps.
    page.evaluate(
        """async () => {
            const box = document.querySelector(".lines");
            for (let step = 0; step <= 100; step += 1) {
                box.scrollTop = (box.scrollHeight * step) / 100;
                await new Promise(requestAnimationFrame);
            }
        }"""
    )
    expect(lines.locator(".line.waits")).to_have_count(0)
    assert page.locator("*").count() < MOST_ELEMENTS
    assert heap(page) < MOST_HEAP
    pages = [parse_qs(urlsplit(url).query) for url in watch.requests if "/lines?" in url]
    assert all(int(one["limit"][0]) <= 200 for one in pages)
    page.get_by_label("Search lines").fill("item 919000$")
    page.keyboard.press("Enter")
    expect(lines.locator(".line.at mark")).to_have_text("item 919000")
    assert total == LINES + 1


def test_200_000_entries_are_never_read_one_by_one(page: Page, watch: Watch, busy: Service) -> None:
    page.goto(f"{busy.url}/ui#/?range=7%20days")
    expect(page.locator(".card", has_text="Largest results").locator("tbody tr")).to_have_count(8)
    asked = [url for url in watch.requests if "/accounting/" in url]
    assert len(asked) <= 10
    assert page.locator("*").count() < 4 * MOST_ELEMENTS
    assert heap(page) < MOST_HEAP
