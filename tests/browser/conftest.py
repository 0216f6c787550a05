"""One browser for all tests, a page for each, and what every page must keep to."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from tests.browser.serving import ROOT, Service, log_of, serving, write_ledger
from tests.extraction.backend import answering

ENTRIES = 200_000
AXE = ROOT / ".browser/node_modules/axe-core/axe.min.js"
IMAGES = ROOT / "docs/images"


def chromium() -> str:
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    assert found, "Chromium is missing: sh tests/browser/install_chromium.sh"
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        # In a container there is no user to sandbox with, and the shared memory is small.
        opened = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A model answers questions."""
    state = tmp_path_factory.mktemp("state") / "store"
    with answering("500 FAILED") as url, serving(state, llm_base_url=url, llm_models="m") as one:
        yield one


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A week of accounting: 200,000 entries."""
    state = tmp_path_factory.mktemp("busy") / "store"
    state.mkdir(mode=0o700)
    write_ledger(state, ENTRIES)
    with serving(state, ledger_max_bytes="0") as one:
        yield one


@pytest.fixture(scope="session")
def log(service: Service) -> str:
    """A stored log of 5,000 lines, which a model has asked about."""
    handle = service.handle(log_of(5000), session_id="views", tool_call_id="log")
    asked = {"handle": handle, "extract": "Which requests FAILED?", "mode": "retrieve"}
    assert service.http.post("/extract", json=asked).status_code == 200
    return handle


@pytest.fixture(scope="session")
def orders(service: Service) -> str:
    rows = [f"{n},{('Rome', 'Oslo', 'Lima')[n % 3]},{n * 7.5 % 1000}" for n in range(1, 2001)]
    return service.handle(
        "order,city,amount\n" + "\n".join(rows) + "\n", session_id="views", tool_name="sql_query"
    )


class Watch:
    """What a page does that it must not: console errors, exceptions, requests to another origin."""

    def __init__(self, page: Page) -> None:
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.may_fail = False
        """Set where the service refuses or is away: the browser itself logs that."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        page.on("request", self._request)
        page.on("dialog", self._dialog)

    def _console(self, message: Any) -> None:
        refused = self.may_fail and message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not refused:
            self.faults.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1360, "height": 900},
        locale="en-GB",
        timezone_id="Europe/Berlin",
        permissions=["clipboard-read", "clipboard-write"],
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield page
    context.close()


@pytest.fixture
def watch(page: Page) -> Iterator[Watch]:
    found = Watch(page)
    yield found
    assert found.faults == []
    origins = {url.split("/")[2] for url in found.requests if not url.startswith(("blob:", "data:"))}
    assert all(origin.startswith("127.0.0.1:") for origin in origins), origins
    assert len(origins) <= 1


def opened(page: Page, service: Service, where: str) -> Page:
    page.goto(f"{service.url}/ui#{where}")
    return page


def axe(page: Page) -> list[str]:
    """Serious and critical findings of axe on the page as it is. It runs by the debugger, past the policy."""
    page.evaluate(AXE.read_text() + "\n;0")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']} ({one['impact']}): {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def picture(page: Page, name: str) -> None:
    """Writes a screenshot into docs/images, where SCREENSHOTS is set."""
    if os.environ.get("SCREENSHOTS"):
        Path(IMAGES).mkdir(exist_ok=True)
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        page.screenshot(path=IMAGES / f"{name}.png")
