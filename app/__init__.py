"""HTTP, settings and wiring: the only room that knows them."""

from domain import __version__

__all__ = ["__version__"]
