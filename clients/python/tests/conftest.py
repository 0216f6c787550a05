"""A real service for the tests of the adapters, and what every framework's model must see in three steps."""

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SPILLGATE = ROOT / ".venv" / "bin" / "spillgate"
LOG = "".join(f"line {n} ERROR disk {n} is full\n" if n == 4507 else f"line {n} ok\n" for n in range(6000))
HANDLE = re.compile(r"session-\S+?/file-[0-9a-f-]{36}")

for name in ("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_TRACKING", "OTEL_SDK_DISABLED"):
    os.environ[name] = "true"  # No test speaks to a framework's maker.


class Service:
    """A service in a process of its own, whose log is a file."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        settings = {"SPILLGATE_PORT": "0", "SPILLGATE_STORAGE_URL": "memory:", "SPILLGATE_LOG_FORMAT": "json"}
        # The hooks of the person who runs the tests do not find it.
        settings["XDG_STATE_HOME"] = str(folder)
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [SPILLGATE, "serve"], env={**os.environ, **settings}, stdout=log, stderr=log
            )
        self.url = self._listening()

    def _listening(self) -> str:
        while True:
            assert self._process.poll() is None, self._log.read_text()
            for line in self._log.read_text().splitlines():
                if line.startswith("{") and (told := json.loads(line))["event"] == "listening":
                    return str(told["address"])
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="session")
def running() -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder))
        yield service
        service.stop()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Service]:
    """One that the test stops."""
    service = Service(tmp_path)
    yield service
    service.stop()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Story:
    """What the model sees, step by step; the framework's fake model tells it by `step`. `calls` are those
    that it makes: (name, arguments); none in the third step, which is the reply `done`.

    The tool `read_log` returns a log of 82 KB. If `service` is given, the tool stops it in mid-run."""

    def __init__(self, service: Service | None = None) -> None:
        self.offered: list[list[str]] = []
        self.results: list[list[str]] = []
        self.instructions: list[str] = []
        self._service = service

    def read_log(self) -> str:
        if self._service is not None:
            self._service.stop()
        return LOG

    def step(self, offered: list[str], results: list[str], instructions: str = "") -> list[tuple[str, Any]]:
        """`results` are the texts of all tool results so far."""
        self.offered.append(offered)
        self.results.append(results)
        self.instructions.append(instructions)
        if len(self.offered) == 1:
            return [("read_log", {})]
        if len(self.offered) == 2 and self._service is None:
            found = HANDLE.search(results[-1])
            assert found, results[-1][:300]
            return [("tool_output", {"handle": found[0], "extract": "Which disk is full? ERROR"})]
        return []

    def check(self, reply: str, *, tools_at_once: bool = False, shell_text: bool = True) -> None:
        assert reply == "done"
        if self._service is not None:
            (text,) = self.results[1]
            assert text.startswith(LOG[:12_288])
            assert text.endswith(
                f"[{len(LOG) - 12_288} characters not shown: the result was too large, and is not stored]"
            )
            assert len(self.offered) == 2
            assert tools_at_once or "tool_output" not in self.offered[1]
            return
        assert tools_at_once or "tool_output" not in self.offered[0], "the tools came too early"
        assert "tool_output" in self.offered[1]
        (message,) = self.results[1]
        assert message.startswith(f"Tool output is too large ({len(LOG)} bytes, 6000 lines, ")
        answer = self.results[2][-1]
        assert answer.startswith("ABSTRACT FROM TOOL OUTPUT read_log WITH HANDLE session-")
        assert "4507 ERROR disk 4507 is full" in answer


class Turns(Story):
    """Reads another log in each of three turns. A model that numbers its calls from `call_0` in each turn
    gives all of them the same id."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def read_log(self) -> str:
        """Reads the log."""
        return f"turn {len(self.offered)}\n{LOG}"

    def step(self, offered: list[str], results: list[str], instructions: str = "") -> list[tuple[str, Any]]:
        self.offered.append(offered)
        self.results.append(results)
        return [("read_log", {})] if len(self.offered) < 4 else []

    def check_stored(self) -> None:
        import httpx

        handles = [HANDLE.search(text) for text in self.results[-1]]
        bodies = [httpx.get(f"{self._url}/results/{found[0]}/content").text for found in handles if found]
        assert bodies == [f"turn {n}\n{LOG}" for n in (1, 2, 3)]


class HandingOn(Story):
    """Reads a log, saves it unread, and refers to it once more in a way that is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[str] = []

    def save(self, text: str) -> str:
        self.saved.append(text)
        return "saved"

    def step(self, offered: list[str], results: list[str], instructions: str = "") -> list[tuple[str, Any]]:
        self.offered.append(offered)
        self.results.append(results)
        if len(self.offered) == 1:
            return [("read_log", {})]
        found = HANDLE.search(results[0])
        assert found, results[0][:300]
        reference = f"spillgate://{found[0]}"
        calls = [("save", {"text": reference}), ("save", {"text": f"{reference}#rows=1"})]
        return calls[len(self.offered) - 2 :][:1]

    def check_saved(self) -> None:
        handing_on = "\nTo hand it to another tool unread, pass spillgate://<handle> as the whole argument."
        assert handing_on in self.results[1][0]
        assert self.saved == [LOG]
        message, saved, refusal = self.results[-1]
        assert "saved" in saved
        assert "The tool did not run." in refusal
        assert LOG[:1000] not in "".join((message, saved, refusal))


@pytest.fixture
def handing_on(running: Service, monkeypatch: pytest.MonkeyPatch) -> HandingOn:
    monkeypatch.setenv("SPILLGATE_URL", running.url)
    return HandingOn()


@pytest.fixture
def turns(running: Service, monkeypatch: pytest.MonkeyPatch) -> Turns:
    monkeypatch.setenv("SPILLGATE_URL", running.url)
    return Turns(running.url)


@pytest.fixture(params=["answered", "stopped"])
def story(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Story:
    """The story with a service that answers, and with one that is stopped in mid-run."""
    stopped: Service | None = request.getfixturevalue("started") if request.param == "stopped" else None
    service: Service = stopped or request.getfixturevalue("running")
    monkeypatch.setenv("SPILLGATE_URL", service.url)
    monkeypatch.setattr("spillgate.exchange.WAITS_SECONDS", ())
    return Story(stopped)


Budget = Callable[[str], dict[str, Any]]


@pytest.fixture
def budget(running: Service) -> Budget:
    """The budget of a session."""
    import httpx

    def asked(session_id: str) -> dict[str, Any]:
        found = httpx.get(f"{running.url}/sessions/{session_id}")
        return dict(found.raise_for_status().json()["budget"])

    return asked
