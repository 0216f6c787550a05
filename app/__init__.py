"""HTTP, settings and wiring: the only room that knows them."""

__version__ = "0.1.0"
