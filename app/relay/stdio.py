"""The relay between the standard streams of this process and those of a command."""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from app.relay.streams import (
    SIGNAL_SECONDS,
    FromClient,
    FromServer,
    Output,
    lines,
    may_be_message,
    read_from,
    to_stderr,
)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class CommandServer:
    """An MCP server that is a process of its own. Its stderr is that of this process."""

    def __init__(self, command: Sequence[str]) -> None:
        """Starts it. Raises OSError."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0)  # noqa: S603

    def run(self, from_client: FromClient, from_server: FromServer, client: Output) -> int:
        """Relays until the server has ended and said all. Returns its exit status; negative: the signal that
        ended it. Signals that this process gets are passed on."""
        for number in SIGNALS:
            signal.signal(number, self._pass_on)
        threading.Thread(target=self._to_server, args=(from_client,), daemon=True).start()
        reader = threading.Thread(target=self._to_client, args=(from_server, client), daemon=True)
        reader.start()
        # A signal that comes just before a wait begins does not interrupt it.
        while reader.is_alive():
            reader.join(SIGNAL_SECONDS)
        if self._process.poll() is None:
            client.close()
        while True:
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(SIGNAL_SECONDS)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._process.send_signal(number)

    def _to_server(self, from_client: FromClient) -> None:
        assert self._process.stdin is not None
        upward = Output(self._process.stdin.fileno())
        for line in lines(read_from(0)):
            pieces = from_client(line) or []
            try:
                upward.write(pieces)
            except OSError:
                os.close(0)  # The server reads no more: the client must not write.
                break
        self._process.stdin.close()

    def _to_client(self, from_server: FromServer, client: Output) -> None:
        assert self._process.stdout is not None
        for line in lines(read_from(self._process.stdout.fileno())):
            if not may_be_message(line):
                to_stderr(line)
                continue
            message = from_server(line)
            try:
                client.write(message)
            except OSError:
                self._process.stdout.close()  # The client reads no more: the server must not write.
                return
