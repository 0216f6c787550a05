"""Liveness, readiness, figures and metrics."""

from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Request, Response
from pydantic import BaseModel

from app.api.openapi import example_of
from app.api.routing import InRuntime, Router, traits
from app.edge.api_keys import Role
from app.runtime import Runtime
from domain.errors import Draining, StorageError, StoreUnavailable

router = Router(tags=["health"])

_NOT_READY = (Draining, StoreUnavailable)


class Status(BaseModel):
    status: str


class Ready(BaseModel):
    """`degraded`: Redis is away, and the local spool serves. `warnings` are for an operator."""

    status: str
    degraded: bool
    warnings: list[str]


class Health(Ready):
    """A cap of 0: the service sets none. `sessions` and `ledger_bytes` are those of the tenant that has
    most."""

    version: str
    stored_bytes: int
    stored_bytes_cap: int
    sessions: int
    sessions_cap: int
    ledger_bytes: int
    ledger_bytes_cap: int


async def _ready(request: Request, rt: InRuntime) -> Runtime:
    """Raises Draining, or what the store or the ledger raises."""
    if request.app.state.draining:
        raise Draining("This instance is stopping. Another one will answer.")
    await rt.readiness.check()
    return rt


def _warnings(request: Request, rt: Runtime) -> list[str]:
    keys = request.app.state.keys
    return [*rt.warnings, *(keys.warnings if keys else ())]


InReady = Annotated[Runtime, Depends(_ready)]


_HEALTHY = Health(
    status="ok",
    degraded=False,
    warnings=[],
    version="0.1.0",
    stored_bytes=481213,
    stored_bytes_cap=1 << 31,
    sessions=12,
    sessions_cap=10_000,
    ledger_bytes=38220,
    ledger_bytes_cap=1 << 30,
)


@router.get("/livez", summary="The process answers", responses={200: example_of(Status(status="ok"))})
@traits(is_open=True)
async def livez() -> Status:
    return Status(status="ok")


@router.get(
    "/readyz",
    summary="Writes are kept",
    responses={200: example_of(Ready(status="ok", degraded=False, warnings=[]))},
)
@traits(is_open=True, raises=_NOT_READY)
async def readyz(request: Request, rt: InReady) -> Ready:
    return Ready(status="ok", degraded=rt.readiness.is_degraded, warnings=_warnings(request, rt))


@router.get(
    "/healthz",
    summary="Readiness, with figures",
    responses={200: example_of(_HEALTHY)},
)
@traits(is_open=True, raises=_NOT_READY)
async def healthz(request: Request, rt: InReady) -> Health:
    usage = await rt.ledger.usage()
    return Health(
        status="ok",
        degraded=rt.readiness.is_degraded,
        warnings=_warnings(request, rt),
        version=request.app.version,
        stored_bytes=await rt.store.stored_bytes(),
        stored_bytes_cap=rt.settings.storage_max_bytes,
        sessions=usage.sessions,
        sessions_cap=rt.settings.max_sessions,
        ledger_bytes=usage.bytes,
        ledger_bytes_cap=rt.settings.ledger_max_bytes,
    )


@router.get(
    "/metrics",
    response_class=Response,
    summary="Prometheus metrics",
    responses={200: {"content": {"text/plain": {}}}},
)
@traits(roles=(Role.METRICS, Role.ADMIN))
async def metrics(request: Request, rt: InRuntime) -> Response:
    ready = False
    with suppress(Draining, StorageError):
        await _ready(request, rt)
        ready = True
    rt.metrics.is_ready(ready, rt.readiness.is_up, rt.readiness.down_seconds)
    keys = request.app.state.keys
    rt.metrics.key_faults.set(len(keys.warnings) if keys else 0)
    rt.metrics.storage_key_faults.set(len(rt.storage_keys.warnings) if rt.storage_keys else 0)
    rt.metrics.models_up(rt.model_pool.availability())
    # If the store fails, the last value stays: the other figures matter most during an outage.
    with suppress(StorageError):
        rt.metrics.stored_bytes.set(await rt.store.stored_bytes(), rt.settings.storage_max_bytes)
    with suppress(StorageError):
        usage = await rt.ledger.usage()
        rt.metrics.sessions.set(usage.sessions, rt.settings.max_sessions)
        rt.metrics.ledger_bytes.set(usage.bytes, rt.settings.ledger_max_bytes)
    body, media_type = rt.metrics.render()
    return Response(body, media_type=media_type)
