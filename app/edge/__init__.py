"""The edge: sockets, connections, admission and request bodies, before any route."""
