"""HTTP, settings and wiring: the only room that knows them."""
