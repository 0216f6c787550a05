"""`spillgate service start|stop|status`: the user's own service, which hooks and relays start."""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import closing

from beside import embedded
from beside.client import ServiceClient, ServiceError, ServiceRequest
from machine.addresses import OWN

_SECONDS = 5


def main(arguments: Sequence[str]) -> int:
    """Exit status 0; for `status`, 1 if no service answers; 1 if the service does not start or end. Raises
    ConfigError."""
    parser = argparse.ArgumentParser(
        prog="spillgate service", description="Start and stop the service that hooks and relays start."
    )
    parser.add_argument(
        "action", choices=tuple(_ACTIONS), help="`start` also has the service listen at a port"
    )
    options = parser.parse_args(arguments)
    try:
        return _ACTIONS[options.action]()
    except embedded.StartFailed as error:
        print(f"spillgate service: {error}", file=sys.stderr)
        return 1


def _status() -> int:
    is_running, line = governing()
    print(line)
    return int(not is_running)


def _start() -> int:
    url = started_url()
    print(f"The service listens at {url}. Its dashboard: {url}/ui")
    return 0


def started_url() -> str:
    """Where the user's own service listens at a port. If none does, the service that hooks start is started
    with one, in place of one that listens on its socket alone. Raises StartFailed."""
    address = embedded.port_address()
    if address is None:
        embedded.stop()
        embedded.start(at_port=True)
        address = embedded.port_address()
    if address is None:
        raise embedded.StartFailed("Another program has started the service without a port. Try again.")
    return str(address)


def _stop() -> int:
    print("Stopped." if embedded.stop() else "No service that a command has started runs.")
    return 0


_ACTIONS: dict[str, Callable[[], int]] = {"start": _start, "stop": _stop, "status": _status}


def governing() -> tuple[bool, str]:
    """Whether a service answers now, and a line that says so. Starts none. Raises ConfigError."""
    with closing(ServiceClient.from_environment(False)) as service:
        try:
            service.request(ServiceRequest("GET", "/readyz", seconds=_SECONDS))
        except ServiceError as error:
            if service.address == OWN and embedded.may_start():
                return False, "No service runs: the next result that a hook or relay gets starts one."
            return False, f"Results are not governed now. {error}"
        return True, f"Results are governed now, by the service at {service.reached}."
