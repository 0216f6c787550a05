"""The service that hooks and commands start for their user: one process, whatever happens to it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.operations.idle import IdleWatch
from tests.app.doors.payloads import LARGE, changed, payload
from tests.faults.forking import ROOT, run
from tests.faults.service_process import Services
from tests.redis_server import free_port

HANDLE = re.compile(r"session-[^/ ]+/file-[0-9a-f-]{36}")
LARGE_RESULT = changed(payload("claude-code", "Bash"), ("tool_response", "stdout"), LARGE)


class User:
    """Runs commands with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.state = home / ".local" / "state" / "spillgate"

    def run(
        self,
        *arguments: str,
        command: tuple[str, ...] = ("-m", "beside.main"),
        stdin: Any = "",
        is_forked: bool = True,
        browser: str = "",
        **settings: str,
    ) -> "subprocess.CompletedProcess[str]":
        """One that is not forked lasts until stdout and stderr have ended, which no service may hold open."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        environment |= {"SPILLGATE_HOOK_TIMEOUT_MS": "60000", "SPILLGATE_AUTO_START": "true"}
        environment |= {f"SPILLGATE_{name.upper()}": value for name, value in settings.items()}
        environment |= {"BROWSER": browser} if browser else {}
        given = stdin if isinstance(stdin, str) else json.dumps(stdin)
        command = (*command, *arguments)
        if is_forked:
            done = run(command, environment, given.encode(), self.home)
            texts = done.stdout.decode(), done.stderr.decode()
            return subprocess.CompletedProcess(done.args, done.returncode, *texts)
        return subprocess.run(
            [sys.executable, *command],
            env=environment,
            cwd=self.home,
            input=given,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def hook(self, number: int = 0, **options: Any) -> str:
        """The text that the agent's model gets; "" if the result passes."""
        sent = {**LARGE_RESULT, "tool_use_id": f"call-{number}"}
        done = self.run("hook", "claude-code", stdin=sent, **options)
        assert (done.returncode, done.stderr) == (0, "")
        return "" if done.stdout == "{}\n" else done.stdout

    def log(self) -> str:
        return (self.state / "hook.log").read_text()

    def service(self) -> tuple[int, str]:
        """The process that has the lock, and its version."""
        number, version = (self.state / "embedded" / "lock").read_text().split()
        return int(number), version

    def services(self) -> list[int]:
        """The processes that serve this user, which a command has started."""
        found = []
        for number in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if os.readlink(f"/proc/{number}/fd/2") == str(self.state / "embedded" / "service.log"):
                    found.append(int(number))
        return found

    def kill(self) -> None:
        number, _ = self.service()
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
        self.until_gone(number)

    def until_gone(self, number: int, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while Path(f"/proc/{number}/cmdline").exists() and Path(f"/proc/{number}/cmdline").read_bytes():
            assert time.monotonic() < deadline, "it does not end"
            time.sleep(0.02)


@pytest.fixture
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    one = User(tmp_path_factory.mktemp("u"))
    yield one
    with suppress(FileNotFoundError, ValueError):
        one.kill()


def handle_in(text: str) -> str:
    match = HANDLE.search(text)
    assert match is not None, text
    return match[0]


def test_hooks_at_once_start_one_service_which_later_ones_use(user: User) -> None:
    """It listens on its socket alone, which no other user can reach."""
    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(user.hook, range(4)))
    assert all("session-" in text for text in texts), user.log()
    process, _ = user.service()
    assert "session-" in user.hook(5)
    assert user.service()[0] == process
    assert user.services() == [process]
    assert psutil.Process(process).net_connections("inet") == []
    assert not (user.state / "embedded" / "address").exists()
    assert (user.state / "embedded" / "socket").is_socket()
    assert (user.state / "embedded").stat().st_mode & 0o77 == 0


def test_after_a_kill_the_next_call_starts_another_and_nothing_is_lost(user: User) -> None:
    """The kill leaves the socket and the lock file behind."""
    handle = handle_in(user.hook(1))
    first, _ = user.service()
    user.kill()
    assert (user.state / "embedded" / "socket").is_socket()
    assert "session-" in user.hook(2)
    assert user.service()[0] != first
    shown = user.run("lines", handle, "1")
    assert (shown.returncode, shown.stderr) == (0, "")


VERSION = (
    "import beside.embedded as own, beside.main as main; own.__version__ = '{}'; main.sys.exit(main.main())"
)


def test_a_newer_version_takes_its_place_and_an_older_one_uses_it(user: User) -> None:
    handle = handle_in(user.hook(1, command=("-c", VERSION.format("0.0.9"))))
    first, version = user.service()
    assert version == "0.0.9"
    assert "session-" in user.hook(2)
    second, version = user.service()
    assert (first != second, version > "0.0.9") == (True, True)
    user.until_gone(first)
    assert "session-" in user.hook(3, command=("-c", VERSION.format("0.0.9")))
    assert user.service()[0] == second
    assert user.run("lines", handle, "1").returncode == 0


def test_without_auto_start_the_result_passes(user: User) -> None:
    assert user.hook(auto_start="false") == ""
    assert "No service answers at" in user.log()
    assert not (user.state / "embedded").exists()


def test_a_service_elsewhere_is_never_replaced_by_one_here(user: User) -> None:
    for url in ("http://192.0.2.1:9", f"http://127.0.0.1:{free_port()}"):
        assert user.hook(url=url, hook_timeout_ms="200") == ""
        assert not (user.state / "embedded").exists()


def test_a_start_that_fails_says_why_and_is_not_tried_by_each_hook(user: User) -> None:
    assert user.hook(max_bytes="many") == ""
    assert "ended with status 2: SPILLGATE_MAX_BYTES" in user.log()
    assert user.hook(max_bytes="many") == ""
    assert "none could be started" in user.log().splitlines()[-1]
    # A person who asks has the setting corrected.
    assert "Nothing is stored" in user.run("ls").stdout
    assert "session-" in user.hook()


@pytest.mark.anyio
async def test_serve_takes_the_place_of_one_that_a_command_has_started(user: User) -> None:
    handle = handle_in(user.hook())
    process, _ = user.service()
    with Services(user.home) as services:
        served = await services.start(user.state)
        user.until_gone(process)
        assert "ended the service that a command had started" in served.log.read_text()
        assert user.run("lines", handle, "1").returncode == 0
        assert "session-" in user.hook(2)
        assert user.services() == []


def test_it_ends_once_it_was_idle_for_so_long() -> None:
    now = [0.0]
    watch = IdleWatch(1800, clock=lambda: now[0])
    now[0] = 1799
    assert not watch.is_over(0, is_busy=False)
    now[0] = 1801
    assert watch.is_over(0, is_busy=False)
    assert not watch.is_over(1, is_busy=False)
    now[0] = 5000
    assert not watch.is_over(1, is_busy=True)
    now[0] = 6799
    assert not watch.is_over(1, is_busy=False)
    now[0] = 6800
    assert watch.is_over(1, is_busy=False)


SOON = "import beside.embedded as own; own.IDLE_SECONDS = 1; import beside.main as main; main.main()"


def test_a_real_one_ends_and_the_next_call_finds_what_it_stored(user: User) -> None:
    handle = handle_in(user.hook(command=("-c", SOON), is_forked=False))
    user.until_gone(user.service()[0])
    assert not (user.state / "embedded" / "socket").exists()
    # A command that asks starts one, too.
    shown = user.run("lines", handle, "1")
    assert (shown.returncode, shown.stderr) == (0, "")
