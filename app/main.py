"""The application: routes, errors and door around one runtime."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

import anyio
from fastapi import FastAPI
from fastapi_swagger import patch_fastapi

from app import errors, openapi
from app.access import ApiKeys
from app.door import BodyGate, Door
from app.routes import accounting, check, extract, health, results, sessions, stored, tools
from app.runtime import Runtime, open_runtime
from app.settings import Settings
from app.sweeper import sweep_forever

ROUTERS = (
    results.router,
    health.router,
    extract.router,
    stored.router,
    check.router,
    sessions.router,
    tools.router,
    accounting.router,
)


def create_app(settings: Settings, runtime: Runtime | None = None) -> FastAPI:
    """The FastAPI application. Its lifespan opens the runtime, or serves the one given."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if runtime is not None:
            async with _served(app, runtime):
                yield
            return
        async with open_runtime(settings) as opened, _served(app, opened):
            yield

    app = FastAPI(
        title="Spillgate",
        version=_version(),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.draining = False
    app.state.gate = BodyGate(settings.max_body_bytes)
    app.add_middleware(
        Door,
        settings=settings,
        keys=None if settings.api_keys_file is None else ApiKeys(settings.api_keys_file),
        draining=lambda: app.state.draining,
        gate=app.state.gate,
        refused=lambda code: app.state.runtime.metrics.refused(code),
    )
    for router in ROUTERS:
        app.include_router(router)
    patch_fastapi(app, redirect_from_root_to_docs=False)
    errors.install(app, lambda code: app.state.runtime.metrics.refused(code))
    openapi.install(app)
    return app


@asynccontextmanager
async def _served(app: FastAPI, runtime: Runtime) -> AsyncIterator[None]:
    app.state.runtime = runtime
    runtime.metrics.watch_bodies(lambda: app.state.gate.in_flight)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sweep_forever, runtime)
        yield
        tasks.cancel_scope.cancel()


def _version() -> str:
    try:
        return version("spillgate")
    except PackageNotFoundError:
        return "0.1.0"
