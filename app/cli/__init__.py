"""The commands that need the service itself: a function `run` for each.

Commands that only speak to a running service are in `command`, which starts without this package.
"""
