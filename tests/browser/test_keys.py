"""API keys stay in their tab, tenants are separated, and the page waits for a service that stopped."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watch, axe
from tests.browser.serving import Service, log_of, serving
from tests.keys import key_file


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Service]:
    keys = key_file(tmp_path / "keys", "acme:sk-acme", "bolt:sk-bolt")
    with serving(tmp_path / "store", api_keys_file=str(keys)) as service:
        yield service


def stored(service: Service, tenant: str) -> str:
    service.http.headers["Authorization"] = f"Bearer sk-{tenant}"
    return service.handle(log_of(3000), session_id=f"of-{tenant}", tool_name=f"tool_of_{tenant}")


def test_a_key_is_asked_for_and_another_tenants_handle_is_unknown(
    page: Page, watch: Watch, keyed: Service
) -> None:
    own, foreign = stored(keyed, "acme"), stored(keyed, "bolt")
    watch.may_fail = True
    page.goto(f"{keyed.url}/ui")
    key = page.get_by_label("API key", exact=True)
    key.fill("sk-unknown")
    page.keyboard.press("Enter")
    expect(page.locator(".empty")).to_contain_text("not known")
    key.fill("sk-acme")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("tool_of_acme")
    assert "sk-acme" not in page.url + str(watch.requests)
    assert page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0
    page.goto(f"{keyed.url}/ui#/results/{foreign}")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    assert "tool_of_bolt" not in page.content()
    page.goto(f"{keyed.url}/ui#/results/{own}")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.path().read_bytes() == log_of(3000)
    # A second key in the tab: the overview shows both tenants, each with its own sums.
    page.get_by_role("button", name="Key", exact=True).click()
    page.get_by_label("Another API key").fill("sk-bolt")
    page.get_by_role("button", name="Add").click()
    page.goto(f"{keyed.url}/ui#/")
    tenants = page.locator('.card:has(h2:text-is("By tenant"))')
    expect(tenants.locator("tbody tr")).to_have_count(2)
    expect(tenants).to_contain_text("acme")
    expect(page.locator(".card", has_text="Newest entries")).to_contain_text("tool_of_bolt")
    assert axe(page) == []
    # Another tab has no key.
    other = page.context.new_page()
    other.goto(f"{keyed.url}/ui")
    expect(other.get_by_label("API key", exact=True)).to_be_visible()


def test_a_service_that_stops_is_waited_for(page: Page, watch: Watch, tmp_path: Path) -> None:
    with serving(tmp_path / "store") as service:
        handle = service.handle(log_of(4000))
        page.goto(f"{service.url}/ui#/results/{handle}")
        lines = page.get_by_role("region", name="Lines of the result")
        expect(lines).to_contain_text("item 1")
        watch.may_fail = True
        service.stop()
        expect(page.get_by_role("alert")).to_contain_text("does not answer")
        page.get_by_label("Go to line").fill("3500")
        page.keyboard.press("Enter")
        expect(lines.locator(".line.at")).to_contain_text("…")
        service.start()
        expect(lines.locator(".line.at")).to_contain_text("item 3500")
        expect(page.get_by_role("alert")).to_be_hidden()
        service.stop()
        page.goto("about:blank")
        service.start()
        page.goto(f"{service.url}/ui#/health")
        expect(page.locator(".state").first).to_have_text("Ready")
