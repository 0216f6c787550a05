"""The service that a command starts for its user where none runs: one process for all agents of the user.

It listens on a Unix socket beside its store alone, unless a person has it listen on a port too. It holds a
lock as long as it runs, and ends when no request came for half an hour. A newer version of Spillgate takes
the place of an older one; an older one uses the newer one.
"""

import errno
import os
import re
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from domain import __version__
from domain.errors import ConfigError
from machine.addresses import OWN, Address, announced, directory, socket_path
from machine.descriptors import try_lock
from machine.http1 import FAILURES, Connection, Connections, HttpRequest

if TYPE_CHECKING:
    from subprocess import Popen

START_SECONDS = 15.0
"""The longest wait for a service that starts."""

STOP_SECONDS = 30.0
"""The longest wait for a service that is to end: it first answers the requests that it has."""

IDLE_SECONDS = 1800

ANSWER_SECONDS = 2.0
"""The longest wait for a proof."""

MAX_LOG_BYTES = 1 << 20

_POLL_SECONDS = 0.02
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC
_OPERATORS_OWN = ("SPILLGATE_ACCOUNTING_EXPORT", "SPILLGATE_METRICS_ADDRESS", "SPILLGATE_UDS")
"""Settings of an operator's service. This one exports nothing, and has a socket of its own."""

_started: "list[Popen[bytes]]" = []
"""The services that this process has started. It has to read their exit status."""


class StartFailed(Exception):
    """The service does not run. The message says why, in a sentence."""


def may_start() -> bool:
    """Returns the value of SPILLGATE_AUTO_START. Raises ConfigError."""
    text = os.environ.get("SPILLGATE_AUTO_START", "true").lower()
    if text not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise ConfigError("SPILLGATE_AUTO_START must be true or false.")
    return text in ("true", "1", "yes", "on")


def start(seconds: float | None = None, retry_seconds: float = 0.0, *, at_port: bool = False) -> None:
    """Returns once a service of this version or a newer one answers. One that is started listens at the port
    of its settings, too, if `at_port`. `seconds` is START_SECONDS by default. After a start that failed, none
    is tried for `retry_seconds`. Raises StartFailed."""
    deadline = time.monotonic() + (START_SECONDS if seconds is None else seconds)
    process = None
    if is_outdated():
        stop(deadline - time.monotonic())
    while not is_listening():
        if process is not None and (status := process.poll()) is not None:
            _started.remove(process)
            ended = f"No service runs, and the one that was started ended with status {status}"
            raise _failed(ended, is_noted=not at_port)
        if time.monotonic() > deadline:
            raise StartFailed("The service takes too long to start.")
        if process is None:
            _check_failure(retry_seconds)
            process = _spawned(at_port)
        time.sleep(_POLL_SECONDS)
    with suppress(OSError):
        os.unlink(_path("failed"))


def stop(seconds: float = STOP_SECONDS) -> bool:
    """Ends the service if it runs, and waits until it has. Returns whether it ran. Raises StartFailed."""
    process, _ = _record()
    lock = _opened_lock(os.O_RDWR)
    if lock is None or process is None:
        return False
    deadline, was_running = time.monotonic() + seconds, False
    try:
        while not try_lock(lock):
            if time.monotonic() > deadline:
                raise StartFailed(f"The service with the process id {process} does not end.")
            if not was_running:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGTERM)
            was_running = True
            time.sleep(_POLL_SECONDS)
    finally:
        os.close(lock)
    return was_running


def is_running() -> bool:
    """Returns whether a process has the lock."""
    lock = _opened_lock(os.O_RDWR)
    if lock is None:
        return False
    try:
        return not try_lock(lock)
    finally:
        os.close(lock)


def is_outdated() -> bool:
    """Returns whether a service of an older version runs."""
    version = _record()[1]
    return version is not None and _numbers(version) < _numbers(__version__) and is_running()


def is_listening() -> bool:
    """Whether the user's own service answers: it listens already while it opens its store, which may fail."""
    connections = Connections(OWN)
    try:
        connections.exchange(HttpRequest("GET", "/livez"), seconds=1.0)
    except FAILURES:
        return False
    finally:
        connections.close()
    return True


