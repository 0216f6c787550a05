"""HTTP, settings and wiring: the only room that knows them."""

from domain import __version__

__all__ = ["DEFAULT_URL", "__version__"]

DEFAULT_URL = "http://127.0.0.1:8377"
"""Where commands find a running service if SPILLGATE_URL does not say."""
