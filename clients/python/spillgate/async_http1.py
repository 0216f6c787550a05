"""HTTP/1.1 over kept connections of one event loop, without TLS: h11 reads and writes it.

httpx, whose transport depends on h11 too, takes 0.7 ms longer for a small exchange.
"""

import asyncio
import json
import os
import socket
from typing import cast

import h11

from spillgate.addresses import Address, NotOwn, check_directory, check_listener, is_proven, places
from spillgate.http1 import (
    ABSENT,
    CONNECT_SECONDS,
    MOST_BYTES,
    MOST_IDLE,
    MOST_PROOF_BYTES,
    PROOF_ROUTE,
    HttpAnswer,
    HttpRequest,
)

_HEAD_BYTES = 1 << 16


class AsyncConnections:
    """What `spillgate.http1.Connections` is, to await."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[_Connection] = []

    async def exchange(self, request: HttpRequest, seconds: float) -> HttpAnswer:
        """The whole answer. Raises OSError if there is none in time; ConnectionError if there is no
        connection, it was lost, or no HTTP came. A request that a kept connection lost before any answer is
        sent again on another one."""
        async with asyncio.timeout(seconds):
            while True:
                idle = self._take()
                connection = idle or await self._connected()
                try:
                    return await connection.exchange(request)
                except (h11.LocalProtocolError, h11.RemoteProtocolError) as error:
                    raise ConnectionError(str(error)) from error
                except ConnectionError:
                    if idle is None or connection.has_answered:
                        raise
                finally:
                    if connection.is_reusable and len(self._idle) < MOST_IDLE:
                        self._idle.append(connection)
                    else:
                        connection.close()

    def _take(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connected(self) -> "_Connection":
        """To the first of the service's places that answers. Raises OSError, h11's errors."""
        failed: OSError | None = None
        for address in places(self._address):
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await _connection(address)
            except OSError as error:
                failed = error if isinstance(failed, ABSENT | None) else failed
        assert failed is not None
        raise failed

    async def aclose(self) -> None:
        while self._idle:
            self._idle.pop().close()


async def _connection(address: Address) -> "_Connection":
    """Raises OSError, and NotOwn if the listener is not the user's and must be."""
    loop = asyncio.get_running_loop()
    if not address.path:
        made = await loop.create_connection(lambda: _Connection(address), address.host, address.port)
    else:
        made = await loop.create_unix_connection(
            lambda: _Connection(address), sock=await _socket_at_path(address)
        )
    connection = made[1]
    if address.secret:
        try:
            await _prove(connection, address)
        except BaseException:
            connection.close()
            raise
    return connection


async def _socket_at_path(address: Address) -> socket.socket:
    """Raises OSError."""
    if address.is_own:
        check_directory(os.path.dirname(address.path))
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address.path)
        if address.is_own:
            check_listener(connection)
    except BaseException:
        connection.close()
        raise
    return connection


async def _prove(connection: "_Connection", address: Address) -> None:
    """Raises NotOwn. Until it returns, nothing but the challenge is sent."""
    challenge = os.urandom(32).hex()
    told: object = None
    connection.most_bytes = MOST_PROOF_BYTES
    try:
        answer = await connection.exchange(HttpRequest("GET", f"{PROOF_ROUTE}?challenge={challenge}"))
        told = json.loads(answer.body)
    except (h11.RemoteProtocolError, ConnectionError, ValueError, RecursionError):
        pass
    proof = told.get("proof") if isinstance(told, dict) else None
    if not connection.is_reusable or not is_proven(address, challenge, proof):
        raise NotOwn(f"what listens at {address} has not proved that it is this user's service")
    connection.most_bytes = MOST_BYTES


class _Connection(asyncio.Protocol):
    _transport: asyncio.Transport

    def __init__(self, address: Address) -> None:
        self._address = address
        self._http = h11.Connection(h11.CLIENT, _HEAD_BYTES)
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._head: h11.Response | None = None
        self._body = bytearray()
        self.most_bytes = MOST_BYTES
        """The largest body that is read."""
        self.has_answered = False
        """The first byte of the latest answer has come."""

    def exchange(self, request: HttpRequest) -> asyncio.Future[HttpAnswer]:
        """Raises h11.LocalProtocolError for a header that HTTP forbids."""
        body = request.body
        assert isinstance(body, bytes)
        fields = [("Host", self._address.name), ("Content-Length", str(len(body))), *request.headers.items()]
        head = h11.Request(method=request.method, target=request.target, headers=fields)
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        self._head, self._body, self.has_answered = None, bytearray(), False
        sent = [self._http.send(event) or b"" for event in (head, h11.Data(body), h11.EndOfMessage())]
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(b"".join(sent))
        return self._answer

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        http = self._http
        return http.our_state is http.their_state is h11.DONE and not http.trailing_data[0]

    def close(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is no subclass of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """`data` is empty at the end of the connection."""
        if self._answer is None or self._answer.done():
            self.close()  # The end, or what was not asked for.
            return
        self.has_answered = self.has_answered or bool(data)
        try:
            self._http.receive_data(data)
            while not isinstance(event := self._http.next_event(), type):
                if isinstance(event, h11.Response):
                    self._head = event
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > self.most_bytes:
                        raise h11.RemoteProtocolError("The body is too large.")
                elif isinstance(event, h11.EndOfMessage):
                    self._answer.set_result(self._whole())
                    return
                elif isinstance(event, h11.ConnectionClosed):
                    break
            if not data:
                self._answer.set_exception(ConnectionError("The connection ended."))
        except h11.RemoteProtocolError as error:
            self._answer.set_exception(error if self.has_answered else ConnectionError(str(error)))

    def _whole(self) -> HttpAnswer:
        assert self._head is not None
        after = dict(self._head.headers).get(b"retry-after", b"")
        return HttpAnswer(self._head.status_code, bytes(self._body), after.decode("latin-1"))

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("The connection was lost."))
