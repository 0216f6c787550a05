"""One file per resource: a route parses, calls one function, and answers.

Each route states its traits (roles, errors, whether it writes), from which admission and the OpenAPI document
are built.
"""
