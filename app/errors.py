"""Errors as problem+json (RFC 9457): one table from the error tree to HTTP, and the handlers that use it."""

from collections.abc import Callable, Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from domain import errors

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = {"Retry-After": "1"}
CLIENT_GONE = 499

_TABLE: dict[type[errors.SpillgateError], tuple[int, str, Mapping[str, str]]] = {
    errors.BadRequest: (400, "Malformed request", {}),
    errors.Unauthorized: (401, "API key needed", {"WWW-Authenticate": "Bearer"}),
    errors.Forbidden: (403, "Not allowed", {}),
    errors.NotFound: (404, "Not found", {}),
    errors.Conflict: (409, "In flight", {}),
    errors.Gone: (410, "Ended or expired", {}),
    errors.TooManySessions: (429, "Too many sessions", {}),
    errors.BodyTooLarge: (413, "Body too large", {}),
    errors.UnsupportedMedia: (415, "Unsupported media type", {}),
    errors.RangeNotSatisfiable: (416, "Range not satisfiable", {}),
    errors.InvalidField: (422, "Invalid field", {}),
    errors.NotQueryable: (422, "Not queryable", {}),
    errors.QueryTooCostly: (422, "Query too costly", {}),
    errors.SpillgateError: (500, "Internal error", {}),
    errors.Incomplete: (502, "Incomplete", {}),
    errors.Overloaded: (503, "Overloaded", RETRY_AFTER),
    errors.Draining: (503, "Shutting down", RETRY_AFTER),
    errors.StorageError: (503, "Store unavailable", RETRY_AFTER),
    errors.StoreFull: (507, "Store full", {}),
}

_STATUS_DETAILS = {
    400: "The body could not be read as what its Content-Type says.",
    404: "There is no such route. GET /docs lists them.",
    405: "This route does not take that method; the Allow header lists those it takes.",
    500: "Something failed on our side; the log says where. Keep your copy and try again.",
}
_STATUS_NAMES = {400: "malformed", 500: "internal_error"}

_WRITE_ROUTES = frozenset({("POST", "/results")})


class Problem(msgspec.Struct, omit_defaults=True):
    """RFC 9457 members and ours. `stored: false` tells the agent that it still holds the only copy."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    # Nullable only so that `false`, being no default, is always written.
    retryable: bool | None = None
    stored: bool | None = None
    errors: list[dict[str, str]] | None = None


_encode = msgspec.json.Encoder().encode


def body_of(
    status: int,
    title: str,
    code: str,
    detail: str,
    instance: str = "",
    retryable: bool = False,
    stored: bool | None = None,
    rules: list[dict[str, str]] | None = None,
) -> bytes:
    """The JSON of one problem."""
    kind = f"/docs/errors#{code}"
    return _encode(Problem(kind, title, status, detail, instance, code, retryable, stored, rules))


def stored_of(method: str, path: str) -> bool | None:
    """What a failed request's problem says in `stored`: False where it was to store something, else None."""
    return False if (method, path) in _WRITE_ROUTES else None


def _answer_to(kind: type[errors.SpillgateError]) -> tuple[int, str, Mapping[str, str]]:
    return next(_TABLE[parent] for parent in kind.__mro__ if parent in _TABLE)


def answered_with(kind: type[errors.SpillgateError]) -> tuple[int, str]:
    """Status and title of an error's answer."""
    return _answer_to(kind)[:2]


def problem(error: errors.SpillgateError, instance: str, stored: bool | None = None) -> Response:
    """The answer to an error of ours. `instance` is a path template: never what the caller sent."""
    status, title, headers = _answer_to(type(error))
    if isinstance(error, errors.RangeNotSatisfiable):
        headers = {"Content-Range": f"bytes */{error.size}"}
    body = body_of(status, title, error.code, error.detail, instance, error.retryable, stored)
    return Response(body, status, headers, MEDIA_TYPE)


def status_code_name(status: int) -> str:
    """The `code` of a bare status."""
    return _STATUS_NAMES.get(status) or HTTPStatus(status).phrase.lower().replace(" ", "_")


