"""One file per resource: a route parses, calls one function, and answers.

The traits of a route (roles, errors, whether it writes) are what admission and the OpenAPI document are built
from.
"""