def port_address() -> Address | None:
    """Where the user's own service listens at a port, which it has proved; None if it does not."""
    for address in announced():
        if address.secret:
            try:
                Connection(address, ANSWER_SECONDS).close()
            except OSError:
                continue
            return address
    return None


def _path(name: str) -> str:
    return os.path.join(directory(), name)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _record() -> tuple[int | None, str | None]:
    """Process and version of the service that had the lock last; None if that is not known."""
    lock = _opened_lock(os.O_RDONLY)
    if lock is None:
        return None, None
    try:
        words = os.read(lock, 200).decode("ascii", "replace").split()
    finally:
        os.close(lock)
    if len(words) != 2 or not words[0].isdigit():
        return None, None
    return int(words[0]), words[1]


def _opened_lock(flags: int) -> int | None:
    """None if no service was started here, or the file cannot be read."""
    try:
        return os.open(_path("lock"), flags | _FILE)
    except OSError:
        return None


def _spawned(at_port: bool) -> "Popen[bytes] | None":
    """A service that runs on when this process ends. None if another process has the lock, and so serves the
    store. Raises StartFailed."""
    folder = directory()
    lock = log = -1
    try:
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        # The service inherits the lock, and so holds it as long as it runs.
        lock = os.open(_path("lock"), _LOCK, 0o600)
        if not try_lock(lock):
            return None
        os.truncate(lock, 0)
        log = _opened_log()
        process = _popen(at_port, lock, log)
        os.pwrite(lock, f"{process.pid} {__version__}\n".encode(), 0)
        return process
    except OSError as error:
        why = "`lock` is a link. Remove it" if error.errno == errno.ELOOP else error.strerror
        raise StartFailed(f"{folder}: {why}.") from None
    finally:
        for file in (lock, log):
            if file >= 0:
                os.close(file)


def _opened_log() -> int:
    """Raises OSError."""
    path = _path("service.log")
    with suppress(FileNotFoundError):
        if os.path.getsize(path) > MAX_LOG_BYTES:
            os.replace(path, f"{path}.1")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _FILE, 0o600)


def _popen(at_port: bool, lock: int, log: int) -> "Popen[bytes]":
    """Raises OSError."""
    import subprocess  # Takes 5 ms, which no hook waits for where a service runs.

    inherited = {name: value for name, value in os.environ.items() if name not in _OPERATORS_OWN}
    listening = {} if at_port else {"SPILLGATE_UDS": socket_path()}
    command = [sys.executable, "-P", "-m", "app.cli.main", "serve", "--until-idle", str(IDLE_SECONDS)]
    process = subprocess.Popen(  # noqa: S603
        command,
        env={"SPILLGATE_LOG_LEVEL": "warning", **inherited, **listening},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        pass_fds=(lock,),
        start_new_session=True,
    )
    _started.append(process)
    return process


def _failed(what: str, is_noted: bool) -> StartFailed:
    """With the last line of the log, which is also kept for the next attempts if it `is_noted`."""
    line = ""
    with suppress(OSError):
        with open(_path("service.log"), "rb") as log:
            log.seek(max(0, os.path.getsize(log.name) - 1000))
            last = log.read().decode("utf-8", "replace").rstrip().rpartition("\n")[2]
        line = last.removeprefix("spillgate: ")
        if is_noted:
            noted = os.open(_path("failed"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FILE, 0o600)
            with open(noted, "w") as file:
                file.write(line)
    return StartFailed(f"{what}: {line}" if line else f"{what}.")


def _check_failure(seconds: float) -> None:
    """Raises StartFailed if a start failed less than so many seconds ago."""
    with suppress(OSError):
        ago = time.time() - os.path.getmtime(_path("failed"))
        if 0 <= ago < seconds:
            with open(_path("failed"), encoding="utf-8", errors="replace") as file:
                raise StartFailed(
                    f"No service runs, and none could be started {ago:.0f} s ago: {file.read()}"
                )
