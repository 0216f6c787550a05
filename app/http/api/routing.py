"""What a route declares (who may call it, when, which errors it answers), and what all routes check."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIRouter
from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Mount, Route

from app.http.api.roles import OF_ONE_TENANT, KeyRole
from app.operations.logs import describe_request
from app.runtime import Runtime
from content.json_text import decoded
from domain import errors
from domain.handles import NAME_PATTERN, SessionKey, checked_session_id


class WholeHandle(Convertor[str]):
    """A handle at the end of a path, perhaps cut off. A path below it belongs to a route of its own, so
    that a method which the route lacks is answered with 405."""

    regex = r"[^/]+(?:/(?:file[^/]*)?)?"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("whole_handle", WholeHandle())

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
ErrorClass = type[errors.SpillgateError]

_ATTRIBUTE = "spillgate_traits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """A decorator below the router's. `is_open`: callable without an API key. `is_page`: likewise, unless
    SPILLGATE_KEY_FOR_PAGES is set. `writes`: refused while the service stops. `carries_results`: takes JSON
    up to SPILLGATE_MAX_JSON_BYTES; other routes take at most 1 MiB. `streams_text`: takes text up to
    SPILLGATE_MAX_BODY_BYTES as well. `fails_open`: a tenant past its quota of requests is answered as if
    nothing was to be done, by `check_rate`. `repairs_text`: a model wrote the body, and its lone surrogates
    become U+FFFD; other routes refuse them. `roles`: who may call it beside agents. `span` names the span of
    its requests. `raises`: the errors that `errors_of` cannot derive. `example`: the JSON of an answer, with
    the status 200. `operation`: what the OpenAPI document says of a route that FastAPI does not serve."""

    is_open: bool = False
    is_page: bool = False
    writes: bool = False
    carries_results: bool = False
    streams_text: bool = False
    fails_open: bool = False
    repairs_text: bool = False
    roles: tuple[KeyRole, ...] = ()
    span: str = ""
    raises: tuple[ErrorClass, ...] = ()
    example: Any = None
    operation: Mapping[str, Any] | None = None

    def changes(self, method: str) -> bool:
        """True if a request may change something, or begin work that is paid for."""
        return self.writes or method not in ("GET", "HEAD")

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _ATTRIBUTE, self)
        return endpoint


def traits_of(route: Route) -> Traits:
    traits: Traits = getattr(route.endpoint, _ATTRIBUTE, _NONE)
    return traits


def _is_open(route: Route) -> bool:
    traits = traits_of(route)
    return traits.is_open or traits.is_page


_NONE = Traits()

_EVERY_ROUTE: tuple[ErrorClass, ...] = (
    errors.BadRequest,
    errors.HostNotAllowed,
    errors.Forbidden,
    errors.MethodNotAllowed,
    errors.HeaderTimeout,
    errors.BodyTimeout,
    errors.BodyTooLarge,
    errors.UnsupportedMedia,
    errors.InvalidField,
    errors.HeadersTooLarge,
    errors.InternalError,
    errors.Overloaded,
)
_NEEDS_KEY: tuple[ErrorClass, ...] = (
    errors.Unauthorized,
    errors.StoreUnavailable,
    errors.IssuerUnavailable,
    errors.TooManyRequests,
)
_WRITES: tuple[ErrorClass, ...] = (errors.Draining, errors.StoreFull, errors.TenantFull)
_HANDLE: tuple[ErrorClass, ...] = (errors.ResultNotFound, errors.ResultExpired, errors.SessionEnded)


def errors_of(route: Route) -> list[ErrorClass]:
    """Every error that the route can answer, by status."""
    declared = traits_of(route)
    kinds = {*_EVERY_ROUTE, *declared.raises}
    if declared.is_page:
        kinds |= {errors.Unauthorized, errors.IssuerUnavailable}
    elif not declared.is_open:
        kinds |= {*_NEEDS_KEY}
    if KeyRole.ADMIN in declared.roles and isinstance(route, APIRoute) and _needs_tenant(route.dependant):
        kinds.add(errors.TenantNotFound)
    if declared.writes:
        kinds |= {*_WRITES}
    if route.param_convertors:
        # A parameter that turns the path into one that no route has.
        kinds.add(errors.NotFound)
    if "handle" in route.param_convertors:
        kinds |= {*_HANDLE}
    return sorted(kinds, key=lambda kind: (kind.status, kind.code))


def _needs_tenant(dependant: Dependant) -> bool:
    return any(one.call is _tenant or _needs_tenant(one) for one in dependant.dependencies)


class RouteTable:
    """The routes of an application, for code that runs before a request is routed. Filled when it is first
    used: every route must have been added by then."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    @cached_property
    def documented(self) -> list[Route]:
        """The routes of the OpenAPI document."""
        return [one for one in self._all if one.include_in_schema]

    @cached_property
    def _all(self) -> list[Route]:
        return [one for one in self._app.routes if isinstance(one, Route)]

    @cached_property
    def _mounts(self) -> tuple[str, ...]:
        return tuple(f"{one.path}/" for one in self._app.routes if isinstance(one, Mount))

    @cached_property
    def _open_paths(self) -> frozenset[str]:
        return frozenset(one.path for one in self._all if not one.include_in_schema or _is_open(one))

    def template(self, path: str) -> str:
        """The template of a route that the path matches, `/results/{handle}`; "" for none."""
        if path in self._plain_paths:
            return path
        return next((one.path_format for one in self._patterns if one.path_regex.match(path)), "")

    def is_open(self, path: str) -> bool:
        """True for routes with `is_open` or `is_page`, and for the pages that the document does not list."""
        return path in self._open_paths or path.startswith(self._mounts)

    def traits(self, method: str, path: str) -> Traits:
        """Returns the traits of the route that serves such a request; the defaults if no route does."""
        traits = self._of_plain_paths.get((method, path))
        if traits is None:
            served = (one for one in self._patterns if method in (one.methods or ()))
            traits = next((traits_of(one) for one in served if one.path_regex.match(path)), _NONE)
        return traits

    @cached_property
    def _of_plain_paths(self) -> dict[tuple[str, str], Traits]:
        plain = [one for one in self._all if not one.param_convertors]
        return {(method, one.path): traits_of(one) for one in plain for method in one.methods or ()}

    @cached_property
    def _plain_paths(self) -> frozenset[str]:
        return frozenset(path for _, path in self._of_plain_paths)

    @cached_property
    def _patterns(self) -> list[Route]:
        return [one for one in self._all if one.param_convertors]

    def methods(self, path: str) -> list[str]:
        """The methods that a path takes, of every route that it matches."""
        methods = {name for one in self._all if one.path_regex.match(path) for name in one.methods or ()}
        if path.startswith(self._mounts):
            methods |= {"GET", "HEAD"}
        return sorted(methods)


