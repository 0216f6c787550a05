"""A request's body: its bytes are counted and bounded. Also: what happens when the client disconnects."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Send

from domain.errors import BodyTooLarge, Overloaded

T = TypeVar("T")

FREE_BYTES = 64 << 10
"""Bytes of its body that each request may hold without taking from the gate."""

LEAST_POOL_BYTES = 256 << 20

_NOSNIFF = (b"x-content-type-options", b"nosniff")
_NO_STORE = (b"cache-control", b"no-store")
_CLOSE = (b"connection", b"close")


class ClientDisconnected(ClientDisconnect):
    """The client disconnected. No answer can be sent: only `Access` catches this."""


class BodyGate:
    """One pool for all the body bytes in memory beyond each request's free ones."""

    def __init__(self, max_body_bytes: int) -> None:
        self.capacity = max(LEAST_POOL_BYTES, 4 * max_body_bytes)
        self.in_flight = 0

    def take(self, size: int) -> None:
        """Raises Overloaded at once when the pool is empty; never waits."""
        if self.in_flight + size > self.capacity:
            raise Overloaded("Too many bytes of other requests are in memory. Keep your copy and try again.")
        self.in_flight += size

    def give(self, size: int) -> None:
        self.in_flight -= size


class RequestBody:
    """One request's body, and the headers added to its answer. Routes find it as `scope["request_body"]`."""

    __slots__ = (
        "_cap",
        "_ended",
        "_gate",
        "_kept",
        "_read",
        "_receive",
        "_send",
        "_taken",
        "has_body",
        "started",
    )

    def __init__(self, receive: Receive, send: Send, gate: BodyGate, cap: int) -> None:
        self._receive = receive
        self._send = send
        self._gate = gate
        self._cap = cap
        self._read = 0
        self._kept = 0
        self._taken = 0
        self._ended = False
        self.has_body = False
        self.started = False

    async def receive(self) -> Message:
        """Raises BodyTooLarge, Overloaded, ClientDisconnected."""
        message = await self._receive()
        if message["type"] == "http.request":
            if size := len(message.get("body", b"")):
                self._count(size)
            if not message.get("more_body", False):
                self._ended = True
        elif not self._ended and not self.started:
            raise ClientDisconnected
        return message

    def _count(self, size: int) -> None:
        self._read += size
        if self._read > self._cap:
            raise BodyTooLarge(too_large(self._cap))
        self._kept += size
        self._take()

    def _take(self) -> None:
        wanted = self._kept - FREE_BYTES - self._taken
        if wanted > 0:
            self._gate.take(wanted)
            self._taken += wanted

    def hold(self, size: int) -> None:
        """That many bytes of it are in memory again. Raises Overloaded."""
        self._kept += size
        self._take()

    @property
    def holds_pool(self) -> bool:
        """True while some of its body takes room in the pool that others share."""
        return self._taken > 0

    def let_go(self, size: int) -> None:
        """That many bytes of the body are no longer in memory: a streamed one holds little of the pool."""
        self._kept = max(0, self._kept - size)
        spare = self._taken - max(0, self._kept - FREE_BYTES)
        self._taken -= spare
        self._gate.give(spare)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._add_headers(message)
        await self._send(message)

    def _add_headers(self, message: Message) -> None:
        headers = list(message.get("headers", ()))
        plain = cached = True
        for name, _ in headers:
            if name == b"x-content-type-options":
                plain = False
            elif name == b"cache-control":
                cached = False
        if plain:
            headers.append(_NOSNIFF)
        if cached:
            headers.append(_NO_STORE)
        if self.has_body and not self._ended:
            # Kept open, the server would have to read the rest of the body first.
            headers.append(_CLOSE)
        message["headers"] = headers

    def leave(self) -> None:
        if self._taken:
            self._gate.give(self._taken)
            self._taken = 0


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Runs `work`; cancels it if the client disconnects. The request's body must have been read.
    Raises ClientDisconnected."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(request))
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


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def too_large(cap: int) -> str:
    return f"The body is larger than {cap} bytes (SPILLGATE_MAX_BODY_BYTES). Send it in parts, or less of it."
