"""Connections of our own: requests sent piece by piece, finished by hand or never."""

import asyncio
import json
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx

from tests.faults.calls import Call
from tests.faults.service_process import Service

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Connections:
    """A context manager: leaving it closes what it opened."""

    def __init__(self) -> None:
        self._opened: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._opened:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def open(self, service: Service) -> Streams:
        reader, writer = await asyncio.open_connection(*service.address)
        self._opened.append(writer)
        return reader, writer


class Upload:
    """A chunked POST /results over a socket of its own: sent and finished by hand."""

    def __init__(self, call: Call, is_json: bool) -> None:
        self.call = call
        self.body = call.content
        self.path = f"/results?tool_name=execute_shell&session_id={call.session_id}"
        self.media = "text/plain"
        if is_json:
            sent = {
                "tool_name": "execute_shell",
                "session_id": call.session_id,
                "content": call.content.decode(),
            }
            self.body, self.path, self.media = json.dumps(sent).encode(), "/results", "application/json"
        self.sent = 0

    async def begin(self, connections: Connections, service: Service) -> None:
        self.reader, self.writer = await connections.open(service)
        head = f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {self.media}\r\n"
        self.writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())

    async def send(self, size: int) -> None:
        part = self.body[self.sent : self.sent + size]
        self.sent += len(part)
        self.writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        await self.writer.drain()

    async def finish(self) -> None:
        await self.send(len(self.body))
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def answer(self) -> httpx.Response:
        """The one answer. After it the connection may be reset, if this side was still sending."""
        raw = b""
        async with asyncio.timeout(30):
            with suppress(ConnectionResetError):
                while piece := await self.reader.read(1 << 16):
                    raw += piece
        top, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = top.decode().split("\r\n")
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
        return httpx.Response(int(first.split()[1]), headers=headers, content=body)


async def drip(upload: Upload) -> None:
    """Sends for as long as anyone listens, and never ends."""
    try:
        while True:
            await upload.send(3000)
            await asyncio.sleep(0.05)
    except ConnectionError:
        pass
