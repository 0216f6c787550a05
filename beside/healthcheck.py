"""`spillgate healthcheck`: asks the service of these settings whether it is ready."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing

from beside.client import Refused, ServiceClient, ServiceError, ServiceRequest
from domain.errors import ConfigError
from machine.addresses import Address

_SECONDS = 5
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""The loopback address of a service that listens on all addresses."""


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 if the service is ready, else 1. Raises ConfigError."""
    parser = argparse.ArgumentParser(
        prog="spillgate healthcheck", description="Exit 0 if a running service is ready, else 1."
    )
    parser.add_argument(
        "--host",
        help="address of the service (default: SPILLGATE_HOST)",
        default=os.environ.get("SPILLGATE_HOST"),
    )
    parser.add_argument(
        "--port",
        help="port of the service (default: SPILLGATE_PORT)",
        default=os.environ.get("SPILLGATE_PORT"),
    )
    parser.add_argument(
        "--uds",
        help="Unix socket of the service (default: SPILLGATE_UDS)",
        default=os.environ.get("SPILLGATE_UDS"),
    )
    options = parser.parse_args(arguments)
    host, port = options.host or "127.0.0.1", options.port or "8377"
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ConfigError("SPILLGATE_PORT must be a number from 0 to 65535.")
    with closing(ServiceClient(Address(_ANY.get(host, host), int(port), path=options.uds or ""))) as service:
        try:
            service.request(ServiceRequest("GET", "/readyz", headers={"Host": _host()}, seconds=_SECONDS))
        except ServiceError as error:
            why = error.status if isinstance(error, Refused) else f"no answer from {service.address}"
            print(f"not ready: {why}", file=sys.stderr)
            return 1
    return 0


def _host() -> str:
    """A name that the service answers to."""
    names = [name.strip() for name in os.environ.get("SPILLGATE_ALLOWED_HOSTS", "").split(",")]
    return "localhost" if "*" in names else names[0] or "localhost"
