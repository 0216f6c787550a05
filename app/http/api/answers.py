"""Answers: domain values as JSON and as headers, and the media type that a caller prefers."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType
from starlette.requests import Request

from app.http.api.schemas import named
from content.redaction.masks import NOT_SEARCHED
from domain.budget import Budget, ReportWarning
from domain.errors import SpillgateError
from domain.outcomes import Outcome, OutcomeKind, Trigger
from domain.results import Durability, Measure
from domain.structs import frozen_struct

encode = msgspec.json.Encoder().encode

_PASS = OutcomeKind.PASS


@frozen_struct
class BudgetOut:
    """A budget with what is computed from it."""

    limit_tokens: int
    used_tokens: int
    reserved_tokens: int
    remaining_tokens: int
    exhausted: bool
    enforced: bool


MAX_BLOCKS = 10_000
"""The most blocks of one content."""
_BLOCK = named(
    "ContentBlock",
    {
        "type": "object",
        "description": "A content block of MCP. A block of another type than `text` is governed by its JSON.",
        "required": ["type"],
        "properties": {"type": {"type": "string"}, "text": {"type": "string"}},
        "additionalProperties": True,
    },
)
CONTENT = named(
    "Content",
    {
        "description": "A text, or a list of content blocks of MCP.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": _BLOCK, "maxItems": MAX_BLOCKS}],
    },
)


class ResultOut(Struct, frozen=True):
    """The outcome of a result. `content` is what the model reads."""

    outcome: OutcomeKind
    # A string, JSON as it came, or UNSET.
    content: Any
    complete: bool
    trigger: Trigger | None
    handle: str | None
    measure: Measure
    budget: BudgetOut
    truncated_bytes: int | None
    truncated_total: int | None
    durability: Durability | None
    entry_id: str
    redacted: dict[str, int] | None
    redacts: bool
    warnings: tuple[str, ...]


async def cut_on_error(request: Request, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks of an answer that has begun. If one cannot be read, the connection ends."""
    try:
        async for chunk in chunks:
            yield chunk
    except SpillgateError as error:
        request.app.refused(error, request.method, request.scope["path"])
        request.scope["request_body"].cut()


_REPORT_WARNINGS = {
    ReportWarning.NEW_RUN: (
        "The usage report has a lower `turn` than the one before and was not sent before: it was applied as "
        "the start of a new run, with nothing reserved. Use one session for each run."
    ),
    ReportWarning.TURN_CHANGED: (
        "`used_tokens` differs from the report before of the same `turn`: it was applied, and the reserved "
        "tokens were kept. Count `turn` up when the context changes."
    ),
    ReportWarning.NOT_APPLIED: (
        "This call was answered before, so its usage report was not applied. Send new reports with new calls."
    ),
}


_NO_WINDOW = (
    "The context window of this session's model is not known, so no budget is enforced. Declare "
    "`context_window` with PUT /sessions/{id}, or under [models.NAME] in the policy file."
)


_NOT_SEARCHED = (
    "A part of the result could not be searched for secrets in time, and is masked as a whole. If the result "
    "is stored, a key of the role `reveal` reads it."
)


_NOT_RECORDED = (
    "The medium of the ledger is full: this result passed without an accounting entry, and its tokens are "
    "counted in this instance alone. GET /readyz says what is full."
)


def report_warnings(warning: ReportWarning | None) -> tuple[str, ...]:
    return () if warning is None else (_REPORT_WARNINGS[warning],)


def is_complete(outcome: Outcome, repairs: tuple[str, ...]) -> bool:
    """True if the content is byte-equal to the result that was sent."""
    return outcome.kind is _PASS and outcome.text is None and not repairs


def result_out(outcome: Outcome, content: str | Raw | UnsetType, repairs: tuple[str, ...]) -> ResultOut:
    """`repairs` say how the content that was governed differs from the content that was sent."""
    return ResultOut(
        outcome=outcome.kind,
        content=content,
        complete=is_complete(outcome, repairs),
        trigger=outcome.trigger,
        handle=None if outcome.handle is None else str(outcome.handle),
        measure=outcome.measure,
        budget=budget_out(outcome.budget),
        truncated_bytes=outcome.truncated_bytes,
        truncated_total=outcome.truncated_total,
        durability=outcome.durability,
        entry_id=outcome.entry_id,
        redacted=outcome.redacted,
        redacts=outcome.redacts,
        warnings=repairs + _warnings(outcome),
    )


def _warnings(outcome: Outcome) -> tuple[str, ...]:
    warnings = report_warnings(outcome.report_warning)
    if outcome.has_no_window:
        warnings += (_NO_WINDOW,)
    if NOT_SEARCHED in (outcome.redacted or ()):
        warnings += (_NOT_SEARCHED,)
    return warnings if outcome.is_recorded else (*warnings, _NOT_RECORDED)


def budget_out(budget: Budget) -> BudgetOut:
    return BudgetOut(
        budget.limit_tokens,
        budget.used_tokens,
        budget.reserved_tokens,
        budget.remaining_tokens,
        budget.exhausted,
        budget.enforced,
    )


def spillgate_headers(outcome: Outcome, repairs: tuple[str, ...]) -> dict[str, str]:
    """The headers of a text answer. A header is absent if the JSON field is null."""
    measure = outcome.measure
    headers = {
        "spillgate-outcome": outcome.kind.value,
        "spillgate-bytes": str(measure.bytes),
        "spillgate-lines": str(measure.lines),
        "spillgate-tokens": str(measure.tokens),
        "spillgate-complete": "true" if is_complete(outcome, repairs) else "false",
        "spillgate-budget-remaining": str(outcome.budget.remaining_tokens),
    }
    if outcome.trigger is not None:
        headers["spillgate-trigger"] = outcome.trigger.value
    if outcome.handle is not None:
        headers["spillgate-handle"] = str(outcome.handle)
    if outcome.truncated_bytes is not None:
        headers["spillgate-truncated-bytes"] = str(outcome.truncated_bytes)
    if outcome.truncated_total is not None:
        headers["spillgate-truncated-total"] = str(outcome.truncated_total)
    if outcome.durability is not None:
        headers["spillgate-durability"] = outcome.durability.value
    return headers


JSON, PLAIN = "application/json", "text/plain; charset=utf-8"


def wants_text(request: Request) -> bool:
    return prefers(request.headers.get("accept", ""), "text/plain")


def prefers(accept: str, media: str) -> bool:
    """True if the Accept header prefers `media` to JSON, the default of every route."""
    if not accept:
        return False
    weights = dict(map(_weight, accept.lower().split(",")))
    return _of(weights, media) > _of(weights, "application/json")


def _weight(part: str) -> tuple[str, float]:
    media, *parameters = (piece.strip() for piece in part.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return media, float(value)
            except ValueError:
                return media, 0.0
    return media, 1.0


def _of(weights: dict[str, float], media: str) -> float:
    """Returns the weight of a media type in the Accept header, that of the most specific range that includes
    it."""
    for wanted in (media, f"{media.partition('/')[0]}/*", "*/*"):
        if wanted in weights:
            return weights[wanted]
    return 0.0
