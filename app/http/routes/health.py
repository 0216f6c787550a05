"""Liveness, readiness, figures, metrics, and the proof that this is the user's own service."""

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Query, Request, Response

from app.http.api.bodies import BodyOut
from app.http.api.roles import OF_ONE_TENANT, KeyRole
from app.http.api.routing import InRuntime, Router, Traits
from app.http.edge.access import token_of
from app.http.edge.address_file import Announcement
from app.http.edge.api_keys import ApiKey
from app.http.edge.credentials import Credentials
from app.operations.readiness import TenantUse
from app.runtime import Runtime
from domain.errors import (
    Draining,
    Forbidden,
    IssuerUnavailable,
    NotFound,
    StorageError,
    StoreUnavailable,
    Unauthorized,
)

router = Router(tags=["health"])

_NOT_READY = (Draining, StoreUnavailable)


class Status(BodyOut):
    status: str


class Ready(BodyOut):
    """`warnings` tell an operator what needs attention although the service works."""

    status: str
    warnings: list[str]


class Proof(BodyOut):
    """`proof` is the HMAC-SHA256 of `spillgate`, the URL in the address file and the challenge, with a space
    between them, under the secret in that file, in hexadecimal digits."""

    proof: str


class Health(Ready):
    """`address` is where the service listens. A cap of 0 means no cap. `sessions` and `ledger_bytes` are
    those of the tenant with the most, with that tenant's quota as their cap; null for a caller who may not
    know them."""

    version: str
    address: str
    stored_bytes: int
    stored_bytes_cap: int
    sessions: int | None
    sessions_cap: int | None
    ledger_bytes: int | None
    ledger_bytes_cap: int | None


async def _ready(request: Request, rt: InRuntime) -> Runtime:
    """Raises Draining, or what the store or the ledger raises."""
    if request.app.state.draining:
        raise Draining("This instance is stopping. Another one will answer.")
    await rt.readiness.check()
    return rt


def _warnings(request: Request, rt: Runtime) -> list[str]:
    keys = request.app.state.keys
    tenants = rt.readiness.tenant_warnings(_may_know(request, keys))
    return [*rt.warnings, *tenants, *(keys.notices if keys else ())]


def _may_know(request: Request, keys: Credentials | None) -> Callable[[str], bool]:
    """Returns a function that tells whether the caller may know of a tenant: an operator of all, an agent of
    its own. Without keys there is one tenant."""
    if keys is None:
        return lambda tenant: True
    key = _key_of(request, keys)
    return lambda tenant: key is not None and (key.role not in OF_ONE_TENANT or tenant == key.tenant)


def _key_of(request: Request, keys: Credentials) -> ApiKey | None:
    try:
        key: ApiKey = request.scope.get("key") or keys.key_of(token_of(request.scope["by_name"]))
    except (Unauthorized, Forbidden, IssuerUnavailable):
        return None
    return key


InReady = Annotated[Runtime, Depends(_ready)]


@router.get("/livez", summary="The process answers")
@router.head("/livez", include_in_schema=False)
@Traits(is_open=True, example={"status": "ok"})
async def livez() -> Status:
    return Status(status="ok")


@router.get("/readyz", summary="Writes are kept")
@router.head("/readyz", include_in_schema=False)
@Traits(is_open=True, raises=_NOT_READY, example={"status": "ok", "warnings": []})
async def readyz(request: Request, rt: InReady) -> Ready:
    return Ready(status="ok", warnings=_warnings(request, rt))


@router.get("/proof", summary="That this is the user's own service")
@Traits(
    is_open=True,
    raises=(NotFound,),
    example={"proof": "6b1e0f0d3c9a4e52b7d8c1f4a09e3d57826f1b4ce0a7d93f58b26c4e1d70a9f3"},
)
async def proof(request: Request, challenge: Annotated[str, Query(pattern="^[0-9a-f]{32,128}$")]) -> Proof:
    announcement: Announcement = request.app.state.announcement
    if not announcement.secret:
        raise NotFound("This service holds no address file.")
    return Proof(proof=announcement.proof(challenge))


