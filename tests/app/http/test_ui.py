"""The files of the dashboard: served without a key, under a strict policy. tests/browser/ opens them."""

import gzip
import re
from pathlib import Path

import httpx
import pytest

import app
from app.http.routes.ui import HEADERS

pytestmark = pytest.mark.anyio

FILES = Path(app.__file__).parent / "ui"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


async def test_every_file_comes_with_its_type_and_the_policy(client: httpx.AsyncClient) -> None:
    paths = [path for path in FILES.rglob("*") if path.suffix in TYPES]
    assert len(paths) > 8
    for path in paths:
        answer = await client.get(f"/ui/{path.relative_to(FILES)}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(TYPES[path.suffix])
        assert all(answer.headers[name] == value for name, value in HEADERS.items())
    page = await client.get("/ui")
    assert page.content == (FILES / "index.html").read_bytes()
    assert all(page.headers[name] == value for name, value in HEADERS.items())
    again = await client.get("/ui/main.js", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 200
    tag = again.headers["etag"]
    assert (await client.get("/ui/main.js", headers={"If-None-Match": tag})).status_code == 304
    assert (await client.post("/ui/main.js")).status_code == 405


@pytest.mark.parametrize(
    "path", ["/ui/", "/ui/none.js", "/ui/../app/main.py", "/ui/..%2fmain.py", "/ui/vendor"]
)
async def test_nothing_else_is_served(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


async def test_a_browser_is_led_to_the_page_and_a_program_to_the_docs(client: httpx.AsyncClient) -> None:
    firefox = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    for accept, page in ((firefox, "/ui"), ("*/*", "/docs"), ("application/json", "/docs"), ("", "/docs")):
        answer = await client.get("/", headers={"Accept": accept})
        assert (answer.status_code, answer.headers["location"]) == (307, page)
        assert answer.headers["vary"] == "Accept"


def test_the_page_names_no_other_host_and_holds_no_script() -> None:
    for path in FILES.rglob("*"):
        if path.suffix in (".html", ".js", ".css") and path.parent.name != "vendor":
            urls = re.findall(r"https?://[^\s\"'`]+", path.read_text())
            assert (path.name, urls) == (path.name, [])
    page = (FILES / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"\s(?:on\w+|style)=", page) == []


def test_page_and_scripts_stay_under_200_kb_compressed() -> None:
    sizes = [len(gzip.compress(path.read_bytes())) for path in FILES.rglob("*") if path.suffix in TYPES]
    assert sum(sizes) < 200_000
