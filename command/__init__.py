"""The programs that speak to a running service: hooks, shell commands. `http1` opens the connections.

An agent waits for each of them, so they import the standard library and `domain` alone, not the service.
"""
