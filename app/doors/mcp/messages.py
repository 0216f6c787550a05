"""JSON-RPC messages of both eras of MCP: what a body holds, and the errors that answer a bad one.

Requests of the stateless era name its version in `params._meta`; all others are of the era of `initialize`.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from content.json_text import decoded
from domain.errors import BadRequest
from domain.mcp import MCP_META, NAMED_BY

STATELESS = "2026-07-28"
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26")
"""The versions that `initialize` agrees on, newest first."""

MOST_ID = 1 << 53
"""The largest numeric id: the JSON of many programs cannot hold a larger number exactly."""

_VERSION_FIELD = f"params._meta['{MCP_META}protocolVersion']"
_VERSION = re.compile(r"\d{4}-\d\d-\d\d")
_SENTINEL = re.compile(r"=\?base64\?(.*)\?=")

Params = dict[str, Any]
HeaderValues = Callable[[str], list[str]]
"""All values of the header with this name."""


class RpcCode(IntEnum):
    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    RESOURCE_NOT_FOUND = -32002  # in the era of `initialize` only
    HEADER_MISMATCH = -32020
    UNSUPPORTED_VERSION = -32022


_ALWAYS_400 = frozenset(
    {RpcCode.PARSE_ERROR, RpcCode.INVALID_REQUEST, RpcCode.HEADER_MISMATCH, RpcCode.UNSUPPORTED_VERSION}
)


class RpcError(Exception):
    """Becomes the `error` of a response. `message` repeats nothing of the request."""

    def __init__(self, code: RpcCode, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def status(self, *, is_stateless: bool) -> int:
        """The HTTP status. A client of the other era would take a 404 for the end of its session."""
        if self.code in _ALWAYS_400 or (is_stateless and self.code is RpcCode.INVALID_PARAMS):
            return 400
        return 404 if is_stateless and self.code is RpcCode.METHOD_NOT_FOUND else 200

    def body(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, **({"data": self.data} if self.data else {})}


@dataclass(frozen=True, slots=True)
class RpcCall:
    """A request that needs a response. `is_stateless`: the request is of the era without `initialize`."""

    id: str | int
    method: str
    params: Params
    is_stateless: bool


def parse(body: bytes) -> Any:
    """The JSON of a body. Raises RpcError."""
    try:
        return decoded(msgspec.json.decode, body)[0]
    except BadRequest:
        raise RpcError(RpcCode.PARSE_ERROR, "The body must be well-formed JSON in UTF-8.") from None


def id_of(message: Any) -> str | int | None:
    """The id for the response to a message, None if it has none that can be repeated."""
    id = message.get("id") if isinstance(message, dict) else None
    if isinstance(id, float) and id.is_integer():
        id = int(id)
    if isinstance(id, int) and not isinstance(id, bool) and -MOST_ID <= id <= MOST_ID:
        return id
    return id if isinstance(id, str) else None


def call_of(message: Any) -> RpcCall | None:
    """The request; None for a message that needs no response: a notification, or a response. Raises
    RpcError."""
    if isinstance(message, list):
        raise RpcError(RpcCode.INVALID_REQUEST, "Send one message in a body: there are no batches.")
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise RpcError(RpcCode.INVALID_REQUEST, "The message must be a JSON-RPC 2.0 object.")
    method = message.get("method")
    if method is None and ("result" in message or "error" in message):
        return None
    if not isinstance(method, str):
        raise RpcError(RpcCode.INVALID_REQUEST, "`method` must be a string.")
    if "id" not in message:
        return None
    call_id = id_of(message)
    if call_id is None:
        raise RpcError(RpcCode.INVALID_REQUEST, "`id` must be a string or an integer of at most 53 bits.")
    params = message.get("params")
    params = {} if params is None else params  # Some clients send null instead of omitting the member.
    if not isinstance(params, dict):
        raise RpcError(RpcCode.INVALID_PARAMS, "`params` must be an object.")
    return RpcCall(call_id, method, params, is_stateless(message))


def is_stateless(message: Any) -> bool:
    """True for a request that names its version itself."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and f"{MCP_META}protocolVersion" in meta


def check_version(call: RpcCall, headers: HeaderValues) -> None:
    """Raises RpcError for a version that is not served, and for headers that contradict the body."""
    versions = headers("mcp-protocol-version")
    if not call.is_stateless:
        if STATELESS in versions:
            raise _mismatch("MCP-Protocol-Version", _VERSION_FIELD)
        if call.method != "initialize" and (unknown := [one for one in versions if one not in HANDSHAKE]):
            raise _unsupported(unknown[0])
        return
    version = call.params["_meta"][f"{MCP_META}protocolVersion"]
    if versions != [version]:
        raise _mismatch("MCP-Protocol-Version", _VERSION_FIELD)
    if version != STATELESS:
        raise _unsupported(version)
    if headers("mcp-method") != [call.method]:
        raise _mismatch("Mcp-Method", "method")
    name = NAMED_BY.get(call.method)
    if name in call.params and [_plain(one) for one in headers("mcp-name")] != [call.params[name]]:
        raise _mismatch("Mcp-Name", f"params.{name}")


def _mismatch(header: str, field: str) -> RpcError:
    return RpcError(RpcCode.HEADER_MISMATCH, f"The header {header} must be given once and equal {field}.")


def _unsupported(requested: str) -> RpcError:
    """Repeats the requested version, as the protocol demands, if the version is a date."""
    data = {
        "supported": [STATELESS, *HANDSHAKE],
        "requested": requested if _VERSION.fullmatch(requested) else "",
    }
    return RpcError(RpcCode.UNSUPPORTED_VERSION, "This protocol version is not supported.", data)


def _plain(header: str) -> str | None:
    """The value of a header that may be written as `=?base64?…?=`; None if that is malformed."""
    match = _SENTINEL.fullmatch(header)
    if match is None:
        return header
    try:
        return base64.b64decode(match[1], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
