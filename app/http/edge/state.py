"""What the edge and the routes share of one service. It is `state` of the application."""

import asyncio

from app.http.api.request_body import BodyGate
from app.http.edge.address_file import Announcement
from app.http.edge.credentials import open_credentials
from app.http.edge.rates import RequestRates
from app.http.edge.read_ahead import ReadAhead
from app.operations.supervisor import Supervisor
from app.runtime import Runtime
from app.settings import Settings
from domain.errors import ConfigError


class ServiceState:
    """What lives as long as the service. `runtime` is set at its start. `address` is where it listens,
    `metrics_port` that of a listener for metrics alone. `announcement` is what the address file says of the
    service. `stopping` is set when requests that are still under way must end."""

    runtime: Runtime

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError."""
        self.draining = False
        self.metrics_port: int | None = None
        self.announcement = Announcement("")
        self.address = ""
        self.stopping = asyncio.Event()
        self.config_error: ConfigError | None = None
        self.supervisor = Supervisor(lambda name: self.runtime.metrics.task_failed(name))
        self.gate = BodyGate(settings.max_body_bytes)
        self.read_ahead = ReadAhead()
        self.keys = open_credentials(settings)
        self.rates = RequestRates(lambda tenant: self.runtime.quota_of(tenant))
