"""The edge: sockets, connections, keys and admission, before any route.

Host, key, rate and size are checked before a body is read, so that a request that is refused costs little
memory and no work of a route.
"""
