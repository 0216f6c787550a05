"""Tenants, for operators: what each uses of its quotas, and the deletion of a tenant."""

import asyncio
from typing import Annotated

from fastapi import Path, Request, Response

from app.http.api.bodies import BodyOut
from app.http.api.roles import KeyRole
from app.http.api.routing import ForOperators, InRuntime, Router, Traits, is_known
from app.operations.logs import log_deleted_tenant
from app.runtime import Runtime
from domain.errors import InvalidField, StorageError, TenantNotFound
from domain.handles import NAME_PATTERN, is_name

router = Router(tags=["tenants"])

DELETE_SECONDS = 5.0
"""The longest time of one deletion request, in seconds. If there is more to delete, its answer is 202."""

_PAUSE_SECONDS = 0.05
"""The pause after a step that deleted nothing although it is not the last."""


class QuotaOut(BodyOut):
    """A `cap` of 0 means no cap."""

    used: float
    cap: float


class TenantOut(BodyOut):
    """`requests_per_second` is a quota of each instance; /metrics counts the requests."""

    tenant: str
    storage_max_bytes: QuotaOut
    ledger_max_bytes: QuotaOut
    max_sessions: QuotaOut
    llm_usd_per_day: QuotaOut
    requests_per_second: float


class TenantsOut(BodyOut):
    tenants: list[TenantOut]


class DeletedOut(BodyOut):
    """What this request deleted. If `complete` is false, send it again."""

    tenant: str
    results: int
    sessions: int
    entries: int
    complete: bool


@router.get("/tenants", dependencies=[ForOperators], summary="What each tenant uses of its quotas")
@Traits(roles=(KeyRole.ADMIN,))
async def get_tenants(rt: InRuntime) -> TenantsOut:
    uses = await rt.readiness.tenant_uses()
    shown = []
    for use in uses:
        quotas = {quota: QuotaOut(used=used, cap=cap) for quota, used, cap in use.shares()}
        rate = use.quota.requests_per_second
        shown.append(TenantOut(tenant=use.tenant, requests_per_second=rate, **quotas))
    return TenantsOut(tenants=shown)


@router.delete(
    "/tenants/{tenant_id}",
    dependencies=[ForOperators],
    summary="Delete the results, sessions and accounting of a tenant",
    responses={202: {"model": DeletedOut}},
)
@Traits(writes=True, roles=(KeyRole.ADMIN,), raises=(TenantNotFound,))
async def delete_tenant(
    request: Request,
    rt: InRuntime,
    response: Response,
    tenant_id: Annotated[
        str,
        Path(
            description="As in the file of API keys.",
            examples=["team-a"],
            json_schema_extra={"pattern": f"^{NAME_PATTERN}$"},
        ),
    ],
) -> DeletedOut:
    """Deletes in steps, so that other requests run in between. What the tenant sends during the deletion may
    stay: revoke its keys first. Repeat it until `complete`; once a tenant without a key has nothing left, the
    answer is 404."""
    if not is_name(tenant_id):
        raise InvalidField("That is not the name of a tenant. The file of API keys has the names.")
    rt.observer.deletes(tenant_id)
    known = await is_known(request, tenant_id)
    deleted, failure = await _deleted(rt, tenant_id)
    # Remains of damaged records are deleted, too, but are not counted.
    if not known and failure is None and not (deleted.results or deleted.sessions or deleted.entries):
        raise TenantNotFound
    rt.spend_caps.daily.forget(tenant_id)
    request.app.state.rates.forget(tenant_id)
    rt.readiness.invalidate()
    is_complete = deleted.complete and failure is None
    log_deleted_tenant(tenant_id, deleted.results, deleted.sessions, deleted.entries, is_complete)
    if failure is not None:
        raise failure
    response.status_code = 200 if deleted.complete else 202
    return deleted


async def _deleted(rt: Runtime, tenant: str) -> tuple[DeletedOut, StorageError | None]:
    """What was deleted; and the error, if results could not be deleted."""
    now = asyncio.get_running_loop().time
    ends = now() + DELETE_SECONDS
    deleted = DeletedOut(tenant=tenant, results=0, sessions=0, entries=0, complete=False)
    failure: StorageError | None = None
    while not deleted.complete and now() < ends:
        results = 0
        if failure is None:
            try:
                results = await rt.store.delete_tenant(tenant)
            except StorageError as error:
                # The sessions and the accounting are deleted in any case.
                failure = error
        purged = await rt.ledger.delete_tenant(tenant)
        deleted.results += results
        deleted.sessions += purged.sessions
        deleted.entries += purged.entries
        deleted.complete = not results and purged.is_done
        # sleep(0) lets other requests run even after a step in memory, which awaits nothing.
        await asyncio.sleep(0 if results or purged.sessions or purged.entries else _PAUSE_SECONDS)
    return deleted, failure
