"""The dashboard in headless Chromium: first view, scrolling, memory, and what an open page costs the service.

`make ui-figures`. Needs the packages of `.browser`."""

import gzip
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
from playwright.sync_api import Browser, Page, sync_playwright

import app
from tests.browser.conftest import ENTRIES, chromium
from tests.browser.serving import Service, log_of, serving, write_ledger

LOADS = 7
SECONDS = 20.0
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
    page.goto(f"{service.url}/ui#/results/{handle}")
    page.get_by_text("item 1", exact=False).first.wait_for()
    frames: list[float] = page.evaluate(FRAMES)
    page.locator(".line.waits").first.wait_for(state="detached")
    told = f"median {frames[300]:.0f} ms, 95 % {frames[570]:.0f} ms, longest {frames[-1]:.0f} ms"
    print(f"Scrolling {len(content) / 1e6:.0f} MB: frames {told}; JavaScript heap {_heap(page) / 1e6:.0f} MB")
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


def cost(browser: Browser, service: Service) -> None:
    """Processor time of the service, which other processes do not disturb as they do its rate."""
    for name, where in (
        ("closed", None),
        ("open", "#/"),
        ("open at 7 days", "#/?range=7%20days"),
        ("closed", None),
    ):
        page = None
        if where is not None:
            page = browser.new_page()
            page.goto(f"{service.url}/ui{where}")
            page.wait_for_timeout(3000)
        idle = _cpu_share(service, SECONDS)
        sent, share = _loaded(service, SECONDS)
        if page is not None:
            page.close()
        per_result = 1000 * share * SECONDS / sent
        told = f"{100 * idle:.2f} % of a core when idle, {per_result:.3f} ms a result of 4 KiB"
        print(f"Dashboard {name}: the service takes {told}")


def _cpu_share(service: Service, seconds: float) -> float:
    process = psutil.Process(service.pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / seconds


def _loaded(service: Service, seconds: float) -> tuple[int, float]:
    """Results sent one after the other, and the share of a core that the service took."""
    ends, sent = threading.Event(), 0

    def load() -> None:
        nonlocal sent
        body = {"tool_name": "read_file", "session_id": "load", "content": "word " * 800}
        with httpx.Client(base_url=service.url, trust_env=False) as client:
            while not ends.is_set():
                client.post("/results", json=body).raise_for_status()
                sent += 1

    thread = threading.Thread(target=load)
    thread.start()
    share = _cpu_share(service, seconds)
    ends.set()
    thread.join()
    return sent, share


if __name__ == "__main__":
    main()
