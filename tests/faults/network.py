"""The network between the service and its store, as bad as it is told to be."""

import asyncio
import random
import re
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
DRIP_SECONDS = 0.05
DELAY_SECONDS = 0.6
ELSEWHERE = b""

_RUN = re.compile(rb":(run-[a-z0-9-]+)")


class Network:
    """A TCP proxy. A fault spoils every conversation (some commands and their replies) of those who have had
    `spared` of them since; whose it is, a session's that is called run-…, its keys say."""

    def __init__(self, port: int, begins: tuple[bytes, ...] = (b"*",)) -> None:
        """`begins`: with what a request begins; by default one to Redis."""
        self._target = port
        self._begins = begins
        self._port = 0
        self._server: asyncio.Server | None = None
        self._streams: set[asyncio.StreamWriter] = set()
        self._conversing: set[asyncio.Task[None]] = set()
        self._fault: Fault | None = None
        self._spared = 0
        self._only = re.compile(b"")
        self._had = Counter[bytes]()
        self._healed = asyncio.Event()
        self.spoilt = 0
        """Conversations, since the fault began."""

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self._port}/0"

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.refuse()

    def spoil(self, fault: "Fault", spared: int, only: bytes = b"") -> None:
        """`only`: a regular expression of the requests that count."""
        self._fault, self._spared, self._only, self.spoilt = fault, spared, re.compile(only), 0
        self._had.clear()
        self._healed.clear()

    async def refuse(self) -> None:
        """Stops listening and closes every connection."""
        assert self._server is not None
        self._server.close()
        self._healed.set()
        for stream in list(self._streams):
            stream.transport.abort()
        await self._server.wait_closed()
        await asyncio.gather(*self._conversing)
        self._server = None

    async def heal(self) -> None:
        self._fault = None
        self._healed.set()
        if self._server is None:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversing = asyncio.ensure_future(self._converse(reader, writer))
        self._conversing.add(conversing)
        conversing.add_done_callback(self._conversing.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis_reader, redis_writer = await asyncio.open_connection(HOST, self._target)
        both = {writer, redis_writer}
        self._streams |= both
        fault: Fault | None = None

        async def forth() -> None:
            nonlocal fault
            while data := await reader.read(1 << 16):
                # A large request comes in pieces, and only the first begins like one.
                if data.startswith(self._begins):
                    fault = self._fault_of(data)
                if fault is not swallow:
                    redis_writer.write(data)

        async def back() -> None:
            while data := await redis_reader.read(1 << 16):
                if fault is None:
                    writer.write(data)
                elif not await fault(data, writer, self._healed):
                    return

        ways = [asyncio.ensure_future(way()) for way in (forth, back)]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(*ways)
        for stream in both:
            stream.close()
        self._streams -= both

    def _fault_of(self, request: bytes) -> "Fault | None":
        if self._fault is None or not self._only.search(request):
            return None
        found = _RUN.search(request)
        whose = found[1] if found else ELSEWHERE
        self._had[whose] += 1
        if self._had[whose] <= self._spared:
            return None
        self.spoilt += 1
        return self._fault


Fault = Callable[[bytes, asyncio.StreamWriter, asyncio.Event], Awaitable[bool]]
"""Given a piece of a reply in place of the client. Answers whether the connection goes on."""


async def silence(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
    """The connection stays open, and nothing comes."""
    await healed.wait()
    return False


async def swallow(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
    """The request does not arrive. This is not called, as there is no reply."""
    raise AssertionError


async def reset(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
    """Half of the reply, then RST."""
    writer.write(reply[: len(reply) // 2])
    await writer.drain()
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
    return False


async def garble(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
    """Noise of the same length."""
    writer.write(random.Random(len(reply)).randbytes(len(reply)))
    return True


async def drip(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
    """A byte at a time."""
    for byte in reply:
        writer.write(bytes([byte]))
        await asyncio.sleep(DRIP_SECONDS)
    return True


async def delay(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
    """All of it, but late."""
    await asyncio.sleep(DELAY_SECONDS)
    writer.write(reply)
    return True


async def lose(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
    """The commands have run; their replies are lost."""
    return False
