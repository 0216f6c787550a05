"""The dashboard in headless Chromium: first view, scrolling, memory, and what an open page costs the service.

`make ui-figures`. Needs the packages of `.browser`."""

import gzip
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import psutil
from playwright.sync_api import Browser, Page, expect, sync_playwright

import app
from tests.browser.conftest import ENTRIES, chromium
from tests.browser.serving import Service, log_of, serving, write_ledger

RANGES = ("24 h", "7 days")
LOADS = 15
PAIRS, SECONDS = 6, 30.0
"""Phases with the dashboard closed and open in turn. A page reads its sums every ten seconds."""
EVERY_MS, REFRESHES = 10_000, 12
"""Two minutes. Once a minute a page reads its tables too."""
FRAMES = """async () => {
    const box = document.querySelector(".lines"), frames = [];
    let before = performance.now();
    for (let step = 0; step < 600; step += 1) {
        // Slowly, then fast, then in leaps.
        box.scrollTop += step < 300 ? 60 : step < 500 ? 2000 : box.scrollHeight / 100;
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        frames.push(now - before);
        before = now;
    }
    return frames.sort((one, two) => one - two);
}"""


def main() -> None:
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        state = Path(place) / "state"
        state.mkdir(mode=0o700)
        write_ledger(state, ENTRIES)
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        with serving(state, ledger_max_bytes="0", max_bytes="12288") as service:
            sizes()
            first_view(browser, service)
            scrolling(browser, service)
            for name in RANGES:
                cost(browser, service, name)
                refreshing(browser, service, name)
        browser.close()


def sizes() -> None:
    files = [
        path
        for path in (Path(app.__file__).parent / "ui").rglob("*")
        if path.suffix in (".html", ".js", ".css")
    ]
    packed = sum(len(gzip.compress(path.read_bytes())) for path in files)
    print(f"Page, scripts and styles: {packed / 1000:.0f} KB compressed, {len(files)} files")


def first_view(browser: Browser, service: Service) -> None:
    found: dict[str, list[float]] = {name: [] for name in RANGES}
    for _ in range(LOADS):
        for name, times in found.items():
            times.append(_first_view(browser, f"{service.url}/ui#/?range={quote(name)}"))
    for name, times in found.items():
        told = (
            f"{statistics.median(times):.0f} ms, the fastest {min(times):.0f}, the slowest {max(times):.0f}"
        )
        print(f"First view of {ENTRIES:,} entries, {name}: median {told}", flush=True)


def _first_view(browser: Browser, url: str) -> float:
    page = browser.new_page()
    page.goto(url)
    # The chart and the rest of the view are drawn in one go before the table.
    page.locator("main td time").first.wait_for()
    found: float = page.evaluate("performance.getEntriesByName('first-view')[0].startTime")
    page.close()
    return found


def scrolling(browser: Browser, service: Service) -> None:
    content = log_of(920_000)
    handle = service.handle(content, session_id="large")
    page = browser.new_page()
    empty = _tab_bytes(browser)
    page.goto(f"{service.url}/ui#/results/{handle}")
    page.get_by_text("item 1", exact=False).first.wait_for()
    frames: list[float] = page.evaluate(FRAMES)
    page.locator(".line.waits").first.wait_for(state="detached")
    told = f"median {frames[300]:.0f} ms, 95 % {frames[570]:.0f} ms, longest {frames[-1]:.0f} ms"
    print(f"Scrolling {len(content) / 1e6:.0f} MB: frames {told}")
    heap, tab = _heap(page), _tab_bytes(browser)
    print(
        f"Memory after it: JavaScript heap {heap / 1e6:.0f} MB, all of the tab's process {tab / 1e6:.0f} MB, "
        f"{(tab - empty) / 1e6:.0f} MB of it more than an empty tab"
    )
    began = time.perf_counter()
    for _ in range(5):
        params = {"offset": 800_000, "limit": 200, "accounted": "false"}
        service.http.get(f"/results/{handle}/lines", params=params).raise_for_status()
    print(f"200 lines at line 800,000: {(time.perf_counter() - began) * 200:.0f} ms")
    page.close()


def _heap(page: Page) -> float:
    debugger = page.context.new_cdp_session(page)
    debugger.send("HeapProfiler.collectGarbage")
    debugger.send("Performance.enable")
    metrics: list[dict[str, Any]] = debugger.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "JSHeapUsedSize"))


