"""Starts, calls, stops and kills the service in a process of its own."""

import asyncio
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.faults.forking import ROOT, start_process
from tests.faults.quick_client import QuickClient
from tests.moved_clock import MovedClock

START_SECONDS = 90
SERVE = ("-m", "beside.main", "serve", "--port", "0")


def service_with(*changes: str) -> tuple[str, ...]:
    """`changes`: the arguments of tests/faults/service_with.py."""
    return "-m", "tests.faults.service_with", *changes


PATIENCE = tuple(f"{name}_SECONDS=60" for name in ("CONNECT", "REQUEST", "BUSY"))
PATIENT = service_with(*PATIENCE)
"""To which Redis never seems slow."""


class Service:
    """One process. Its log is a file, so that it never waits for a reader."""

    def __init__(
        self,
        state: Path,
        log: Path,
        command: tuple[str, ...],
        settings: dict[str, str],
        clock: MovedClock | None = None,
    ) -> None:
        self.state = state
        self.log = log
        self._address = ""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPILLGATE_")}
        given = {f"SPILLGATE_{name.upper()}": value for name, value in settings.items()}
        # Those of one test are of one user.
        kept["XDG_STATE_HOME"] = str(log.parent / "user")
        given = {"PYTHONPATH": str(ROOT)} | given
        if "SPILLGATE_STORAGE_URL_FILE" not in given:
            given = {"SPILLGATE_STORAGE_URL": f"disk://{state}"} | given
        moved = {} if clock is None else clock.environment
        self._process = start_process(command, kept | given | moved, log)

    async def listening(self) -> Self:
        deadline = time.monotonic() + START_SECONDS
        while not self._address:
            assert self.exit_code is None, f"it ended with {self.exit_code}: {self.tail()}"
            assert time.monotonic() < deadline, f"it does not listen: {self.tail()}"
            await asyncio.sleep(0.01)
            self._address = next(
                (line["address"] for line in self.lines() if line["event"] == "listening"), ""
            )
        return self

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.exitcode

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self._address.removeprefix("http://").rpartition(":")
        return host, int(port)

    def client(self, **options: Any) -> httpx.AsyncClient:
        # Not over TLS: to read the certificates of the system takes longer than a request.
        given = {"base_url": self._address, "trust_env": False, "verify": False, "timeout": 30.0}
        client = httpx.AsyncClient if "limits" in options else QuickClient
        return client(**given | options)

    def lines(self) -> list[dict[str, Any]]:
        """What it logged; the line that it is just writing is left for later."""
        whole = self.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.split("\n") if line.startswith("{")]

    async def logged(self, event: str, seconds: float = 30) -> list[dict[str, Any]]:
        """The log lines whose event holds this text. Waits for the first: a thread writes them."""
        deadline = time.monotonic() + seconds
        while not (found := [line for line in self.lines() if event in line["event"]]):
            assert self.exit_code is None, self.tail()
            assert time.monotonic() < deadline, self.tail()
            await asyncio.sleep(0.02)
        return found

    def tail(self) -> str:
        return self.log.read_text()[-2000:]

    def failures(self) -> list[dict[str, Any]]:
        """What it logged as an error: nothing that a client or a disk does may end there."""
        return [line for line in self.lines() if line["level"] in ("error", "critical")]

    def kill(self) -> None:
        self._process.kill()
        self._process.join(10)

    def terminate(self) -> None:
        self._process.terminate()

    async def ended(self, seconds: float = 30) -> int:
        """Its exit code."""
        deadline = time.monotonic() + seconds
        while (code := self.exit_code) is None:
            assert time.monotonic() < deadline, f"it does not end: {self.tail()}"
            await asyncio.sleep(0.02)
        return code

    async def stop(self) -> int:
        self.terminate()
        return await self.ended()


class Services:
    """Every service that a test started; those that still run at its end are killed."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._started: list[Service] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in self._started:
            service.kill()

    def spawn(
        self,
        state: Path,
        command: tuple[str, ...] = SERVE,
        *,
        clock: MovedClock | None = None,
        **settings: str,
    ) -> Service:
        """Started, and not waited for. `clock`: its wall clock."""
        log = self._place / f"log-{len(self._started)}"
        service = Service(state, log, command, settings, clock)
        self._started.append(service)
        return service

    async def start(
        self,
        state: Path,
        command: tuple[str, ...] = SERVE,
        *,
        clock: MovedClock | None = None,
        **settings: str,
    ) -> Service:
        return await self.spawn(state, command, clock=clock, **settings).listening()