async def _runtime(request: Request) -> Runtime:
    runtime: Runtime = request.app.state.runtime
    return runtime


async def _tenant(request: Request) -> str:
    """Raises TenantNotFound if an operator's key names a tenant of which nothing is known."""
    tenant: str = request.scope["tenant"]
    key = request.scope.get("key")
    if key is not None and key.tenant != tenant and not await is_known(request, tenant):
        raise errors.TenantNotFound
    return tenant


async def is_known(request: Request, tenant: str) -> bool:
    """Whether the tenant has a key, a table in the policy file, or something stored or accounted."""
    rt: Runtime = request.app.state.runtime
    keys = request.app.state.keys
    has_key = tenant == rt.settings.tenant if keys is None else keys.has_tenant(tenant)
    if has_key or tenant in rt.policies.named_tenants:
        return True
    return any(use.tenant == tenant for use in await rt.readiness.tenant_uses())


async def _every_tenant(request: Request) -> bool:
    is_every: bool = request.scope["every_tenant"]
    return is_every


async def _is_agent(request: Request) -> bool:
    return request.scope.get("role") in OF_ONE_TENANT


async def _operator(request: Request) -> None:
    """Raises Forbidden. Without a file of keys, every caller is on this machine and may do all."""
    if await _is_agent(request):
        raise errors.Forbidden("A key with the role `agent` may not call this route.")


