"""Is it alive, is it ready, how is it doing."""

from contextlib import suppress

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from app.api.openapi import example_of
from app.api.routing import traits
from app.runtime import Runtime
from domain.errors import Draining, StorageError, StoreFull, StoreUnavailable

router = APIRouter(tags=["health"])

_NOT_READY = (Draining, StoreUnavailable, StoreFull)


class Status(BaseModel):
    status: str


class Ready(BaseModel):
    """`degraded`: Redis is away, and the local spool serves. `warnings` are for an operator."""

    status: str
    degraded: bool
    warnings: list[str]


class Health(Ready):
    """`stored_bytes_cap` 0 means none of ours."""

    version: str
    stored_bytes: int
    stored_bytes_cap: int


@router.get("/livez", summary="The process answers", responses={200: example_of("status")})
@traits(is_open=True)
async def livez() -> Status:
    return Status(status="ok")


@router.get(
    "/readyz",
    summary="Writes are kept",
    responses={200: example_of("ready")},
)
@traits(is_open=True, raises=_NOT_READY)
async def readyz(request: Request) -> Ready:
    rt = await _ready(request)
    return Ready(status="ok", degraded=rt.readiness.is_degraded, warnings=list(rt.warnings))


@router.get(
    "/healthz",
    summary="Readiness, with figures",
    responses={200: example_of("health")},
)
@traits(is_open=True, raises=_NOT_READY)
async def healthz(request: Request) -> Health:
    rt = await _ready(request)
    return Health(
        status="ok",
        degraded=rt.readiness.is_degraded,
        warnings=list(rt.warnings),
        version=request.app.version,
        stored_bytes=await rt.store.stored_bytes(),
        stored_bytes_cap=rt.settings.storage_max_bytes,
    )


@router.get(
    "/metrics",
    response_class=Response,
    summary="Prometheus metrics",
    responses={200: {"content": {"text/plain": {}}}},
)
async def metrics(request: Request) -> Response:
    rt: Runtime = request.app.state.runtime
    # What it was last, where the store cannot say: the other figures are wanted most while it is away.
    with suppress(StorageError):
        rt.metrics.stored_bytes.set(await rt.store.stored_bytes(), rt.settings.storage_max_bytes)
    with suppress(StorageError):
        usage = await rt.ledger.usage()
        rt.metrics.sessions.set(usage.sessions, rt.settings.max_sessions)
        rt.metrics.ledger_bytes.set(usage.bytes, rt.settings.ledger_max_bytes)
    body, media_type = rt.metrics.render()
    return Response(body, media_type=media_type)


async def _ready(request: Request) -> Runtime:
    """Raises Draining, or what the store or the ledger raises."""
    if request.app.state.draining:
        raise Draining("This instance is stopping. Another one will answer.")
    rt: Runtime = request.app.state.runtime
    await rt.readiness.check()
    return rt
