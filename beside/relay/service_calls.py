"""The service behind a relay. Relays of one user share it, and start it where none runs."""

import threading
import time
from contextlib import suppress

from beside.client import Refused, ServiceAnswer, ServiceClient, ServiceError, ServiceRequest, Unreachable
from domain.errors import ConfigError
from machine.addresses import OWN

PAUSE_SECONDS = 30.0
"""After a failure that took long, results pass for this time without asking the service."""


class GoverningService:
    """Safe to use from several threads."""

    def __init__(self, may_start: bool | None = None) -> None:
        """`may_start` is that of `ServiceClient.from_environment`."""
        self._config_error = ""
        try:
            self._service = ServiceClient.from_environment(may_start)
        except ConfigError as error:
            self._service = ServiceClient(OWN)
            self._config_error = str(error)
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
            return self._service.request(request)
        except Refused:
            raise
        except ServiceError as error:
            # A connection that is refused costs no time: it is tried with each result.
            if self._service.may_start or not isinstance(error, Unreachable):
                self._failed, self._paused_until = str(error), time.monotonic() + PAUSE_SECONDS
            raise

    def close(self) -> None:
        self._service.close()