@router.get("/healthz", summary="Readiness, with figures")
@router.head("/healthz", include_in_schema=False)
@Traits(is_page=True, raises=_NOT_READY)
async def healthz(request: Request, rt: InReady) -> Health:
    keys, quota = request.app.state.keys, rt.settings.quota
    may_know = _may_know(request, keys)
    uses = [use for use in await rt.readiness.tenant_uses() if may_know(use.tenant)]
    sessions: tuple[int | None, int | None] = (None, None)
    ledger_bytes: tuple[int | None, int | None] = (None, None)
    if keys is None or _key_of(request, keys) is not None:
        sessions = max(
            ((use.ledger.sessions, use.quota.max_sessions) for use in uses), default=(0, quota.max_sessions)
        )
        ledger_bytes = max(
            ((use.ledger.bytes, use.quota.ledger_max_bytes) for use in uses),
            default=(0, quota.ledger_max_bytes),
        )
    return Health(
        status="ok",
        warnings=_warnings(request, rt),
        version=request.app.version,
        address=request.app.state.address,
        stored_bytes=await rt.store.stored_bytes(),
        stored_bytes_cap=rt.settings.storage_max_bytes,
        sessions=sessions[0],
        sessions_cap=sessions[1],
        ledger_bytes=ledger_bytes[0],
        ledger_bytes_cap=ledger_bytes[1],
    )


@router.get(
    "/metrics",
    response_class=Response,
    summary="Prometheus metrics",
    responses={200: {"content": {"text/plain": {}}}},
)
@Traits(roles=(KeyRole.METRICS, KeyRole.ADMIN))
async def metrics(request: Request, rt: InRuntime) -> Response:
    # The loads first: what follows adds requests to the backends.
    rt.metrics.loaded("store", rt.store.load)
    rt.metrics.loaded("ledger", rt.ledger.load)
    ready = False
    with suppress(Draining, StorageError):
        await _ready(request, rt)
        ready = True
    # After the check, which reads this from Redis.
    rt.metrics.medium_used("store", rt.store.load.medium_share)
    rt.metrics.medium_used("ledger", rt.ledger.load.medium_share)
    keys: Credentials | None = request.app.state.keys
    is_up = rt.readiness.is_up
    if keys is not None and keys.issuer is not None:
        is_up = {**is_up, "issuer": keys.issuer.keys.is_up}
    rt.metrics.is_ready(ready, is_up, rt.readiness.down_seconds)
    rt.metrics.clock(rt.clock_watch.offset_ms, rt.clock_watch.jump_ms)
    rt.metrics.key_faults.set(keys.key_faults if keys else 0)
    rt.metrics.key_expires.set(keys.next_expiry if keys else 0)
    rt.metrics.storage_key_faults.set(len(rt.storage_keys.warnings) if rt.storage_keys else 0)
    rt.metrics.models_up({one.name: not one.retry_ms for one in rt.model_pool.states()})
    uses: list[TenantUse] | None = None
    # If the store fails, these keep their last values: during an outage the other figures matter most.
    with suppress(StorageError):
        uses = await rt.readiness.tenant_uses()
        rt.metrics.stored_bytes.set(sum(use.stored_bytes for use in uses))
        rt.metrics.stored_bytes_cap.set(rt.settings.storage_max_bytes)
        rt.metrics.ledger_entries.set(rt.readiness.ledger_entries)
    # A role limited to one tenant sees that tenant only. There is no role without keys, or at the metrics
    # port.
    own = request.scope["tenant"] if request.scope.get("role") in OF_ONE_TENANT else None
    body, media_type = rt.metrics.render(uses, request.app.state.rates.counts(), own)
    return Response(body, media_type=media_type)
