"""The commands that need the service itself. `main` has `serve`; each other has a function `run`.

Commands that only speak to a running service are in `beside`, which starts without this package.
"""
