"""The service behind a relay: one that runs, or one that the relay starts if none does."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from command.client import (
    Refused,
    ServiceAnswer,
    ServiceClient,
    ServiceError,
    ServiceRequest,
    Unreachable,
    api_key,
    embedded_address,
    embedded_directory,
)
from command.http1 import Connection
from domain.errors import ConfigError

START_SECONDS = 15.0
"""The longest wait for a service that starts."""

PAUSE_SECONDS = 30.0
"""After a failure that took long, results pass for so long before the service is asked again."""

_POLL_SECONDS = 0.05
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_FOR_RELAYS = ("SPILLGATE_ACCOUNTING_EXPORT", "SPILLGATE_METRICS_ADDRESS")
"""Settings of an operator's service. This one listens on its socket alone, and exports nothing."""


class GoverningService:
    """Safe to use from several threads."""

    def __init__(self, may_start: bool | None = None) -> None:
        """`may_start`: True for the relay's own service alone, None for it if none runs and the address of
        the service is on loopback, False for never."""
        self._config_error = ""
        try:
            if may_start:
                self._service = ServiceClient(embedded_address(), api_key())
            else:
                self._service = ServiceClient.from_environment()
        except ConfigError as error:
            self._service = ServiceClient(embedded_address())
            self._config_error = str(error)
        self._may_start = self._service.address.is_loopback if may_start is None else may_start
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._paused_until = 0.0
        self._failed = ""

    @property
    def identity(self) -> str:
        """The same for relays that ask one service with one key."""
        return self._service.identity

    def warm_up(self) -> None:
        """Looks for the service, or starts it, so that the first result need not wait."""

        def ask() -> None:
            with suppress(ServiceError):
                self.request(ServiceRequest("GET", "/livez"))

        with suppress(RuntimeError):  # No thread can be started: the first result waits.
            threading.Thread(target=ask, daemon=True).start()

    def request(self, request: ServiceRequest) -> ServiceAnswer:
        """Returns the answer of the service. Raises ServiceError."""
        if self._config_error:
            raise ServiceError(self._config_error)
        if time.monotonic() < self._paused_until:
            raise ServiceError(self._failed)
        try:
            return self._answer(request)
        except Refused:
            raise
        except ServiceError as error:
            # A connection that is refused costs no time: it is tried with each result.
            if self._may_start or not isinstance(error, Unreachable):
                self._failed, self._paused_until = str(error), time.monotonic() + PAUSE_SECONDS
            raise

    def _answer(self, request: ServiceRequest) -> ServiceAnswer:
        """Starts a service where none runs, also in place of one that is ending: that of a relay ends with
        it. Raises ServiceError."""
        deadline = time.monotonic() + START_SECONDS
        has_started = False
        while True:
            try:
                return self._service.request(request)
            except Unreachable:
                if not self._may_start or has_started:
                    raise
                self._start()
                has_started = True
            except Refused as error:
                if not self._may_start or error.code != "draining" or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)

    def _start(self) -> None:
        """Returns once a service listens on the socket, this relay's or another's. Raises ServiceError."""
        deadline = time.monotonic() + START_SECONDS
        if not self._starting.acquire(timeout=START_SECONDS):
            raise ServiceError("The service takes too long to start.")
        try:
            while not _is_listening():
                if time.monotonic() > deadline:
                    raise ServiceError("The service takes too long to start.")
                if self._process is None:
                    self._process = _started()
                elif (status := self._process.poll()) is not None:
                    self._process = None
                    raise ServiceError(
                        f"No service runs, and the one that was started ended with status {status}."
                    )
                time.sleep(_POLL_SECONDS)
        finally:
            self._starting.release()

    def close(self) -> None:
        """Ends the service of this relay. Another relay starts its own when it needs one."""
        self._service.close()
        if self._process is not None:
            self._process.terminate()


def _started() -> "subprocess.Popen[bytes] | None":
    """A service that ends when this process does, because its stdin then ends. None if another process has
    the lock, and so serves the store. Raises ServiceError."""
    directory = Path(embedded_directory())
    try:
        for one in (directory.parent, directory):
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The service holds the lock as long as it runs, also when the relay is killed.
        lock = os.open(directory / "lock", _LOCK, 0o600)
    except OSError as error:
        why = "`lock` is a link. Remove it" if error.errno == errno.ELOOP else error.strerror
        raise ServiceError(f"{directory}: {why}.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        inherited = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_RELAYS}
        # Clients show what an MCP server writes to stderr.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "app.cli.main", "serve", "--until-stdin-ends"],
            env={"SPILLGATE_LOG_LEVEL": "error", **inherited, "SPILLGATE_UDS": embedded_address().path},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(lock,),
            process_group=0,
        )
    except BlockingIOError:
        return None
    except OSError as error:
        raise ServiceError(f"{directory}: {error.strerror}.") from None
    finally:
        os.close(lock)


def _is_listening() -> bool:
    try:
        Connection(embedded_address(), 1.0).close()
    except OSError:
        return False
    return True
