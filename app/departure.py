"""A caller that goes away takes its work with it."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import Request

from app.visit import ClientDisconnected

T = TypeVar("T")


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Raises ClientDisconnected, with the work cancelled and ended, when the client hangs up. The request's
    body must have been read."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnected
    finally:
        for task in (working, watching):
            task.cancel()
            with suppress(asyncio.CancelledError, ClientDisconnected):
                await asyncio.wait((task,))


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
