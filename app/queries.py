"""Query parameters that a route does not know are refused: a misspelt filter would answer everything."""

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from domain.errors import InvalidField


def known_only(request: Request) -> None:
    """Raises InvalidField, which names the parameters that are known and not the one that is not."""
    route = request.scope.get("route")
    if not request.scope["query_string"] or not isinstance(route, APIRoute):
        return
    known = frozenset(_names(route.dependant))
    if not known.issuperset(request.query_params):
        names = ", ".join(sorted(known)) or "none"
        raise InvalidField(f"A query parameter is not known here. Known are: {names}.")


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)
