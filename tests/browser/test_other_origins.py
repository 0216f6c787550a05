"""Web pages of another port and of another site, in the browser: they change nothing in the service."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.serving import Service, serving

SEND = """async ([url, method, body, type]) => {
    const options = {method, mode: "no-cors", body, headers: type ? {"Content-Type": type} : {}};
    try { await fetch(url, options); return "sent"; } catch (error) { return String(error); }
}"""
FORM = """([url, body]) => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.name = "frame";
    document.body.append(frame);
    const form = document.createElement("form");
    Object.assign(form, {method: "post", action: url, target: "frame", enctype: "text/plain"});
    const input = document.createElement("input");
    input.name = body;
    form.append(input);
    document.body.append(form);
    frame.onload = () => done("sent");
    form.submit();
})"""
BODY = '{"tool_name":"execute_shell","session_id":"evil","content":"from a page","used_tokens":1}'


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a page</title><body></body>")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def other_port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("alone") / "store") as service:
        yield service


def changing(service: Service) -> list[tuple[str, str]]:
    paths = service.http.get("/openapi.json").json()["paths"]
    listed = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    filled = [(method, path.replace("{", "").replace("}", "")) for method, path in listed]
    return [(method, path) for method, path in filled if method != "HEAD" and (method, path) != ("GET", "/")]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_changes_nothing(
    page: Page, alone: Service, other_port: int, host: str
) -> None:
    """`127.0.0.1` is the same site on another port, `localhost` another site."""
    page.goto(f"http://{host}:{other_port}/")
    for method, path in changing(alone):
        for media in ("text/plain", ""):
            body = None if method == "GET" else BODY
            page.evaluate(SEND, [f"{alone.url}{path}", method, body, media])
    query = "?tool_name=execute_shell&session_id=evil"
    page.evaluate(SEND, [f"{alone.url}/results{query}", "POST", "text of a page", "text/plain"])
    assert page.evaluate(FORM, [f"{alone.url}/results{query}", "text of a form"]) == "sent"
    assert alone.http.get("/sessions").json()["sessions"] == []
    assert alone.http.get("/accounting/entries").json()["entries"] == []
    refused = 'spillgate_errors_total{code="forbidden"}'
    lines = [line for line in alone.http.get("/metrics").text.splitlines() if line.startswith(refused)]
    assert float(lines[0].rpartition(" ")[2]) > len(changing(alone)) / 2
    # The service's own page may.
    page.goto(f"{alone.url}/docs/errors")
    page.evaluate(SEND, [f"{alone.url}/results", "POST", BODY.replace(',"used_tokens":1', ""), "text/plain"])
    page.evaluate(
        """async ([url, body]) => { await fetch(url, {method: "POST", body,
            headers: {"Content-Type": "application/json"}}); }""",
        [f"{alone.url}/results", BODY.replace(',"used_tokens":1', "")],
    )
    assert [one["session_id"] for one in alone.http.get("/sessions").json()["sessions"]] == ["evil"]
