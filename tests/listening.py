"""A server of a test's own, on a port of this machine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, port: int = 0, limit: int = 1 << 16) -> AsyncIterator[int]:
    """Yields the port. At the end each connection is closed: one that is left open is a warning later, in
    whichever test the garbage is collected."""
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections[asyncio.create_task(serve_and_close(reader, writer))] = writer

    async with await asyncio.start_server(connected, "127.0.0.1", port, limit=limit) as server:
        yield server.sockets[0].getsockname()[1]
    for task, writer in connections.items():
        task.cancel()
        writer.transport.abort()
    await asyncio.gather(*connections, return_exceptions=True)
    # The loop closes the sockets when it turns.
    await asyncio.sleep(0)
