"""Errors as problem+json (RFC 9457), and the handlers that answer with them."""

import html
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, get_args

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app.http.api.routing import RouteTable, parameter_names
from domain import errors
from domain.errors import unknown_key
from domain.library_errors import PYDANTIC_RULES, pydantic_rule

MEDIA_TYPE = "application/problem+json"
CLIENT_GONE = 499

OnRefusal = Callable[[errors.SpillgateError, str, str], None]
"""Called with the error, the method and the path of each refused request; "" if they are not known."""

_OF_STATUS: dict[int, type[errors.SpillgateError]] = {
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    413: errors.BodyTooLarge,
}
"""Errors that the framework raises with a status alone."""

UNREADABLE = (
    "The body must be JSON in UTF-8, and not nested too deeply, nor hold numbers of thousands of digits."
)
"""The detail of a problem for all faults that FastAPI reports as a body that cannot be parsed."""

_WRITE_ROUTES = frozenset({("POST", "/results")})


class Problem(msgspec.Struct, omit_defaults=True):
    """RFC 9457 members, and extensions. `stored: false` tells the agent that it still holds the only copy."""

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


def problem_of(
    error: errors.SpillgateError,
    instance: str = "",
    stored: bool | None = None,
    rules: list[dict[str, str]] | None = None,
) -> Problem:
    """`instance` is a path template, never the path that the caller sent."""
    return Problem(
        type=f"/docs/errors#{error.code}",
        title=error.title,
        status=error.status,
        detail=error.detail,
        instance=instance,
        code=error.code,
        retryable=error.retryable,
        stored=stored,
        errors=rules,
    )


def headers_of(error: errors.SpillgateError) -> dict[str, str]:
    """The headers of an answer with this error, except Allow."""
    if isinstance(error, errors.Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, errors.RangeNotSatisfiable):
        return {"Content-Range": f"bytes */{error.size}"}
    after = error.retry_after
    if after is None and error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        after = 1
    return {} if after is None else {"Retry-After": str(after)}


def stored_of(method: str, path: str) -> bool | None:
    """`stored` of the problem of a failed request: False if the request stores results, else None."""
    return False if (method, path) in _WRITE_ROUTES else None


def problem(
    error: errors.SpillgateError,
    instance: str,
    stored: bool | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    rules: list[dict[str, str]] | None = None,
) -> Response:
    """The answer that reports an error."""
    body = msgspec.json.encode(problem_of(error, instance, stored, rules))
    return Response(body, error.status, {**headers_of(error), **(headers or {})}, MEDIA_TYPE)


def install(app: FastAPI, routes: RouteTable, refused: OnRefusal) -> None:
    """Registers the handlers; `refused` is called with each error."""
    handlers = Handlers(routes, refused)
    app.add_exception_handler(errors.SpillgateError, handlers.on_error)
    app.add_exception_handler(RequestValidationError, handlers.on_validation)
    app.add_exception_handler(HTTPException, handlers.on_status)
    app.add_exception_handler(ClientDisconnect, handlers.on_disconnect)
    app.add_exception_handler(Exception, handlers.on_failure)


