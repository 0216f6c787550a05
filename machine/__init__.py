"""Standard library only: the service's address, HTTP connections, files, file descriptors, text tables."""
