"""POST /check: would a result of this size pass? Asked before the work is done."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from app.openapi import example_of
from app.routing import traits
from app.runtime import Runtime
from domain.decisions import Trigger
from domain.errors import InvalidField, SessionEnded
from domain.handles import DEFAULT_SESSION, SessionKey, checked_session_id
from domain.results import Measure
from policies import reject
from policies.decide import decide
from policies.facts import Facts, PolicyMode
from policies.oversized import breach_of

router = APIRouter(tags=["results"])

_BYTES_PER_TOKEN = 4
"""Of ordinary text, measured: code 3.7, JSON 2.6 to 4.3, logs 2.5. Where only bytes are known."""

Size = Annotated[int, Field(ge=0, le=1 << 50, strict=True)]


class CheckIn(BaseModel):
    """`bytes` or `tokens`, whichever is known. A `paginated` read is bounded already: it may go ahead."""

    model_config = ConfigDict(extra="forbid")

    session_id: str = DEFAULT_SESSION
    tool_name: Annotated[str, Field(min_length=1, max_length=256)]
    bytes: Size | None = None
    tokens: Size | None = None
    paginated: bool = False


class CheckOut(BaseModel):
    """`content` is what the model reads instead of a result, where it is not allowed. A policy that only
    observes allows all, and `trigger` says what would have fired."""

    allowed: bool
    trigger: Trigger | None
    content: str | None


@router.post(
    "/check",
    summary="Check a size before the work is done; reserves and stores nothing",
    responses={200: example_of("check")},
)
@traits(raises=(SessionEnded,))
async def post_check(request: Request, body: CheckIn) -> CheckOut:
    if body.bytes is None and body.tokens is None:
        raise InvalidField("Give the size: `bytes` or `tokens`.")
    rt: Runtime = request.app.state.runtime
    key = SessionKey(request.scope["tenant"], checked_session_id(body.session_id))
    terms = rt.policies.terms(None)
    session = (await rt.ledger.enter(key, None, None, terms.window, terms.told)).session
    terms = rt.policies.terms(session.model)
    policy = rt.policies.policy(body.tool_name, session.policy)
    budget = session.budget(terms.window, terms.told)
    size = max(body.bytes or 0, body.tokens or 0)  # a token is at least a byte
    tokens = body.tokens if body.tokens is not None else size // _BYTES_PER_TOKEN
    measure = Measure(size, 0, size, tokens, False)
    facts = Facts(measure, budget)
    trigger = None if body.paginated else decide(facts, policy)
    if trigger is None or policy.mode is PolicyMode.OBSERVE:
        return CheckOut(allowed=True, trigger=trigger, content=None)
    text = reject.refusal(body.tool_name, breach_of(trigger, facts, policy))
    return CheckOut(allowed=False, trigger=trigger, content=text)
