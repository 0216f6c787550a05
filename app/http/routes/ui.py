"""GET /ui: the dashboard, static files of a page that uses the API like any other client."""

import functools
from hashlib import sha256
from pathlib import Path

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from app.http.api.routing import Router

_FILES = Path(__file__).resolve().parents[2] / "ui"
_PAGE = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # The browser asks whether a file has changed: a page of another version might call routes that do not
    # exist.
    "Cache-Control": "no-cache",
}


pages = Router(tags=[])


@pages.api_route("/ui", methods=["GET", "HEAD"], include_in_schema=False)
async def _page(request: Request) -> Response:
    return _answer(_PAGE, request)


async def _files(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope)
    if request.method not in ("GET", "HEAD"):
        raise HTTPException(405)
    await _answer(request.url.path.removeprefix("/ui/"), request)(scope, receive, send)


def install(app: FastAPI) -> None:
    """Adds /ui, and its scripts and styles below /ui/. No API key is required: the page asks for one."""
    app.router.routes.extend(pages.routes)
    app.mount("/ui", _files)


def _answer(name: str, request: Request) -> Response:
    path = _paths().get(name)
    if path is None:
        raise HTTPException(404)
    data, tag = _content(path, path.stat().st_mtime_ns)
    headers = {**HEADERS, "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=_TYPES[path.suffix])


@functools.cache
def _paths() -> dict[str, Path]:
    return {str(path.relative_to(_FILES)): path for path in _FILES.rglob("*") if path.suffix in _TYPES}


@functools.lru_cache(maxsize=64)
def _content(path: Path, changed: int) -> tuple[bytes, str]:
    """From memory: the page asks for all files at once. Reading them in threads takes ten times as long."""
    data = path.read_bytes()
    return data, f'"{sha256(data).hexdigest()[:32]}"'
