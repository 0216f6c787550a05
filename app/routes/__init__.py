"""One file per resource: a route parses, calls one function, and answers."""
