"""Bodies of requests in memory, counted and bounded."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import Request
from msgspec import Struct
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from app.http.api.body_caps import BodyCap
from domain.errors import BodyTooLarge, Draining, InvalidField, Overloaded

T = TypeVar("T")

FREE_BYTES = 64 << 10
"""The bytes of its body that each request may hold without taking from the pool."""

JOINED_BYTES = 2 << 20
"""Pieces of a body are joined at its end up to this size: a body that grows is copied several times."""

LEAST_POOL_BYTES = 256 << 20

LINGER_SECONDS = 2.0

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


def write_whole(
    cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> bool:
    """Writes an answer by one call of the system. uvicorn takes two, and searches each header twice: 6 % of
    the time of a result of 2 KB (bench/README.md). Returns False if uvicorn must send it: to a slow reader,
    or as the last one of a connection. `headers` are our own, the length of the body among them."""
    if cycle.flow.write_paused or cycle.disconnected or not cycle.keep_alive:
        return False
    lines = b"\r\n".join(map(b": ".join, (*cycle.default_headers, *headers)))
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"".join((STATUS_LINE[status], lines, b"\r\n\r\n", body)))
    cycle.message_event.set()
    cycle.on_response()
    return True


class RequestBody(Struct, eq=False):
    """One request's body, and the headers added to its answer. Routes find it as `scope["request_body"]`."""

    _receive: Receive
    _send: Send
    _cycle: RequestResponseCycle | None
    _gate: BodyGate
    _cap: BodyCap
    _values: int = 0
    _kept: int = 0
    _taken: int = 0
    _ended: bool = False
    _held_back: Message | None = None
    has_body: bool = False
    request_id: bytes = b""
    started: bool = False
    status: int = 0
    received: int = 0
    """Bytes of the body that were read."""
    sent: int = 0
    """Bytes of the answer's body."""

    async def receive(self) -> Message:
        """Raises BodyTooLarge, InvalidField, Overloaded, ClientDisconnected."""
        message = await self._receive()
        if message["type"] == "http.request":
            if body := message.get("body"):
                self._count(len(body))
                if self._cap.values is not None:
                    self._values += sum(map(body.count, (b",", b"[", b"{")))
                    if self._values > self._cap.values:
                        raise InvalidField("The body holds more than 20,000 JSON values. Send fewer.")
            self._ended = not message.get("more_body", False)
        elif not self._ended and not self.started:
            raise ClientDisconnected
        return message

    def _count(self, size: int) -> None:
        self.received += size
        self.check_size(self.received)
        self.hold(size)

    def check_size(self, size: int) -> None:
        """Raises BodyTooLarge for a body of that many bytes."""
        if size > self._cap.size:
            raise BodyTooLarge(f"The body is larger than {self._cap.advice}")

    def hold(self, size: int) -> None:
        """Counts `size` bytes of the body that are in memory again. Raises Overloaded."""
        self._kept += size
        wanted = self._kept - FREE_BYTES - self._taken
        if wanted > 0:
            self._gate.take(wanted)
            self._taken += wanted

    @property
    def holds_pool(self) -> bool:
        """True while some of its body takes room in the shared pool."""
        return self._taken > 0

    def let_go(self, size: int) -> None:
        """Counts `size` bytes of the body as freed: a streamed body holds little of the pool."""
        self._kept = max(0, self._kept - size)
        spare = self._taken - max(0, self._kept - FREE_BYTES)
        self._taken -= spare
        self._gate.give(spare)

    async def answer(self, status: int, media_type: str, more: Mapping[str, str], body: bytes) -> None:
        """Sends a whole answer, at once if the server can. `more` headers are of plain characters, have names
        in lower case, and are none of those that `send` adds."""
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", media_type.encode())]
        if more:
            headers += [(name.encode(), value.encode()) for name, value in more.items()]
        if self._ended and len(body) <= FREE_BYTES and self._cycle is not None:
            added = (b"x-request-id", self.request_id), _NOSNIFF, _NO_STORE
            if write_whole(self._cycle, status, (*headers, *added), body):
                self.started, self.status, self.sent = True, status, len(body)
                return
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def send(self, message: Message) -> None:
        """Sends a part of the answer; a large one in slices, each when the client has read the one before.
        Until then a large part of what a request without a body asked for takes room in the pool. Raises
        Overloaded, before anything was sent of an answer with a Content-Length."""
        if message["type"] == "http.response.start":
            self._held_back = message
            if not self._add_headers(message):
                await self._send_start()
            return
        body: bytes = message.get("body", b"")
        self.sent += len(body)
        if len(body) <= FREE_BYTES and (self._ended or not self.has_body):
            if self._held_back is not None:
                await self._send_start()
            await self._send(message)
            return
        takes_room = len(body) > FREE_BYTES and not self.has_body
        if takes_room:
            self.hold(len(body))
        await self._send_start()
        for start in range(0, len(body) - FREE_BYTES, FREE_BYTES):
            await self._send({**message, "body": body[start : start + FREE_BYTES], "more_body": True})
        if len(body) > FREE_BYTES:
            message = {**message, "body": body[-(len(body) % FREE_BYTES or FREE_BYTES) :]}
        if self.has_body and not self._ended and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._discard_rest()
            message = {"type": "http.response.body"}
        await self._send(message)
        if takes_room:
            self.let_go(len(body))

    def cut(self) -> None:
        """Ends the connection within an answer: the client sees that it is not whole."""
        if self._cycle is not None:
            self._cycle.disconnected = True
            self._cycle.message_event.set()
            self._cycle.transport.close()

    async def _send_start(self) -> None:
        if self._held_back is not None:
            message, self._held_back = self._held_back, None
            self.started = True
            self.status = message["status"]
            await self._send(message)

    async def _discard_rest(self) -> None:
        """Reads what the client still sends, for a moment: closing now would reset the connection, and the
        client would lose the answer."""
        self.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                message = await self._receive()
                while message["type"] == "http.request" and message.get("more_body", False):
                    message = await self._receive()

    def _add_headers(self, message: Message) -> bool:
        """True if the answer has a Content-Length."""
        headers = [*message.get("headers", ()), (b"x-request-id", self.request_id)]
        names = dict(headers)
        if _NOSNIFF[0] not in names:
            headers.append(_NOSNIFF)
        if _NO_STORE[0] not in names:
            headers.append(_NO_STORE)
        if message["status"] == 500 or (self.has_body and not self._ended):
            # The server closes the connection after a fault. Kept open after a body that is not read to its
            # end, it would have to read the rest first.
            headers.append(_CLOSE)
        message["headers"] = headers
        return b"content-length" in names

    def leave(self) -> None:
        if self._taken:
            self._gate.give(self._taken)
            self._taken = 0


