"""The nouns of Spillgate: frozen values, enums, ports and errors. Imports no other room.

Every room imports it, and commands that must start fast import parts of it: no framework, no I/O, no clock.
"""

__version__ = "0.2.0"

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
