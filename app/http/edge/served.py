"""A request as observers see it."""

from collections.abc import Mapping
from time import perf_counter

from starlette.types import Scope

from app.http.api.request_body import RequestBody
from app.http.api.routing import RouteTable, Traits
from app.http.edge.api_keys import SHOWN_DIGITS, ApiKey
from app.operations.tracing import carrier_of
from app.proxies import caller_address
from domain.ports import Caller

METRICS_PATHS = frozenset({"/metrics", "/livez", "/readyz"})


class Served:
    """A ServedRequest. What few observers ask for is found when it is asked for."""

    __slots__ = ("_body", "_proxies", "_routes", "_scope", "_started")

    def __init__(self, scope: Scope, body: RequestBody, routes: RouteTable, proxies: tuple[str, ...]) -> None:
        self._scope, self._body, self._routes, self._proxies = scope, body, routes, proxies
        self._started = perf_counter()

    @property
    def method(self) -> str:
        method: str = self._scope["method"]
        return method

    @property
    def path(self) -> str:
        path: str = self._scope["path"]
        return path

    @property
    def route(self) -> str:
        return self._routes.template(self.path)

    @property
    def span(self) -> str:
        traits: Traits = self._scope["traits"]
        return traits.span

    @property
    def is_plain(self) -> bool:
        return self.path in METRICS_PATHS or self._routes.is_open(self.path)

    @property
    def tracing(self) -> Mapping[str, str]:
        return carrier_of(self._scope["headers"])

    @property
    def fields(self) -> Mapping[str, str | None]:
        fields: Mapping[str, str | None] = self._scope["logged"]
        return fields

    @property
    def caller(self) -> Caller | None:
        key: ApiKey | None = self._scope.get("key")
        return key and Caller(key.name or key.digest[:SHOWN_DIGITS], key.tenant, key.role.value)

    @property
    def address(self) -> str:
        client = self._scope.get("client")
        forwarded = ""
        if b"x-forwarded-for" in self._scope["by_name"]:
            named = [value for name, value in self._scope["headers"] if name == b"x-forwarded-for"]
            forwarded = b",".join(named).decode("latin-1")
        return caller_address(client[0] if client else None, forwarded, self._proxies)

    @property
    def status(self) -> int:
        return self._body.status

    @property
    def seconds(self) -> float:
        return perf_counter() - self._started

    @property
    def received(self) -> int:
        return self._body.received

    @property
    def sent(self) -> int:
        return self._body.sent
