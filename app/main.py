"""The application: routes, errors and admission around one runtime."""

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from fastapi import FastAPI
from starlette.types import Lifespan, Receive, Scope, Send

from app import __version__
from app.http.api import openapi, problems
from app.http.api.routing import RouteTable
from app.http.edge.access import Access
from app.http.edge.credentials import Credentials
from app.http.edge.state import ServiceState
from app.http.routes import (
    accounting,
    clock,
    config,
    extract,
    guardrails,
    health,
    hooks,
    mask,
    mcp,
    results,
    sessions,
    stored,
    tenants,
    tools,
    ui,
)
from app.operations.clock import watch_clock
from app.operations.logs import log_stopped
from app.policy_reload import follow_policies
from app.runtime import Runtime, open_runtime
from app.settings import Settings
from app.sweeper import sweep_forever
from domain.errors import ConfigError, SpillgateError, StoreFull, StoreUnavailable

ROUTERS = (
    results.router,
    mask.router,
    health.router,
    extract.router,
    hooks.router,
    guardrails.router,
    stored.router,
    sessions.router,
    tools.router,
    mcp.router,
    accounting.router,
    config.router,
    clock.router,
    tenants.router,
)
# Not by `include_router`, which builds each route a second time.
ROUTES = [results.route, *(route for router in ROUTERS for route in router.routes)]


NOT_KEPT = frozenset({StoreUnavailable.code, StoreFull.code})


class SpillgateApp(FastAPI):
    """FastAPI behind `Access`, which passes POST /results to its route at once: the layers of FastAPI and
    Starlette take a tenth of the rate of results of 2 KB (bench/README.md)."""

    def __init__(self, settings: Settings, lifespan: Lifespan["SpillgateApp"]) -> None:
        super().__init__(
            title="Spillgate",
            version=__version__,
            lifespan=lifespan,
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            swagger_ui_oauth2_redirect_url=None,
            redirect_slashes=False,
            routes=[*ROUTES],
            # FastAPI's own spans would hold paths and queries, and its log records exceptions.
            telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        )
        self.state: ServiceState = ServiceState(settings)  # type: ignore[assignment]
        self._routes = routes = RouteTable(self)
        self._access = Access(
            self._routed, settings=settings, routes=routes, state=self.state, refused=self.refused
        )
        problems.install(self, routes, self.refused)
        openapi.install(self, routes, needs_key=settings.needs_key, key_for_pages=settings.key_for_pages)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        return self._access(scope, receive, send)

    def _routed(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        if scope["type"] == "http" and scope["path"] == results.route.path and scope["method"] == "POST":
            return results.post_result(scope, receive, self.state.runtime)
        return super().__call__(scope, receive, send)

    def refused(self, error: SpillgateError, method: str, path: str) -> None:
        """Tells of a refused request; "" if method and path are not known."""
        runtime: Runtime = self.state.runtime
        route = f"{method} {self._routes.template(path)}".strip()
        traits = self._routes.traits(method, path)
        runtime.observer.refused(error, route, carries_result=traits.carries_results)
        if error.code in NOT_KEPT:
            runtime.readiness.invalidate()


def create_app(settings: Settings, runtime: Runtime | None = None) -> SpillgateApp:
    """The application. Its lifespan opens the runtime, or serves the one given."""

    @asynccontextmanager
    async def lifespan(app: SpillgateApp) -> AsyncIterator[None]:
        if runtime is not None:
            async with _served(app, runtime):
                yield
            return
        try:
            async with open_runtime(settings) as opened, _served(app, opened):
                yield
        except ConfigError as error:
            app.state.config_error = error
            raise

    app = SpillgateApp(settings, lifespan)
    ui.install(app)
    return app


@asynccontextmanager
async def _served(app: FastAPI, runtime: Runtime) -> AsyncIterator[None]:
    app.state.runtime = runtime
    runtime.metrics.watch_bodies(lambda: app.state.gate.in_flight)
    async with anyio.create_task_group() as tasks:
        run = app.state.supervisor.run
        tasks.start_soon(run, "clock", partial(watch_clock, runtime.clock_watch))
        tasks.start_soon(run, "sweep", partial(sweep_forever, runtime))
        tasks.start_soon(run, "policy files", partial(follow_policies, app.state))
        if runtime.exported is not None:
            tasks.start_soon(run, "export", runtime.exported.append_missing)
        keys: Credentials | None = app.state.keys
        if keys is not None and keys.issuer is not None:
            tasks.start_soon(run, "issuer keys", keys.issuer.keys.follow)
        yield
        tasks.cancel_scope.cancel()
    log_stopped(*runtime.metrics.total())
