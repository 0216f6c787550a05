"""The service behind a relay: one that runs, or one that is started in this process if none does."""

import fcntl
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from command.service import (
    Answer,
    Refused,
    Request,
    Service,
    ServiceError,
    Unreachable,
    api_key,
    connect,
    embedded_address,
    embedded_directory,
)
from domain.errors import ConfigError

if TYPE_CHECKING:
    from app.edge.server import Server

_SWITCH_SECONDS = 0.0005
"""Threads of the relay wait so long for a thread of the service; Python's default is ten times as much."""

START_SECONDS = 15.0
"""The longest wait for a service that starts in this process or in another one."""

PAUSE_SECONDS = 30.0
"""After a failure that took long, results pass for so long before the service is asked again."""

_STOP_SECONDS = 1.0
_POLL_SECONDS = 0.05


class EmbeddedService(threading.Thread):
    """Serves until `stop`, other relays of the user, too. Store and settings are those of `spillgate serve`,
    but it listens on the socket alone, and exports no accounting."""

    def __init__(self, socket: Path) -> None:
        super().__init__(name="embedded service", daemon=True)
        self._socket = socket
        self._server: Server | None = None
        self.settled = threading.Event()
        """Set once connections are accepted, or it has failed."""
        self.error: str | None = None
        """Why it does not serve; None while it starts and serves."""

    def run(self) -> None:
        try:
            status = self._serve()
            self.error = f"It ended with status {status}."
        except ConfigError as error:
            self.error = str(error).replace("SPILLGATE_UDS", f"The socket {self._socket}")
        finally:
            # Of any other exception Python prints the traceback.
            self.error = self.error or "It ended with a fault."
            self.settled.set()

    def _serve(self) -> int:
        sys.setswitchinterval(_SWITCH_SECONDS)
        from app.edge.server import serve
        from app.main import create_app
        from app.operations.policy_file import load_policies
        from app.settings import load_settings

        # stdout belongs to the client, and nothing but the socket may be listened on.
        given: dict[str, Any] = {"uds": self._socket, "accounting_export": None, "metrics_address": None}
        if "SPILLGATE_LOG_LEVEL" not in os.environ:
            # Clients show what an MCP server writes to stderr.
            given["log_level"] = "error"
        settings = load_settings(**given)
        load_policies(settings)
        app = create_app(settings)
        return serve(app, settings, app.refused, app.state.supervisor, self._listening)

    def _listening(self, server: "Server") -> None:
        self._server = server
        self.settled.set()

    def stop(self) -> None:
        """Ends it; requests that are under way have a second."""
        if self._server is not None:
            self._server.handle_exit(signal.SIGTERM, None)
            self.join(_STOP_SECONDS)


class Backend:
    """Safe to use from several threads."""

    def __init__(self, may_embed: bool | None = None) -> None:
        """`may_embed`: True for the embedded service alone, None for it if none runs and the address of the
        service is on loopback, False for never."""
        self._config_error = ""
        try:
            if may_embed:
                self._service = Service(embedded_address(), api_key())
            else:
                self._service = Service.from_environment()
        except ConfigError as error:
            self._service = Service(embedded_address())
            self._config_error = str(error)
        self._may_embed = self._service.address.is_loopback if may_embed is None else may_embed
        self._starting = threading.Lock()
        self._embedded: EmbeddedService | None = None
        self._lock = -1
        self._paused_until = 0.0
        self._failed = ""
        self.is_ready = False
        """True once the service has answered."""

    def warm_up(self) -> None:
        """Looks for the service, or starts it, so that the first result need not wait."""

        def ask() -> None:
            with suppress(ServiceError):
                self.request(Request("GET", "/livez"))

        with suppress(RuntimeError):  # No thread can be started: the first result waits.
            threading.Thread(target=ask, daemon=True).start()

    def request(self, request: Request) -> Answer:
        """Returns the answer of the service. Raises ServiceError."""
        if self._config_error:
            raise ServiceError(self._config_error)
        if time.monotonic() < self._paused_until:
            raise ServiceError(self._failed)
        try:
            answer = self._answer(request)
        except Refused:
            raise
        except ServiceError as error:
            # A connection that is refused costs no time: it is tried with each result.
            if self._may_embed or not isinstance(error, Unreachable):
                self._failed, self._paused_until = str(error), time.monotonic() + PAUSE_SECONDS
            raise
        self.is_ready = True
        return answer

    def _answer(self, request: Request) -> Answer:
        try:
            return self._service.request(request)
        except Unreachable:
            if not self._may_embed:
                raise
        self._start()
        try:
            return self._service.request(request)
        except Unreachable:
            raise self._failure() from None

    def _start(self) -> None:
        """Returns once a service listens on the socket, here or in another process. Raises ServiceError."""
        if not self._starting.acquire(timeout=START_SECONDS):
            raise ServiceError("The service takes too long to start.")
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _is_listening():
                if time.monotonic() > deadline:
                    raise ServiceError("The service takes too long to start.")
                if self._try_lock():
                    self._embed(deadline)
                else:
                    time.sleep(_POLL_SECONDS)
        finally:
            self._starting.release()

    def _try_lock(self) -> bool:
        """Returns whether this process has the lock, and so may serve the store. It keeps the lock until it
        ends. Raises ServiceError."""
        directory = Path(embedded_directory())
        try:
            if self._lock < 0:
                for one in (directory.parent, directory):
                    one.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ServiceError(f"{directory}: {error.strerror}.") from None
        return True

    def _embed(self, deadline: float) -> None:
        """Returns once the service of this process accepts connections, or at the deadline. A service that
        starts later than that is waited for again by the next result. Raises ServiceError."""
        if self._embedded is None or not self._embedded.is_alive():
            self._embedded = EmbeddedService(Path(embedded_address().path))
            try:
                self._embedded.start()
            except RuntimeError as error:
                self._embedded = None
                raise ServiceError(f"{error}.") from None
        is_settled = self._embedded.settled.wait(deadline - time.monotonic())
        if is_settled and not _is_listening():
            raise self._failure()

    def _failure(self) -> ServiceError:
        """Why the service of this process, or of another, cannot be used. Ends the service of this process:
        another process can start its own then."""
        embedded = self._embedded
        if embedded is None:
            return Unreachable("The service of another process has ended.")
        embedded.stop()
        embedded.join(_STOP_SECONDS)
        if not embedded.is_alive():
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        return ServiceError(
            f"No service runs, and none can be started here: {embedded.error or 'It refuses connections.'}"
        )

    def close(self) -> None:
        """Ends the service of this process. Another relay starts its own when it needs one."""
        self._service.close()
        if self._embedded is not None:
            self._embedded.stop()


def _is_listening() -> bool:
    try:
        connect(embedded_address(), 1.0).close()
    except OSError:
        return False
    return True