class Handlers:
    """The handlers, one for each class of exception. Each answers with a problem."""

    def __init__(self, routes: RouteTable, refused: OnRefusal) -> None:
        self._routes = routes
        self._refused = refused

    async def on_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.SpillgateError)
        return self._answer(request, error)

    async def on_status(self, request: Request, error: Exception) -> Response:
        # FastAPI wraps whatever is raised while it reads a body.
        cause = error.__cause__
        if isinstance(cause, errors.SpillgateError):
            return await self.on_error(request, cause)
        if isinstance(cause, ClientDisconnect):
            return await self.on_disconnect(request, cause)
        assert isinstance(error, HTTPException)
        fallback = errors.InternalError if error.status_code >= 500 else errors.BadRequest
        kind = _OF_STATUS.get(error.status_code, fallback)
        if kind is errors.BadRequest:
            return self._answer(request, kind(UNREADABLE))
        allowed = self._routes.methods(request.scope["path"]) if kind is errors.MethodNotAllowed else ()
        return self._answer(request, kind(), {"Allow": ", ".join(allowed)} if allowed else None)

    async def on_disconnect(self, request: Request, error: Exception) -> Response:
        # The status is for metrics.
        return Response(status_code=CLIENT_GONE)

    async def on_failure(self, request: Request, error: Exception) -> Response:
        # Starlette raises the error again after this answer, and the server ends the connection and logs it.
        return self._answer(request, errors.InternalError())

    async def on_validation(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        if any(each["type"] == "json_invalid" for each in error.errors()):
            return self._answer(request, errors.BadRequest("The body is not well-formed JSON."))
        rules = [_broken_rule(each, request.scope.get("route")) for each in error.errors()[:20]]
        detail = "; ".join(f"{rule['field']}: {rule['rule']}" for rule in rules) + "."
        return self._answer(request, errors.InvalidField(detail), rules=rules)

    def _answer(
        self,
        request: Request,
        error: errors.SpillgateError,
        headers: Mapping[str, str] | None = None,
        rules: list[dict[str, str]] | None = None,
    ) -> Response:
        self._refused(error, request.method, request.scope["path"])
        instance = self._routes.template(request.scope["path"])
        stored = stored_of(request.method, instance)
        return problem(error, instance, stored, headers=headers, rules=rules)


# Messages of these rules hold nothing but what the schema says; others may quote the value.
_PLAIN_RULES = frozenset(
    """bool_type enum finite_number float_parsing float_type greater_than greater_than_equal int_from_float
    int_type less_than less_than_equal list_type literal_error missing string_too_long string_too_short
    string_type too_long""".split()  # noqa: SIM905
)


# The only pattern that a route checks so is `\S`.
_RULES = {"string_pattern_mismatch": "must hold more than white space"}


def _broken_rule(error: dict[str, Any], route: object) -> dict[str, str]:
    """The field of the schema, and the rule that it breaks."""
    location = error["loc"]
    if error["type"] == "extra_forbidden":
        known = _keys_at(route, location[1:-1])
        return {"field": _field(location[:-1], route), "rule": unknown_key(str(location[-1]), known)}
    kind: str = "model_attributes_type" if location == ("body",) else error["type"]
    is_said = kind in _PLAIN_RULES or kind in _RULES or kind in PYDANTIC_RULES
    rule = pydantic_rule(kind, error["msg"], _RULES) if is_said else kind
    return {"field": _field(location, route), "rule": rule}


def _keys_at(route: object, path: tuple[int | str, ...]) -> list[str]:
    """The keys of the object at `path` of the route's JSON body."""
    field = route.body_field if isinstance(route, APIRoute) else None
    model = _model_in(field.field_info.annotation) if field else None
    for part in path:
        if model is not None and isinstance(part, str):
            model = _model_in(model.model_fields[part].annotation)
    return list(model.model_fields) if model else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _field(location: tuple[int | str, ...], route: object) -> str:
    """The path as far as the route declares it: the name of an unknown field and a key of a free-form object
    are the caller's, and not repeated."""
    path = [str(part) for part in location[:1]]
    for at, part in enumerate(location[1:], 1):
        if not isinstance(part, int) and part not in _declared(route, location[0], location[1:at]):
            break
        path.append(str(part))
    return ".".join(path)


def _declared(route: object, where: int | str, path: tuple[int | str, ...]) -> list[str]:
    """The names that the route declares in its body at `path`, or among its parameters."""
    if where == "body":
        return _keys_at(route, path)
    return parameter_names(route.dependant) if isinstance(route, APIRoute) else []


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Spillgate: errors</title>
<style>body{{font:16px/1.5 system-ui;max-width:75rem;margin:2rem auto;padding:0 1rem}}
td,th{{text-align:left;padding:.3rem .8rem;border-bottom:1px solid #ccc}}:target{{background:#ffd}}</style>
<h1>Errors</h1>
<p>Every error is <code>application/problem+json</code>. Programs go by <code>code</code>; people read
<code>detail</code>, which says what to do in the case at hand. <code>retryable</code>: the same request may
work later. <code>stored: false</code>: the caller still holds the only copy. No value that was
sent is repeated.</p>
<table><tr><th>code<th>status<th>title<th>retryable<th>what to do</tr>
{rows}
</table></html>
"""


def page() -> str:
    """GET /docs/errors: what each problem's `type` points to."""
    lines = [
        f'<tr id="{kind.code}"><td><code>{kind.code}</code><td>{kind.status}<td>{html.escape(kind.title)}'
        f"<td>{'yes' if kind.retryable else 'no'}<td>{html.escape(kind.advice)}</tr>"
        for kind in sorted(errors.every_error(), key=lambda kind: (kind.status, kind.code))
    ]
    return _PAGE.format(rows="\n".join(lines))
