"""The settings, the policy for a tool and the models in force; and what another policy would have done."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query
from msgspec import to_builtins
from pydantic import Field

from app.config_report import ANY, mask_url, report_on
from app.http.api.bodies import INTEGRAL, BodyIn, BodyOut
from app.http.api.result_request import policy_text
from app.http.api.roles import KeyRole
from app.http.api.routing import InRuntime, Router, Tenant, Traits
from app.runtime import Runtime
from beside.hooks.agents import DOORS
from domain.accounting import AccountingEntry, EntryFilter, EntryType
from domain.errors import InvalidPolicy
from domain.outcomes import OutcomeKind, Trigger
from extraction.models.pool import ModelState
from policies.policy import Policy
from policies.what_if import MESSAGE_TOKENS, would_be

router = Router(tags=["policy"])

MOST_ENTRIES = 1000
MOST_CHANGED = 100

ToolInQuery = Annotated[
    str, Query(min_length=1, max_length=256, description="`*`: a tool that no glob names.")
]


class SetBy(BodyOut):
    settings: dict[str, str]
    policy: dict[str, str]
    terms: dict[str, str]
    quotas: dict[str, str]


class ConfigOut(BodyOut):
    """`set_by` names the source that set each key. `quotas` are those of `tenant`; 0 = none. Secrets are
    masked."""

    tenant: str
    tool: str
    policy: dict[str, Any]
    model: str | None
    terms: dict[str, Any]
    quotas: dict[str, Any]
    settings: dict[str, Any]
    set_by: SetBy
    models: list[ModelState]


@router.get(
    "/config",
    summary="Settings, policy for a tool and models in force, each with the source that set it",
)
@Traits(roles=(KeyRole.ADMIN,))
async def get_config(
    rt: InRuntime,
    tenant: Tenant,
    tool_name: ToolInQuery = ANY,
    model: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
) -> ConfigOut:
    """The same as `spillgate check-config --json`, for the caller's tenant and without secrets."""
    report = report_on(rt.settings, rt.policies, tool_name, model, (tenant,)).as_dict()
    every = to_builtins(rt.policies.policy(tool_name))
    set_by = report["set_by"]
    set_by["quotas"] = set_by["quotas"][tenant]
    set_by["policy"] = dict.fromkeys(every, "default") | set_by["policy"]
    states = rt.model_pool.states()
    return ConfigOut(
        tenant=tenant,
        tool=report["tool"],
        policy=every | report["policy"],
        model=report["model"],
        terms=report["terms"],
        quotas=report["quotas"][tenant],
        settings=report["settings"],
        set_by=SetBy(**set_by),
        models=[replace(one, base_url=mask_url(one.base_url)) for one in states],
    )


class WhatIfIn(BodyIn):
    """`policy` holds policy keys, as for a session. Without `tool_name`, results of all tools are decided."""

    policy: dict[str, Any]
    tool_name: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_ENTRIES, strict=True), INTEGRAL] = MOST_ENTRIES


class OutcomeSum(BodyOut):
    outcome: OutcomeKind
    results: int
    tokens: int


class Changed(BodyOut):
    """One result whose outcome would differ. `tokens` are those that the model reads."""

    entry_id: str
    timestamp: int
    session_id: str
    tool_name: str
    bytes: int
    outcome: OutcomeKind
    tokens: int
    would_be: OutcomeKind
    would_be_trigger: Trigger | None
    would_be_tokens: int


class WhatIfOut(BodyOut):
    """`was` and `would_be` are sums by outcome over the newest `results` results, the oldest of which is of
    `since` (Unix ms). `changed` lists those with the greatest difference in tokens, out of
    `changed_results`."""

    results: int
    since: int | None
    was: list[OutcomeSum]
    would_be: list[OutcomeSum]
    changed_results: int
    changed: list[Changed]


@router.post(
    "/policy/what-if",
    summary="What a policy would have made of the newest results; changes nothing",
)
@Traits(roles=(KeyRole.ADMIN,), raises=(InvalidPolicy,))
async def post_what_if(rt: InRuntime, tenant: Tenant, body: WhatIfIn) -> WhatIfOut:
    """Decides again about the newest results, at most 1,000, from their accounting entries alone. The tokens
    of a changed outcome are estimated."""
    text = policy_text(body.policy)
    rt.policies.check_override(text)
    of_tools = EntryFilter(tenant, type=EntryType.TOOL, tool_name=body.tool_name)
    entries = (await rt.ledger.entries(of_tools, body.limit, None, newest_first=True)).entries
    stored = [one.tokens_out for one in entries if one.outcome is OutcomeKind.STORE]
    message = round(sum(stored) / len(stored)) if stored else MESSAGE_TOKENS
    pairs = [(one, would_be(one, _policy(rt, one, text), message)) for one in entries]
    changed = [pair for pair in pairs if pair[0].outcome is not pair[1].outcome]
    changed.sort(key=lambda pair: -abs(pair[0].tokens_out - pair[1].tokens))
    return WhatIfOut(
        results=len(entries),
        since=entries[-1].timestamp if entries else None,
        was=_sums((one.outcome or OutcomeKind.PASS, one.tokens_out) for one in entries),
        would_be=_sums((other.outcome, other.tokens) for _, other in pairs),
        changed_results=len(changed),
        changed=[
            Changed(
                entry_id=entry.id,
                timestamp=entry.timestamp,
                session_id=entry.session_id,
                tool_name=entry.tool_name,
                bytes=entry.details.bytes,
                outcome=entry.outcome or OutcomeKind.PASS,
                tokens=entry.tokens_out,
                would_be=other.outcome,
                would_be_trigger=other.trigger,
                would_be_tokens=other.tokens,
            )
            for entry, other in changed[:MOST_CHANGED]
        ],
    )


def _policy(rt: Runtime, entry: AccountingEntry, text: str) -> Policy:
    """The policy that would be in force for the result of the entry, through the door by which it came."""
    door = DOORS.get(entry.client or "")
    if door is not None and entry.details.client_passes:
        door = door._replace(passes=door.passes | {entry.tool_name})
    return rt.policies.policy(entry.tool_name, text, door=door)


def _sums(outcomes: Iterable[tuple[OutcomeKind, int]]) -> list[OutcomeSum]:
    """In the order of the outcomes' names."""
    results, tokens = Counter[OutcomeKind](), Counter[OutcomeKind]()
    for kind, count in outcomes:
        results[kind] += 1
        tokens[kind] += count
    return [OutcomeSum(outcome=kind, results=results[kind], tokens=tokens[kind]) for kind in sorted(results)]
