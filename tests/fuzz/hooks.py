"""What the OpenAPI document cannot say of a valid request; schemathesis imports this file by its path."""

import os
import zlib
from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Requests that are to be valid. A JSON body of POST /results takes no query, a text body its fields from
    there; half of the handles name a result that exists."""
    if case.operation.label == "DELETE /sessions/{session_id}":
        # The session `default` is emptied and never ended: `use_after_free` knows of no such resource.
        if case.path_parameters.get("session_id") == "default":
            case.path_parameters = {**case.path_parameters, "session_id": "demo"}
        return
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if case.operation.label == "POST /results":
        if case.media_type == "application/json":
            case.query = {}
        else:
            case.query = {"tool_name": "read_file", **(case.query or {})}
    handle = os.environ["FUZZ_HANDLE"]
    if case.operation.label == "POST /extract" and isinstance(case.body, dict) and _half(case.body):
        case.body = {**case.body, "handle": handle}
    elif "{handle}" in case.path and case.method != "DELETE" and _half(case.query):
        case.path_parameters = {**case.path_parameters, "handle": handle}
        if case.path.endswith("/query"):
            case.query = {**case.query, "expression": "[?id > `7`].name"}


def _half(value: object) -> bool:
    """True for half of all values, the same each time: a finding can be replayed."""
    return zlib.crc32(repr(value).encode("utf-8", "replace")) % 2 == 0
