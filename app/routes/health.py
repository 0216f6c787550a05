"""Is it alive, is it ready, how is it doing."""

from time import monotonic

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from app.openapi import example_of, problems
from app.runtime import Runtime
from domain.errors import Draining

_FRESH_SECONDS = 1.0

router = APIRouter(tags=["health"])


class Status(BaseModel):
    status: str


class Health(BaseModel):
    """`stored_bytes_cap` 0 means none of ours."""

    status: str
    version: str
    stored_bytes: int
    stored_bytes_cap: int


@router.get("/livez", summary="The process answers", responses={200: example_of("status")})
async def livez() -> Status:
    return Status(status="ok")


@router.get(
    "/readyz",
    summary="Writes are kept",
    responses={200: example_of("status"), **problems(503, 507)},
)
async def readyz(request: Request) -> Status:
    await _ready(request)
    return Status(status="ok")


@router.get(
    "/healthz",
    summary="Readiness, with figures",
    responses={200: example_of("health"), **problems(503, 507)},
)
async def healthz(request: Request) -> Health:
    await _ready(request)
    rt: Runtime = request.app.state.runtime
    return Health(
        status="ok",
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
    rt.metrics.stored_bytes.set(await rt.store.stored_bytes())
    rt.metrics.stored_bytes_cap.set(rt.settings.storage_max_bytes)
    body, media_type = rt.metrics.render()
    return Response(body, media_type=media_type)


async def _ready(request: Request) -> None:
    """Raises Draining, or what the store or the ledger raises."""
    if request.app.state.draining:
        raise Draining("This instance is stopping. Another one will answer.")
    rt: Runtime = request.app.state.runtime
    # Each check syncs the disk, and anyone may ask: once a second is enough.
    if monotonic() - request.app.state.ready_at >= _FRESH_SECONDS:
        await rt.store.check()
        await rt.ledger.check()
        request.app.state.ready_at = monotonic()
