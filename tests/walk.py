"""The files that one result enters on its way: `make tree` writes them into docs/house.md."""

import asyncio
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from app.main import create_app
from app.runtime import open_runtime
from app.settings import Settings
from tests.asgi import post_scope
from tests.house_tree import PAGE, ROOMS, ROOT

LINE = "0123456789 abcdefghijklmnopqrstuvwxyz of a build that goes on\n"
RESULTS = {"2 KB that pass": 2 << 10, "1 MB that are stored on disk": 1 << 20}
BEGIN, END = "<!-- walk -->\n", "<!-- /walk -->"

_is_request: ContextVar[bool] = ContextVar("is_request", default=False)


class Walk:
    """Counts the calls of the product's functions in the task of a request, and in the threads that work for
    it."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._files: dict[CodeType, str] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        token = _is_request.set(True)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            _is_request.reset(token)

    def watch_threads(self) -> None:
        """Those that are started from here on."""
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and _is_request.get() and (name := self._file_of(frame.f_code)):
            self.calls[name] += 1

    def _file_of(self, code: CodeType) -> str:
        if code not in self._files:
            path = Path(code.co_filename)
            name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
            # A comprehension or the body of a module is no step of the way.
            is_step = name.split("/")[0] in ROOMS and code.co_name != "<module>"
            self._files[code] = name if is_step else ""
        return self._files[code]


async def _walked(size: int) -> Counter[str]:
    walk = Walk()
    walk.watch_threads()
    try:
        with tempfile.TemporaryDirectory() as place:
            settings = Settings(storage_url=f"disk://{place}/state")
            async with open_runtime(settings) as runtime:
                app = create_app(settings, runtime)
                async with app.router.lifespan_context(app):
                    await _send(app, size)
                    walk.calls.clear()
                    with walk.recording():
                        await _send(app, size)
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    return walk.calls


async def _send(app: Any, size: int) -> None:
    text = (LINE * (size // len(LINE) + 1))[:size]
    body = json.dumps({"session_id": "walk", "tool_name": "execute_shell", "content": text}).encode()
    sent: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]
    answers: list[dict[str, Any]] = []

    async def receive() -> Any:
        return sent.pop() if sent else await asyncio.Future()

    async def send(message: dict[str, Any]) -> None:
        answers.append(message)

    await app(post_scope("/results", body), receive, send)
    assert answers[0]["status"] in (200, 201), answers


def walks() -> dict[str, Counter[str]]:
    return {title: asyncio.run(_walked(size)) for title, size in RESULTS.items()}


def picture_in_the_docs() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def picture(found: dict[str, Counter[str]]) -> str:
    """A code block: for each result the files by their folder."""
    lines = ["```"]
    for title, calls in found.items():
        lines.append(f"{title}: {len(calls)} files")
        for folder, names in groupby(sorted(calls, key=_by_room), lambda name: name.rpartition("/")[0]):
            lines.append(f"  {folder:22}" + " · ".join(Path(name).stem for name in names))
    return "\n".join([*lines, "```", ""])


def _by_room(name: str) -> tuple[int, str, str]:
    folder, _, file = name.rpartition("/")
    return ROOMS[::-1].index(name.split("/")[0]), folder, file


def main() -> None:
    found = walks()
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + picture(found) + END + rest.partition(END)[2])
    for title, calls in found.items():
        print(f"{title}: {len(calls)} files, {calls.total():,} calls")


if __name__ == "__main__":
    main()
