"""This machine, by the standard library: where a service listens, connections, files, descriptors, tables."""