def check_rate(request: Request) -> None:
    """For routes with the trait `fails_open`. Raises TooManyRequests."""
    error: errors.TooManyRequests | None = request.scope.get("over_rate")
    if error is not None:
        raise error


ForOperators = Depends(_operator)
InRuntime = Annotated[Runtime, Depends(_runtime)]
Tenant = Annotated[str, Depends(_tenant)]
"""The caller's tenant, as `Access` found it."""
IsAgent = Annotated[bool, Depends(_is_agent)]
"""True for a key with the role `agent`, False without a file of keys."""
EveryTenant = Annotated[bool, Depends(_every_tenant)]
"""True for an admin's key without the header Spillgate-Tenant, which may mean every tenant."""


SESSION_ID: dict[str, Any] = {"pattern": f"^{NAME_PATTERN}$"}
"""The schema of a session id, for `json_schema_extra`: the domain checks the id, with its own message."""


def session_key(tenant: str, session_id: str) -> SessionKey:
    """The key of the session that a request names. Raises InvalidField."""
    key = SessionKey(tenant, checked_session_id(session_id))
    describe_request(session_id=session_id)
    return key


# Both are coroutine functions: others are called in a thread, which would double the cost of a small request.
async def known_only(request: Request) -> None:
    """Raises InvalidField for a query parameter that the route does not have, or that is sent twice. If it
    were ignored, a misspelt filter would return everything."""
    route = request.scope.get("route")
    if not request.scope["query_string"] or not isinstance(route, APIRoute):
        return
    known = sorted(_names(route.dependant, ("query_params",)))
    if not known:
        raise errors.InvalidField("This route takes no query parameters. Take them out of the URL.")
    sent = [name for name, _ in request.query_params.multi_items()]
    for name in sent:
        if name not in known:
            raise errors.InvalidField(f"In the query, {errors.unknown_key(name, known)}.")
    if len({*sent}) < len(sent):
        raise errors.InvalidField("A query parameter is given twice. Send each once.")


async def json_only(request: Request) -> None:
    """`check_json` for each route that declares a JSON body."""
    route = request.scope.get("route")
    if isinstance(route, APIRoute) and route.body_field is not None:
        check_json(request)


def check_json(request: Request) -> None:
    """Raises UnsupportedMedia for a body of another type. A body without Content-Type is taken for JSON."""
    media = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        raise errors.UnsupportedMedia("Send the body as JSON, with Content-Type: application/json.")


def parameter_names(dependant: Dependant) -> list[str]:
    """The names of the parameters in path, query and headers."""
    return sorted(_names(dependant, ("path_params", "query_params", "header_params")))


def _names(dependant: Dependant, kinds: tuple[str, ...]) -> Iterator[str]:
    for kind in kinds:
        yield from (parameter.alias for parameter in getattr(dependant, kind))
    for inner in dependant.dependencies:
        yield from _names(inner, kinds)


class JsonRoute(APIRoute):
    """A route of FastAPI that reads JSON as `JsonRequest` does."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return handled


class JsonRequest(Request):
    """A request whose JSON is read as on every other route: Python's own decoder takes NaN for a number."""

    async def json(self) -> Any:
        """Raises BadRequest, InvalidUtf8, InvalidField."""
        value, had_surrogates = decoded(msgspec.json.decode, await self.body())
        if had_surrogates and not self.scope["traits"].repairs_text:
            raise errors.InvalidField("The body holds a lone surrogate. Send valid Unicode.")
        return value


class Router(APIRouter):
    """The routes of one resource. Each checks what all routes check."""

    def __init__(self, *, tags: list[str | Enum], prefix: str = "") -> None:
        super().__init__(
            prefix=prefix,
            tags=tags,
            dependencies=[Depends(json_only), Depends(known_only)],
            strict_content_type=False,
            route_class=JsonRoute,
        )
