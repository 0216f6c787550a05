"""The programs that speak to a running service: hooks and commands of the shell.

An agent waits for each of them, so they import the standard library and `domain` alone, not the service.
"""
