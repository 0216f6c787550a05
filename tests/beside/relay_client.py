"""A client that speaks JSON lines with `spillgate mcp`, a process of its own."""

import itertools
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.faults.forking import start_process

ROOT = Path(__file__).resolve().parents[2]
SCRIPTED = str(Path(__file__).with_name("scripted_mcp.py"))
SPILLGATE = ("-m", "beside.main")
HANDLE = re.compile(r"session-[^/]+/file-[0-9a-f-]{36}")
STATELESS = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


_NUMBERS = itertools.count()


class RelayClient:
    """Reads block: what a relay owes comes, or the stream ends, or the test times out."""

    def __init__(
        self, *arguments: str, state: Path, program: tuple[str, ...] = SPILLGATE, **environment: str
    ) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPILLGATE_")}
        given = {f"SPILLGATE_{name.upper()}": value for name, value in environment.items()}
        given = {"SPILLGATE_STORAGE_URL": f"disk://{state}", "PYTHONPATH": str(ROOT)} | given
        # As `Services` does for the services of a test.
        kept["XDG_STATE_HOME"] = str(state.parent / "user")
        number = next(_NUMBERS)
        self._said, given_to, answered = (
            state.with_name(f"{state.name}-{number}-{name}") for name in ("stderr", "stdin", "stdout")
        )
        for fifo in (given_to, answered):
            os.mkfifo(fifo)
        command = (*program, "mcp", *arguments)
        self.process = start_process(command, kept | given, answered, self._said, given_to)
        # Each returns when the process opens the other end, in the same order.
        self.stdin, self.stdout = given_to.open("wb"), answered.open("rb")
        self._requests = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.join()
        for stream in (self.stdin, self.stdout):
            with suppress(BrokenPipeError):
                stream.close()

    def write(self, line: bytes) -> None:
        self.stdin.write(line)
        self.stdin.flush()

    def send(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> int:
        """The id of the request."""
        self._requests += 1
        message = {"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params or {}, **more}
        self.write(json.dumps(message).encode() + b"\n")
        return self._requests

    def read(self) -> Any:
        line = self.stdout.readline()
        assert line, f"it ended: {self.said()}"
        return json.loads(line)

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """The result."""
        request = self.send(method, params)
        message = self.read()
        assert message["id"] == request, message
        return message["result"]

    def call(self, what: str, **more: Any) -> Any:
        """The result of the scripted server's tool."""
        return self.ask("tools/call", {"name": "do", "arguments": {"what": what, **more}})

    def tool(self, name: str, **arguments: Any) -> Any:
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def said(self) -> bytes:
        """What was written to stderr so far."""
        return self._said.read_bytes()

    def peak_kilobytes(self) -> int:
        """The most memory that it has had."""
        found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1])

    def end(self) -> int:
        """Closes its side. The exit status."""
        self.stdin.close()
        return self.status()

    def status(self) -> int:
        """Waits for its end. Negative: the signal that ended it."""
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
