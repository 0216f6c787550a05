"""GET /ui: the dashboard, a page of static files that reads the API as any other client does."""

import os
from pathlib import Path

from fastapi import FastAPI, Response
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_FILES = Path(__file__).resolve().parents[1] / "ui"

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Asks whether the file has changed: a page of another version would call routes that are not there.
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers.update(HEADERS)
        return answer


def install(app: FastAPI) -> None:
    """Adds /ui, and its scripts and styles below /ui/. No API key is required: the page asks for one."""

    def page() -> FileResponse:
        return FileResponse(_FILES / "index.html", headers=HEADERS)

    app.add_api_route("/ui", page, include_in_schema=False)
    app.mount("/ui", _Files(directory=_FILES))
