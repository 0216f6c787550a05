"""Exchanges of `spillgate.http1` to await, each in a thread of its own."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from spillgate.addresses import Address
from spillgate.http1 import Connections, HttpAnswer, HttpRequest, Interrupt

_MOST_THREADS = 256
"""Exchanges at a time. A further one waits, within its time, for another to end."""


class AsyncConnections:
    """What `spillgate.http1.Connections` is, to await. Event loops may share it."""

    def __init__(self, address: Address) -> None:
        self._connections = Connections(address)
        self._process = 0

    async def exchange(self, request: HttpRequest, seconds: float) -> HttpAnswer:
        """See Connections.exchange. Cancelling it ends the connection."""
        if self._process != os.getpid():  # A forked process has none of the threads.
            self._threads, self._process = ThreadPoolExecutor(_MOST_THREADS, "spillgate"), os.getpid()
        interrupt = Interrupt()
        work = partial(self._connections.exchange, request, seconds, interrupt)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except BaseException:
            interrupt.set()
            raise

    def close(self) -> None:
        """The next exchange opens another connection."""
        self._connections.close()
