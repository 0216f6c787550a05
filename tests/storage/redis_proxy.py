"""A TCP proxy before Redis that loses replies: the command has run, and the client does not learn it."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self


class Proxy:
    def __init__(self, port: int) -> None:
        self._target = port
        self._marker = b""
        self._times = 0
        self._streams: set[asyncio.StreamWriter] = set()
        self.lost = 0

    def lose(self, marker: bytes, times: int = 1) -> None:
        """The next replies to requests that hold `marker`: the connection is closed in their place."""
        self._marker, self._times = marker, times

    def move(self, port: int) -> None:
        """From now on to another server, as after a failover."""
        self._target = port
        for stream in list(self._streams):
            stream.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for stream in list(self._streams):
            stream.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis_reader, redis_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._streams |= {writer, redis_writer}
        is_marked = False

        async def forth() -> None:
            nonlocal is_marked
            while data := await reader.read(1 << 16):
                if not is_marked and self._times and self._marker in data:
                    # Counted now: others may be on their way at the same time.
                    self._times -= 1
                    is_marked = True
                redis_writer.write(data)
            redis_writer.close()

        async def back() -> None:
            while data := await redis_reader.read(1 << 16):
                if is_marked:
                    self.lost += 1
                    break
                writer.write(data)
            writer.close()

        with suppress(OSError):
            await asyncio.gather(forth(), back())
        self._streams -= {writer, redis_writer}