async def read_body(scope: Scope, receive: Receive) -> bytes | bytearray:
    """All of a JSON body. The texts of a large one will be in memory beside it, and count as well. Raises
    what RequestBody raises."""
    message = await receive()
    pieces: list[bytes] = [message.get("body", b"")]
    size, body = len(pieces[0]), bytearray()
    while message.get("more_body", False):
        message = await receive()
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > JOINED_BYTES:
            # Grows in place: joined at the end, a large body would be held twice.
            body += b"".join(pieces)
            pieces.clear()
    if size > JOINED_BYTES:
        scope["request_body"].hold(size)
    return body or b"".join(pieces)


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Runs `work`; cancels it if the client disconnects. The request's body must have been read.
    Raises ClientDisconnected."""
    return await _unless(_disconnected(request), ClientDisconnected(), work)


async def cancel_on_stop(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Runs `work`; cancels it if the service cannot wait for it any longer. Raises Draining."""
    late = Draining("This instance is stopping, and could not finish in time. Ask again.")
    return await _unless(stopping.wait(), late, work)


async def cancel_on_end(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Runs `work`; cancels it if the client disconnects, or if the service cannot wait for it any longer.
    Raises ClientDisconnected, Draining."""
    return await cancel_on_disconnect(request, cancel_on_stop(request.app.state.stopping, work))


async def _unless(event: Coroutine[Any, Any, object], error: Exception, work: Coroutine[Any, Any, T]) -> T:
    """Runs `work`. If the event comes first, cancels it and raises the error."""
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(event)
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise error
    finally:
        for task in (working, watching):
            task.cancel()
            with suppress(asyncio.CancelledError, ClientDisconnected):
                await asyncio.wait((task,))


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
