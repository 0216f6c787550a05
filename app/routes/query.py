"""A query over stored data."""

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel

from app.api.openapi import example_of
from app.api.routing import InRuntime, Tenant, traits
from app.edge.request_body import cancel_on_disconnect
from app.reading import account_texts, look_up
from app.runtime import Runtime
from content.data.jmespath import MAX_EXPRESSION_CHARS
from domain.errors import NotQueryable, QueryTooCostly
from domain.results import StoredResult
from extraction.queries import Query as DataQuery

router = APIRouter(tags=["results"])

UNCAPPED_BYTES = 1 << 18
"""How long an answer may be where the policy sets no size cap."""


class QueryOut(BaseModel):
    """`total` and `next_offset` are those of an array; `truncated`: `result` is not all of the value."""

    result: Any
    type: Literal["array", "object", "string", "number", "boolean", "null"]
    kind: Literal["json", "ndjson", "csv"]
    total: int | None
    next_offset: int | None
    truncated: bool


_COUNTED = QueryOut(
    result=[{"value": "ok", "count": 4117}, {"value": "failed", "count": 89}],
    type="array",
    kind="ndjson",
    total=2,
    next_offset=None,
    truncated=False,
)


@router.get(
    "/results/{handle:path}/query",
    summary="Query JSON, NDJSON, CSV or TSV",
    response_model=QueryOut,
    responses={200: example_of(_COUNTED)},
)
@traits(raises=(NotQueryable, QueryTooCostly))
async def get_query(
    request: Request,
    rt: InRuntime,
    tenant: Tenant,
    handle: Annotated[str, Path(description="As the handle message gives it.")],
    expression: Annotated[
        str,
        Query(min_length=1, max_length=MAX_EXPRESSION_CHARS, description="JMESPath, over all of the data."),
    ],
    limit: Annotated[int, Query(ge=1, le=10_000, description="Items of an array.")] = 100,
    offset: Annotated[int, Query(ge=0, description="Items to skip: the `next_offset` of a page.")] = 0,
) -> Response:
    stored = await look_up(rt, tenant, handle)
    query = DataQuery(expression, await _cap(rt, stored), stored.tool_name, limit, offset)
    running = rt.queries.run(stored.tenant, query, stored.measure.bytes, partial(rt.store.read, stored))
    found = await cancel_on_disconnect(request, running)
    await account_texts(rt, stored, [bytes(found.slice.result).decode()])
    answer = {**msgspec.structs.asdict(found.slice), "kind": found.kind}
    return Response(msgspec.json.encode(answer), media_type="application/json")


async def _cap(rt: Runtime, stored: StoredResult) -> int:
    """In bytes: an answer is held to what a result of this tool is held to."""
    session = await rt.ledger.session(stored.key)
    policy = rt.policies.policy(stored.tool_name, session.policy if session else None)
    return min(policy.max_bytes or UNCAPPED_BYTES, UNCAPPED_BYTES)
