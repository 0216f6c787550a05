"""The service inside this process, on a Unix socket, where other relays of the user find it, too."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domain.errors import ConfigError

if TYPE_CHECKING:
    from app.edge.server import Server

_SWITCH_SECONDS = 0.0005
"""Threads of the relay wait so long for a thread of the service; Python's default is ten times as much."""


class EmbeddedService(threading.Thread):
    """Serves until `stop`. Store and settings are those of `spillgate serve`, but it listens on the socket
    alone, and exports no accounting."""

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
        from app.operations.policy_files import load_policies
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

    def stop(self, seconds: float) -> None:
        """Ends it; requests that are under way have so many seconds."""
        if self._server is not None:
            self._server.handle_exit(signal.SIGTERM, None)
            self.join(seconds)
