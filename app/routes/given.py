"""GET /results/{handle}/given: the texts that a model was given of a stored result."""

from typing import Annotated

from fastapi import Query

from app.api.routing import BodyOut, InRuntime, Router, Tenant, Traits
from app.operations.tracing import READ
from app.reading import given_text, look_up
from app.routes.stored import HandlePath
from domain.accounting import EntryFilter, EntryType
from domain.decisions import OutcomeKind

router = Router(tags=["results"])


class Given(BodyOut):
    """A text that a model was given: in place of the result (`tool`), as the answer to a question
    (`extract`), or read back (`read`). `text` is null where it was not kept."""

    entry_id: str
    type: EntryType
    timestamp: int
    outcome: OutcomeKind | None
    strategy: str | None
    tokens: int
    text: str | None


class GivenOut(BodyOut):
    """Oldest first."""

    given: list[Given]
    next_cursor: str | None


@router.get("/results/{handle:path}/given", summary="What the model was given of a stored result")
@Traits(span=READ)
async def get_given(
    rt: InRuntime,
    tenant: Tenant,
    handle: HandlePath,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> GivenOut:
    stored = await look_up(rt, tenant, handle)
    about = EntryFilter(tenant, stored.handle.session_id, handle=str(stored.handle))
    page = await rt.ledger.entries(about, limit, cursor)
    given = [
        Given(
            entry_id=entry.id,
            type=entry.type,
            timestamp=entry.timestamp,
            outcome=entry.outcome,
            strategy=entry.strategy,
            tokens=entry.tokens_out,
            text=await given_text(rt, stored, entry),
        )
        for entry in page.entries
        if entry.type is not EntryType.LLM
    ]
    return GivenOut(given=given, next_cursor=page.next_cursor)
