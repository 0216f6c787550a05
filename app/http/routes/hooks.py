"""POST /hooks/{client}: takes the JSON of a coding agent's hook, and answers in the form that the agent
expects."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from msgspec import Raw

from app.answering.pass_on import pass_on
from app.doors.govern_call import arguments_of, govern_call
from app.http.api.answers import JSON
from app.http.api.openapi import body_of, json_of
from app.http.api.request_body import read_body
from app.http.api.routing import InRuntime, Router, Tenant, Traits, check_rate
from app.masking.redactions import new_session
from app.operations.logs import log_hook_passed
from app.operations.tracing import GOVERN
from app.runtime import Runtime
from beside.hooks.agents import CLIENTS
from content.json_text import as_json, read_document
from content.redaction.masks import masks_beside
from domain.doors import Door
from domain.errors import NotFound, SpillgateError
from domain.handles import SessionKey
from domain.hooks.call import HookCall, PendingCall, ended_session, in_shell, project_in
from domain.hooks.texts import text_in
from domain.references import UNRESOLVED

router = Router(tags=["hooks"])

ClientInPath = Annotated[
    str, Path(description="The coding agent.", json_schema_extra={"enum": list(CLIENTS)}, examples=["codex"])
]
InShell = Annotated[
    str,
    Query(
        max_length=512,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="How the agent's shell calls `spillgate` if it is not in the PATH.",
    ),
]
_ANSWER = (
    "`{}` if the result passes; else its replacement, in the shape of the tool's results. Before a call: "
    "`{}`, other arguments, or why the tool must not run."
)

PASS: dict[str, Any] = {}

_IN_FILE = "the agent keeps the whole output in a file, and shows a part of it"
_STATUS_IN_FILE = "the exit status stands only in a file of the agent: `spillgate hook` reads it"


@router.post(
    "/hooks/{client}",
    response_class=Response,
    summary="Answer a coding agent's hook: govern a tool's result, or hand stored results to a tool",
    responses={200: {"description": _ANSWER, "content": json_of({"type": "object"})}},
    openapi_extra=body_of({}, "The JSON of the agent's hook, as it comes.", required=False),
)
@Traits(carries_results=True, fails_open=True, span=GOVERN)
async def post_hook(
    client: ClientInPath, request: Request, rt: InRuntime, tenant: Tenant, shell: InShell = ""
) -> Response:
    """Takes the JSON of the agent's hook. Answers with the JSON by which that agent replaces the result, or
    `{}` if the result passes. If an error occurs, the answer is `{}`, the agent keeps its result, and the log
    has the error. Only a request that is not admitted (401, 413) is answered with a problem."""
    if client not in CLIENTS:
        raise NotFound
    answer = as_json(PASS)
    if not request.app.state.draining:
        try:
            check_rate(request)
            body = await read_body(request.scope, request.receive)
            hold = request.scope["request_body"].hold
            answer = as_json(await hook_answer(client, body, tenant, rt, hold, shell))
        except SpillgateError as error:
            request.app.refused(error, "POST", request.url.path)
    return Response(answer, media_type=JSON)


async def hook_answer(
    client: str,
    body: bytes | bytearray,
    tenant: str,
    rt: Runtime,
    hold: Callable[[int], None],
    shell: str = "",
) -> Any:
    """The answer for the agent, as a value or a Raw. `{}` at the end of a session, and for a result that
    passes, that comes from Spillgate's own tool, or whose shape is unknown. `hold`: see `RequestBody.hold`.
    Raises SpillgateError."""
    payload = await read_document(body, rt.parsing)
    reader = CLIENTS[client]
    inner = reader.inner_json
    if inner and (text := text_in(payload, inner)) is not None:
        hold(len(text))
        payload = {**payload, inner: await read_document(text.encode(), rt.parsing)}
    if (ended := ended_session(payload)) is not None:
        await rt.ledger.release(SessionKey(tenant, ended))
        return PASS
    pending = reader.before(payload)
    if pending is not None:
        return await _passed_on(client, pending, tenant, rt) if pending.refers else PASS
    call = reader.read(payload)
    if call is None:
        log_hook_passed(client, "the payload has a shape that this hook does not replace")
        return PASS
    if not call.is_governable:
        return PASS
    if not call.may_pay:
        return await _masked(call, None, tenant, reader.door, rt)
    # The service does not open files that a request names; `spillgate hook` does.
    if call.spilled is not None or call.status_in is not None:
        log_hook_passed(client, _IN_FILE if call.status_in is None else _STATUS_IN_FILE)
        return await _masked(call, None, tenant, reader.door, rt)
    call = call._replace(client=client, project=project_in(payload))
    outcome = await govern_call(call, arguments_of(call), tenant, reader.door, rt)
    text = outcome.text
    if text is not None and not call.pays(text):
        return await _masked(call, None, tenant, reader.door, rt)
    if text is not None and shell:
        text = in_shell(text, shell)
    if outcome.redacts:
        return await _masked(call, text, tenant, reader.door, rt)
    return PASS if text is None else call.answer(text)


async def _masked(call: HookCall, text: str | None, tenant: str, door: Door, rt: Runtime) -> Any:
    """The answer for the agent with masks, both in `text` (None: in what the agent shows) and in all that the
    agent shows beside it. `{}` if nothing needs to be replaced. There is no accounting entry."""
    key = SessionKey(tenant, call.session_id)
    redaction = rt.redactions.of_tool(await rt.ledger.session(key) or new_session(key), call.tool, door)
    if redaction is None:
        return PASS if text is None else call.answer(text)
    masked = partial(redaction.masked_json, keeps_numbers=True)
    if text is None:
        shown = as_json(call.shown)
        if await masked(shown) is shown:
            return PASS
        text = "\n".join(call.texts)
    answer = as_json(call.answer(text))
    shown = await masked(answer)
    if shown is not answer:
        rt.observer.masked(masks_beside(text, shown.decode()))
    return Raw(shown)


async def _passed_on(client: str, call: PendingCall, tenant: str, rt: Runtime) -> dict[str, Any]:
    """The answer for the agent to a pending call that refers to stored results."""
    try:
        passed = await pass_on(SessionKey(tenant, call.session_id), call.tool, call.arguments, rt)
        if passed.arguments is None:
            return call.refused(passed.refusal or UNRESOLVED)
        arguments = b"".join([chunk async for chunk in passed.arguments])
    except SpillgateError as error:
        log_hook_passed(client, f"no stored result could be handed on, {error.code}; the tool did not run")
        # With the references as its arguments, the tool would do something that the model does not want.
        return call.refused(UNRESOLVED)
    return call.changed(Raw(arguments))
