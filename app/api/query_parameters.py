"""What routes ask of a request alike: known query parameters, a JSON body, whole numbers in it."""

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BeforeValidator

from domain.errors import InvalidField, UnsupportedMedia, unknown_key


def _integral(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


INTEGRAL = BeforeValidator(_integral)
"""Last in an `Annotated[int, Field(strict=True)]`: 7.0 is a whole number in JSON; "7" and true are not."""


def known_only(request: Request) -> None:
    """Raises InvalidField for a query parameter that the route does not have. Were it ignored, a misspelt
    filter would answer everything."""
    route = request.scope.get("route")
    if not request.scope["query_string"] or not isinstance(route, APIRoute):
        return
    known = sorted(_names(route.dependant))
    for name in request.query_params:
        if name not in known:
            raise InvalidField(f"In the query, {unknown_key(name, known)}.")


def json_only(request: Request) -> None:
    """Raises UnsupportedMedia for a body of another type. A body without Content-Type is taken for JSON."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or route.body_field is None:
        return
    media = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        raise UnsupportedMedia("Send the body as JSON, with Content-Type: application/json.")


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)