def problem_of_status(
    status: int, instance: str, stored: bool | None, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer to what the framework refuses by a bare status."""
    title = HTTPStatus(status).phrase
    detail = _STATUS_DETAILS.get(status, f"{title}.")
    body = body_of(status, title, status_code_name(status), detail, instance, status >= 500, stored)
    return Response(body, status, headers, MEDIA_TYPE)


def template_of(request: Request) -> str:
    """The path template of the route that matched, `/results/{handle}`; "" when none did."""
    path: str | None = getattr(request.scope.get("route"), "path_format", None)
    return (path or "").replace(":path}", "}")


def _ignore(code: str) -> None:
    pass


def install(app: FastAPI, refused: Callable[[str], None] = _ignore) -> "Handlers":
    """Registers the handlers; each error's code is told to `refused`."""
    handlers = Handlers(app, refused)
    app.add_exception_handler(errors.SpillgateError, handlers.on_ours)
    app.add_exception_handler(RequestValidationError, handlers.on_validation)
    app.add_exception_handler(HTTPException, handlers.on_status)
    app.add_exception_handler(ClientDisconnect, handlers.on_gone)
    app.add_exception_handler(Exception, handlers.on_failure)
    return handlers


class Handlers:
    """One method an exception class; each answers a problem."""

    def __init__(self, app: FastAPI, refused: Callable[[str], None]) -> None:
        self._app = app
        self._refused = refused

    async def on_ours(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.SpillgateError)
        self._refused(error.code)
        instance = template_of(request)
        return problem(error, instance, stored_of(request.method, instance))

    async def on_status(self, request: Request, error: Exception) -> Response:
        # FastAPI wraps whatever is raised while it reads a body.
        cause = error.__cause__
        if isinstance(cause, errors.SpillgateError):
            return await self.on_ours(request, cause)
        if isinstance(cause, ClientDisconnect):
            return await self.on_gone(request, cause)
        assert isinstance(error, HTTPException)
        headers = error.headers
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            methods = self._methods(request.scope["path"])
            headers = {"Allow": ", ".join(sorted(methods))} if methods else headers
        return self._of_status(request, error.status_code, headers)

    def _methods(self, path: str) -> set[str]:
        """Of every route that the path matches: Starlette names those of the first alone."""
        routes: list[APIRoute] = getattr(self._app.state, "routes", [])
        return {name for route in routes if route.path_regex.match(path) for name in route.methods or ()}

    async def on_gone(self, request: Request, error: Exception) -> Response:
        # Nobody is left to read it, and it is no failure of ours.
        return Response(status_code=CLIENT_GONE)

    async def on_failure(self, request: Request, error: Exception) -> Response:
        # Logged by the server, to which Starlette passes it on after this answer.
        return self._of_status(request, 500, None)

    async def on_validation(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        instance = template_of(request)
        stored = stored_of(request.method, instance)
        if any(each["type"] == "json_invalid" for each in error.errors()):
            wrong = errors.BadRequest("The body is not well-formed JSON.")
            self._refused(wrong.code)
            return problem(wrong, instance, stored)
        self._refused(errors.InvalidField.code)
        return _invalid(error, self._declared, instance, stored)

    def _of_status(self, request: Request, status: int, headers: Mapping[str, str] | None) -> Response:
        self._refused(status_code_name(status))
        instance = template_of(request)
        return problem_of_status(status, instance, stored_of(request.method, instance), headers)

    @cached_property
    def _declared(self) -> frozenset[str]:
        return frozenset(_declared_names(self._app.openapi()))


# Messages of these rules hold nothing but what the schema says; others may quote the value.
_PLAIN_RULES = frozenset(
    """bool_parsing bool_type dict_type enum extra_forbidden finite_number float_parsing float_type
    greater_than greater_than_equal int_from_float int_parsing int_type less_than less_than_equal list_type
    literal_error missing string_pattern_mismatch string_too_long string_too_short string_type""".split()  # noqa: SIM905
)


def _invalid(
    error: RequestValidationError, names: frozenset[str], instance: str, stored: bool | None
) -> Response:
    rules = [{"field": _field(each["loc"], names), "rule": _rule(each)} for each in error.errors()[:20]]
    detail = "; ".join(f"{rule['field']}: {rule['rule']}" for rule in rules) + "."
    body = body_of(422, "Invalid field", errors.InvalidField.code, detail, instance, False, stored, rules)
    return Response(body, 422, None, MEDIA_TYPE)


def _field(location: tuple[int | str, ...], names: frozenset[str]) -> str:
    # An unknown field's name is the caller's, and not repeated; so is a key of a free-form object.
    place = [str(location[0])] if location else []
    for part in location[1:]:
        if part not in names and not isinstance(part, int):
            break
        place.append(str(part))
    return ".".join(place)


def _rule(found: dict[str, Any]) -> str:
    kind: str = found["type"]
    return found["msg"] if kind in _PLAIN_RULES else kind


def _declared_names(schema: Any) -> list[str]:
    """The names of every parameter and property that the schema declares."""
    if isinstance(schema, list):
        return [name for part in schema for name in _declared_names(part)]
    if not isinstance(schema, dict):
        return []
    names = [name for part in schema.values() for name in _declared_names(part)]
    if isinstance(schema.get("properties"), dict):
        names += schema["properties"]
    if "in" in schema and isinstance(schema.get("name"), str):
        names.append(schema["name"])
    return names
