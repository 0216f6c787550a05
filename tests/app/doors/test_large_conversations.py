"""Conversations of many or large rows, over ASGI: the event loop serves other requests at the same time."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.main import create_app
from app.runtime import open_runtime
from tests.app.doors.payloads import LARGE
from tests.app.doors.test_litellm import PATH, asked_with, call, result
from tests.asgi import post_scope
from tests.conftest import StillClock, settings_of
from tests.stopwatch import watched_turns

pytestmark = pytest.mark.anyio

MOST_CPU_SECONDS = 0.1
"""The longest turn of the event loop that is promised."""

HUGE = "0123456789abcdef" * 450_000


class Door:
    """The service in this process. `longest_turn`: of its event loop, in the latest request."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.longest_turn = 0.0

    async def post(self, path: str, sent: Any) -> Any:
        body = json.dumps(sent).encode()
        whole = memoryview(body)
        parts = [whole[at : at + (1 << 18)] for at in range(0, len(body), 1 << 18)][::-1]
        answered: list[Any] = []

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            part = bytes(parts.pop()) if parts else b""
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Any) -> None:
            answered.append(message)

        scope = post_scope(path, body)
        async with watched_turns() as turns:
            await self._app(scope, receive, send)
        self.longest_turn = turns.longest
        assert answered[0]["status"] == 200
        return json.loads(b"".join(message.get("body", b"") for message in answered[1:]))


def many_rows() -> dict[str, Any]:
    return asked_with(
        *[row for n in range(3000) for row in (call(f"c{n}"), result(f"c{n}", f"row {n} of the result"))]
    )


def a_huge_first_row() -> dict[str, Any]:
    sent = asked_with(call("c1"), result("c1", "few"), litellm_trace_id=None, request_headers=None)
    sent["structured_messages"][0]["content"] = HUGE
    return sent


def huge_arguments() -> dict[str, Any]:
    return asked_with(call("c1", arguments=HUGE), result("c1", "few"))


def many_texts_and_a_replaced_row() -> dict[str, Any]:
    texts = [f"{n} {HUGE[:600]}" for n in range(12_000)]
    return asked_with(call("c1"), result("c1", LARGE), {"role": "user", "content": texts})


@pytest.mark.parametrize("made", [many_rows, a_huge_first_row, huge_arguments, many_texts_and_a_replaced_row])
async def test_the_event_loop_serves_others_while_a_conversation_is_read(
    tmp_path: Path, clock: StillClock, made: Any
) -> None:
    given = settings_of(storage_url="memory:")
    async with open_runtime(given, clock) as rt:
        app = create_app(given, rt)
        async with app.router.lifespan_context(app):
            door = Door(app)
            await door.post(PATH, asked_with(call("c0"), result("c0", LARGE)))
            sent = made()
            told = await door.post(PATH, sent)
    rows = told.get("structured_messages", sent["structured_messages"])
    changed = [n for n, row in enumerate(rows) if row != sent["structured_messages"][n]]
    assert changed == ([2] if made is many_texts_and_a_replaced_row else [])
    assert door.longest_turn < MOST_CPU_SECONDS, f"{1000 * door.longest_turn:.0f} ms"
