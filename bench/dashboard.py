"""The dashboard in headless Chromium: first view, scrolling, memory, and what an open page costs the service.

`make ui-figures`. Needs the packages of `.browser`."""

import gzip
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
from playwright.sync_api import Browser, Page, sync_playwright

import app
from tests.browser.conftest import ENTRIES, chromium
from tests.browser.serving import Service, log_of, serving, write_ledger

LOADS = 7
ROUNDS, SECONDS = 6, 6.0
"""Rounds with the dashboard closed and open in turn. A page reads again every three seconds."""
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
            cost(browser, service)
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
    for name in ("24%20h", "7%20days"):
        times = [_first_view(browser, f"{service.url}/ui#/?range={name}") for _ in range(LOADS)]
        told = (
            f"{statistics.median(times):.0f} ms, the fastest {min(times):.0f}, the slowest {max(times):.0f}"
        )
        print(f"First view of {ENTRIES:,} entries, {name.replace('%20', ' ')}: median {told}")


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


def cost(browser: Browser, service: Service) -> None:
    """Of a neighbour in the ratio of rates, half disturbs the closed rounds, half the open ones."""
    for name, where in (("", "#/"), (" at 7 days", "#/?range=7%20days")):
        page = browser.new_page()
        rounds = []
        for _ in range(ROUNDS):
            page.goto("about:blank")
            closed = _loaded(service, SECONDS)
            page.goto(f"{service.url}/ui{where}")
            page.locator("main td time").first.wait_for()
            page.wait_for_timeout(1000)
            rounds.append((closed, _loaded(service, SECONDS)))
        page.close()
        rate = statistics.median(open.rate / closed.rate for closed, open in rounds) - 1
        spent = statistics.median(open.milliseconds / closed.milliseconds for closed, open in rounds) - 1
        first = statistics.median(closed.milliseconds for closed, _ in rounds)
        print(
            f"Dashboard open{name}, {ROUNDS} rounds: {100 * rate:+.1f} % results of 4 KiB a second, "
            f"{100 * spent:+.1f} % processor time of the service for each ({first:.3f} ms when closed)"
        )


class Load(NamedTuple):
    """Results in a second, one after the other; the service's processor time for each."""

    rate: float
    milliseconds: float


def _loaded(service: Service, seconds: float) -> Load:
    body = {"tool_name": "read_file", "session_id": "load", "content": "word " * 800}
    process = psutil.Process(service.pid)
    busy, began, sent = sum(process.cpu_times()[:2]), time.perf_counter(), 0
    with httpx.Client(base_url=service.url, trust_env=False) as client:
        while time.perf_counter() - began < seconds:
            client.post("/results", json=body).raise_for_status()
            sent += 1
    spent = sum(process.cpu_times()[:2]) - busy
    return Load(sent / (time.perf_counter() - began), 1000 * spent / sent)


if __name__ == "__main__":
    main()
