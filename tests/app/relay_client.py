"""A client that speaks JSON lines with `spillgate mcp`, a process of its own."""

import itertools
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
SCRIPTED = str(Path(__file__).with_name("scripted_mcp.py"))
SPILLGATE = ("-m", "app.cli.main")
STATELESS = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


_NUMBERS = itertools.count()


class RelayClient:
    """Reads block: what a relay owes comes, or the stream ends, or the test times out."""

    def __init__(
        self,
        *arguments: str,
        state: Path,
        program: tuple[str, ...] = SPILLGATE,
        stderr: int | None = None,
        **environment: str,
    ) -> None:
        """`stderr` is a file descriptor; without one, `said` returns what is written there."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPILLGATE_")}
        given = {f"SPILLGATE_{name.upper()}": value for name, value in environment.items()}
        given = {"SPILLGATE_STORAGE_URL": f"disk://{state}", "PYTHONPATH": str(ROOT)} | given
        self._said = state.with_name(f"{state.name}-{next(_NUMBERS)}-stderr")
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, *program, "mcp", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said if stderr is None else stderr,
                env=kept | given,
                cwd=ROOT,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self._requests = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
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

    def end(self) -> int:
        """Closes its side. The exit status."""
        self.stdin.close()
        return self.process.wait()