def _tab_bytes(browser: Browser) -> int:
    """Memory of the process of the only open tab: all of its pages, those shared with others in proportion
    (PSS, as the kernel counts). It holds the JavaScript heap, layout, decoded text and code."""
    debugger = browser.new_browser_cdp_session()
    found = debugger.send("SystemInfo.getProcessInfo")["processInfo"]
    debugger.detach()
    return max(_pss(one["id"]) for one in found if one["type"] == "renderer")


def _pss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def cost(browser: Browser, service: Service, name: str) -> None:
    """The same load with the dashboard closed and open. In every other pair open comes first."""
    page, pairs = browser.new_page(), []
    refreshes = _counted(page)
    for number in range(PAIRS):
        loads = {}
        for is_open in (True, False) if number % 2 else (False, True):
            page.goto("about:blank")
            if is_open:
                _open(page, service, name)
            loads[is_open] = _loaded(service, SECONDS, page)
        pairs.append((loads[False], loads[True]))
    page.close()
    rate = statistics.median(open.rate / closed.rate for closed, open in pairs) - 1
    spent = statistics.median(open.milliseconds / closed.milliseconds for closed, open in pairs) - 1
    closed_ms, open_ms = (
        statistics.median(load.milliseconds for load in loads) for loads in zip(*pairs, strict=True)
    )
    print(
        f"Dashboard open at {name}, {PAIRS} pairs of {SECONDS:.0f} s, {len(refreshes) - PAIRS} refreshes: "
        f"{100 * rate:+.1f} % results of 4 KiB a second, {100 * spent:+.1f} % processor time of the "
        f"service for each (medians: closed {closed_ms:.3f} ms, open {open_ms:.3f} ms)"
    )


def refreshing(browser: Browser, service: Service, name: str) -> None:
    """The service's processor time for the refreshes of an open page, without other load. The page's clock is
    put forward, so that they follow each other at once."""
    page, process = browser.new_page(), psutil.Process(service.pid)
    page.clock.install()
    _open(page, service, name)
    refreshes, busy = _counted(page), sum(process.cpu_times()[:2])
    read = page.locator("#read time")
    while len(refreshes) < REFRESHES:
        before, asked = read.get_attribute("datetime"), len(refreshes)
        page.clock.fast_forward(EVERY_MS)
        page.wait_for_timeout(200)
        # Otherwise the page would take it for a refresh of ten seconds, and slow down.
        if len(refreshes) > asked:
            expect(read).not_to_have_attribute("datetime", before or "", timeout=60_000)
    spent = 1000 * (sum(process.cpu_times()[:2]) - busy) / len(refreshes)
    print(
        f"Refresh at {name}, mean of {len(refreshes)}: {spent:.0f} ms processor time of the service, one in "
        f"{EVERY_MS / 1000:.0f} s is {100 * spent / EVERY_MS:.2f} % of a core",
        flush=True,
    )
    page.close()


def _counted(page: Page) -> list[str]:
    """The refreshes of the page from now on: each asks once for the newest entries."""
    found: list[str] = []
    page.on("request", lambda one: found.append(one.url) if "limit=25" in one.url else None)
    return found


def _open(page: Page, service: Service, name: str) -> None:
    page.goto(f"{service.url}/ui#/?range={quote(name)}")
    # The last that a refresh shows.
    page.locator("#read time").wait_for()


class Load(NamedTuple):
    """Results in a second, one after the other; the service's processor time for each."""

    rate: float
    milliseconds: float


def _loaded(service: Service, seconds: float, page: Page) -> Load:
    body = {"tool_name": "read_file", "session_id": "load", "content": "word " * 800}
    process = psutil.Process(service.pid)
    busy, began, sent = sum(process.cpu_times()[:2]), time.perf_counter(), 0
    with httpx.Client(base_url=service.url, trust_env=False) as client:
        while time.perf_counter() - began < seconds:
            client.post("/results", json=body).raise_for_status()
            sent += 1
    page.wait_for_timeout(1)  # Counts the requests that the page has sent.
    spent = sum(process.cpu_times()[:2]) - busy
    return Load(sent / (time.perf_counter() - began), 1000 * spent / sent)


if __name__ == "__main__":
    main()
