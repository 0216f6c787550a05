"""POST /mcp: the model's tools and stored results for MCP clients, in the stateless and the older
protocol."""

from functools import partial
from typing import Any

import msgspec
from fastapi import Request, Response

from app.doors.mcp.messages import (
    MOST_ID,
    RpcError,
    call_of,
    check_version,
    id_of,
    is_stateless,
    parse,
)
from app.doors.mcp.methods import Methods
from app.http.api.answers import JSON
from app.http.api.openapi import body_of, json_of
from app.http.api.request_body import cancel_on_end
from app.http.api.routing import InRuntime, Router, Tenant, Traits, check_json
from app.http.api.schemas import named
from app.operations.tracing import carrier_of

router = Router(tags=["tools"])

_ID = named(
    "RpcId", {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": -MOST_ID, "maximum": MOST_ID}]}
)
_VERSION = {"type": "string", "enum": ["2.0"]}
_REQUEST = named(
    "RpcRequest",
    {
        "type": "object",
        "required": ["jsonrpc", "method"],
        "properties": {
            "jsonrpc": _VERSION,
            "id": _ID,
            "method": {"type": "string"},
            # Any type: for a wrong one the answer is a JSON-RPC error, whose status depends on the version.
            "params": {"description": "An object, by the method."},
        },
    },
)
_ERROR = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "data": {}},
}
_RESPONSE = named(
    "RpcResponse",
    {
        "type": "object",
        "required": ["jsonrpc", "id"],
        "properties": {
            "jsonrpc": _VERSION,
            "id": {"anyOf": [_ID, {"type": "null"}]},
            "result": {"type": "object", "additionalProperties": True},
            "error": named("RpcFailure", _ERROR),
        },
    },
)


@router.post(
    "/mcp",
    summary="The model's tools over the Model Context Protocol",
    description=(
        "JSON-RPC 2.0, one message in a body. A request with "
        "`params._meta['io.modelcontextprotocol/protocolVersion']` is of version 2026-07-28 and needs the "
        "headers MCP-Protocol-Version, Mcp-Method and Mcp-Name of that version; all others are of the era "
        "of `initialize`, 2025-11-25, 2025-06-18 or 2025-03-26."
    ),
    response_class=Response,
    openapi_extra=body_of(_REQUEST),
    responses={
        200: {"description": "The response.", "content": json_of(_RESPONSE)},
        202: {"description": "A notification or a response was taken."},
        400: {
            "description": "A JSON-RPC error: no JSON, no request, or wrong for its version. Or a problem.",
            "content": json_of(_RESPONSE),
        },
        404: {
            "description": "A JSON-RPC error of version 2026-07-28: no such method.",
            "content": json_of(_RESPONSE),
        },
    },
)
@Traits(writes=True)
async def post_mcp(request: Request, rt: InRuntime, tenant: Tenant) -> Response:
    check_json(request)
    refused = partial(request.app.refused, method=request.method, path=request.scope["path"])
    carrier = carrier_of(request.headers.raw)
    work = _answered(request, await request.body(), Methods(rt, tenant, refused, carrier))
    return await cancel_on_end(request, work)


async def _answered(request: Request, data: bytes, methods: Methods) -> Response:
    headers = request.headers.getlist
    message = None
    try:
        message = parse(data)
        call = call_of(message)
        if call is None:
            return Response(status_code=202)
        check_version(call, headers)
        return _response(200, {"jsonrpc": "2.0", "id": call.id, "result": await methods.answer(call)})
    except RpcError as error:
        failure = {"jsonrpc": "2.0", "id": id_of(message), "error": error.body()}
        return _response(error.status(is_stateless=is_stateless(message)), failure)


def _response(status: int, body: Any) -> Response:
    return Response(msgspec.json.encode(body), status, media_type=JSON)
