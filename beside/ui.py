"""`spillgate ui`: opens the dashboard in a browser, that of the user's own service or of SPILLGATE_URL."""

import argparse
import os
import sys
import webbrowser
from collections.abc import Sequence

from beside import embedded
from beside.client import service_address
from beside.service_command import started_url
from domain.errors import ConfigError


def main(arguments: Sequence[str]) -> int:
    """Exit status 1 if no service can be started. Raises ConfigError."""
    parser = argparse.ArgumentParser(
        prog="spillgate ui",
        description="Open the dashboard in a browser. If no service listens at a port, one is started.",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    options = parser.parse_args(arguments)
    try:
        page = f"{_url()}/ui"
    except embedded.StartFailed as error:
        print(f"spillgate ui: {error}", file=sys.stderr)
        return 1
    print(page)
    if not options.no_browser and _has_browser():
        webbrowser.open(page)
    return 0


def _url() -> str:
    """Raises ConfigError, StartFailed."""
    address = service_address()
    if not address.path:
        return started_url() if address.is_own else f"{address}{address.prefix}"
    raise ConfigError("A browser cannot use a Unix socket. Unset SPILLGATE_URL and SPILLGATE_UDS.")


def _has_browser() -> bool:
    """Whether there is a screen. A browser in the terminal shows nothing of the page."""
    names = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in names)
