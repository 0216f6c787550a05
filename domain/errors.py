"""Every error that Spillgate raises on purpose, with its status, title and advice for the caller."""

import re
from collections.abc import Collection, Iterator
from typing import ClassVar

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


class SpillgateError(Exception):
    """`detail` tells the caller what to do and repeats no value that the caller sent. `cause` is for the log
    alone: what failed (the name of an errno, the code of a driver) and where (a path, an address). It never
    has content or a secret.

    `status` is the HTTP status, `title` names the error, `advice` says what to do about any error of this
    class. Responses, the OpenAPI document and the page of errors are made from these.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    advice: ClassVar[str] = ""
    retryable: bool = False
    """Whether the same request may work later, without a change by anyone."""
    retry_after: int | None = None
    """Seconds after which a retry may succeed; None if that is not known."""

    def __init__(self, detail: str = "", *, cause: str = "") -> None:
        """Without `detail`, `advice` is used."""
        self.detail = detail or self.advice
        self.cause = cause
        super().__init__(self.detail)

    @property
    def why(self) -> str:
        """`detail` and `cause`, for the log."""
        return f"{self.detail} Cause: {self.cause}." if self.cause else self.detail


class BadRequest(SpillgateError):
    code = "malformed"
    status = 400
    title = "Malformed request"
    advice = "Send valid HTTP/1.1, and a body that is what its Content-Type says."


class InvalidUtf8(BadRequest):
    code = "invalid_utf8"
    advice = "Send the body in UTF-8."


class HostNotAllowed(BadRequest):
    code = "host_not_allowed"
    title = "Host not allowed"
    advice = "Call by a name that SPILLGATE_ALLOWED_HOSTS lists; by default these are the loopback names."


class BadPattern(BadRequest):
    code = "bad_pattern"
    title = "Bad pattern"
    advice = "Write the pattern in RE2 syntax, simpler where it is too costly, or search with literal=true."


class InvalidField(SpillgateError):
    code = "invalid_field"
    status = 422
    title = "Invalid field"
    advice = "Correct the field or query parameter that `detail` names; it also says which values are taken."


class IdempotencyKeyReused(InvalidField):
    code = "idempotency_key_reused"
    title = "Idempotency key reused"
    advice = (
        "This tool_call_id or Idempotency-Key was used for other content in this session. Send the result "
        "again under another id, such as the SHA-256 of the id and the content."
    )


class InvalidPolicy(InvalidField):
    code = "invalid_policy"
    title = "Invalid policy"
    advice = "Correct the policy key that `detail` names. docs/reference/policy-keys.md lists the keys."


class BadQuery(InvalidField):
    """`near` is the part of the query that cannot be read. Only its author is shown it."""

    code = "bad_query"
    title = "Bad query"
    advice = "Correct the query. It is SQL where it begins with SELECT or WITH, else JMESPath."

    def __init__(self, detail: str = "", near: str = "") -> None:
        super().__init__(detail)
        self.near = near


class NotQueryable(InvalidField):
    code = "not_queryable"
    title = "Not queryable"
    advice = (
        "JMESPath reads JSON, NDJSON, CSV and TSV; SQL reads the lines of any other text too. Or search it."
    )


class QueryTooCostly(InvalidField):
    code = "query_too_costly"
    title = "Query too costly"
    advice = "Select less: filter before you sort, join or expand."


class Unauthorized(SpillgateError):
    code = "unauthorized"
    status = 401
    title = "API key needed"
    advice = "Send a known API key: `Authorization: Bearer <key>`."


class Forbidden(SpillgateError):
    code = "forbidden"
    status = 403
    title = "Not allowed"
    advice = "Use a key whose role may call the route; in a page, a host that SPILLGATE_ALLOWED_HOSTS lists."


class NotFound(SpillgateError):
    code = "not_found"
    status = 404
    title = "Not found"
    advice = "There is no such route. GET /openapi.json lists them."


class ResultNotFound(NotFound):
    code = "result_not_found"
    title = "Result not found"
    advice = "Use the handle exactly as the handle message gave it, with the same API key."


class SessionNotFound(NotFound):
    code = "session_not_found"
    title = "Session not found"
    advice = "Check the id. PUT opens a session; a first result does too."


class TenantNotFound(NotFound):
    code = "tenant_not_found"
    title = "Tenant not found"
    advice = (
        "Check the name. It has no key, no table in the policy file, and nothing stored or accounted: GET "
        "/tenants lists the tenants that have something."
    )


class MethodNotAllowed(SpillgateError):
    code = "method_not_allowed"
    status = 405
    title = "Method not allowed"
    advice = "Use a method that the Allow header lists."


class RequestTimeout(SpillgateError):
    status = 408
    retryable = True


class HeaderTimeout(RequestTimeout):
    code = "header_timeout"
    title = "Headers too slow"
    advice = "The headers did not arrive in time. Try again."


class BodyTimeout(RequestTimeout):
    code = "body_timeout"
    title = "Body too slow"
    advice = "The body stopped arriving. Keep your copy and try again."


class Conflict(SpillgateError):
    code = "session_changed"
    status = 409
    title = "Session changed during the request"
    advice = (
        "The session was ended, opened again or used by the same call during the request. "
        "Send the request again."
    )
    retryable = True


class Gone(SpillgateError):
    status = 410


class ResultExpired(Gone):
    code = "result_expired"
    title = "Result expired"
    advice = "The stored result was deleted or has expired. Call the tool again."


class SessionEnded(Gone):
    code = "session_ended"
    title = "Session ended"
    advice = "Open the session again with PUT /sessions/{id}, or use another id."


class QuotaReached(SpillgateError):
    """A tenant has reached a quota. The quotas and their texts: domain/quotas.py."""

    status = 429
    retryable = True


class TooManySessions(QuotaReached):
    code = "too_many_sessions"
    title = "Too many sessions"
    advice = (
        "End sessions that are done with, wait as long as Retry-After says, or raise SPILLGATE_MAX_SESSIONS."
    )


class TooManyRequests(QuotaReached):
    code = "too_many_requests"
    title = "Too many requests"
    advice = "Send fewer requests a second, and try again after the time in Retry-After."
    retry_after = 1


class SpendReached(QuotaReached):
    code = "spend_reached"
    title = "Model spend of the day reached"
    advice = "Ask with mode `retrieve` or `truncate`, which call no model, or wait until 00:00 UTC."


class BodyTooLarge(SpillgateError):
    code = "body_too_large"
    status = 413
    title = "Body too large"
    advice = (
        "Send JSON of at most SPILLGATE_MAX_JSON_BYTES, or the result itself to /results as text/plain, up "
        "to SPILLGATE_MAX_BODY_BYTES. Routes that take no results take at most 1 MiB."
    )


class UnsupportedMedia(SpillgateError):
    code = "unsupported_media_type"
    status = 415
    title = "Unsupported media type"
    advice = "Send application/json, uncompressed; to /results also text/* in UTF-8."


class RangeNotSatisfiable(SpillgateError):
    code = "range_not_satisfiable"
    status = 416
    title = "Range not satisfiable"
    advice = "Ask for a range within the result. Content-Range says how many bytes it has."

    def __init__(self, detail: str, size: int) -> None:
        super().__init__(detail)
        self.size = size


class HeadersTooLarge(SpillgateError):
    code = "headers_too_large"
    status = 431
    title = "Headers too large"
    advice = "Send at most 16 KiB of headers and 8 KiB of request target."


class InternalError(SpillgateError):
    code = "internal_error"
    status = 500
    title = "Internal error"
    advice = "The service failed; its log says where. Keep your copy and try again."
    retryable = True


class Incomplete(SpillgateError):
    code = "incomplete"
    status = 502
    title = "Incomplete"
    advice = "Ask about less of the result, allow more time, or leave require_complete out."


class Overloaded(SpillgateError):
    code = "overloaded"
    status = 503
    title = "Overloaded"
    advice = "Too much is open or in memory at this moment. Keep your copy and try again."
    retryable = True


class IssuerUnavailable(SpillgateError):
    code = "issuer_unavailable"
    status = 503
    title = "Issuer of tokens unavailable"
    advice = "The keys of the issuer of tokens are not known yet. Keep your copy and try again."
    retryable = True


class Draining(SpillgateError):
    code = "draining"
    status = 503
    title = "Shutting down"
    advice = "Keep your copy and try again: another instance, or this one once it runs again, will answer."
    retryable = True


class StorageError(SpillgateError):
    """A store or ledger failed; the data of the call is not kept."""

    code = "store_unavailable"
    status = 503
    title = "Store unavailable"
    advice = "Keep your copy and try again. The log and GET /readyz say what is wrong."
    retryable = True


class StoreUnavailable(StorageError):
    """It cannot be used now; it may be in a moment."""


class StoreBusy(StoreUnavailable):
    """All connections are in use. The server behind them may be healthy."""


class StoreFull(StorageError):
    code = "store_full"
    status = 507
    title = "Store full"
    advice = (
        "Delete results, or let the operator free disk space or raise SPILLGATE_STORAGE_MAX_BYTES, "
        "SPILLGATE_LEDGER_MAX_BYTES or SPILLGATE_LEDGER_TOTAL_MAX_BYTES."
    )


class TenantFull(StoreFull):
    """The quota of one tenant. There is room for others."""

    code = "tenant_full"
    title = "Tenant full"
    advice = "Delete results or end sessions of this tenant, or let the operator raise its quota."


def every_error(kind: type[SpillgateError] = SpillgateError) -> Iterator[type[SpillgateError]]:
    """Yields the subclasses of `kind` that define a `code`: the table of errors."""
    for child in kind.__subclasses__():
        if "code" in vars(child):
            yield child
        yield from every_error(child)


class ModelError(Exception):
    """A call to a model failed; extraction falls back. `detail` is a short reason for warnings and the
    accounting. It never quotes the backend."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class ModelUnavailable(ModelError):
    """The same call may succeed in a moment. `retry_after` is the pause in seconds that the backend asked
    for, or None."""

    def __init__(self, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """The model refuses every call: key, quota, unknown model. `status` is the backend's, for the log."""

    def __init__(self, detail: str, status: int | None = None) -> None:
        super().__init__(detail)
        self.status = status


class PromptRefused(ModelError):
    """The model refuses this prompt. It may answer another one."""


class ModelBadReply(ModelError):
    """The reply cannot be used."""


class PromptDeclined(ModelBadReply):
    """A content filter declined the prompt. The model is healthy."""


class ContextExceeded(ModelError):
    """The prompt is longer than the model's window."""


class ConfigError(Exception):
    """A setting is wrong. The message names it and says what to do."""


class PortInUse(ConfigError):
    """Another program listens at the port. `free` is one that was free just now, 0 for none."""

    def __init__(self, port: int, free: int) -> None:
        super().__init__(
            f"Port {port} is in use. Stop what listens there, or set SPILLGATE_PORT to another one."
        )
        self.port, self.free = port, free


def unknown_key(name: str, known: Collection[str]) -> str:
    """The rule part of an error `field: rule` about an unknown key. Repeats `name` only if it is close to a
    known key, and so a misspelling: any other name may be data of the caller."""
    import difflib  # The commands of a shell start faster without it.

    near = difflib.get_close_matches(name, known) if _NAME.fullmatch(name) else []
    if near:
        # Of names that are equally near, the one with its letters in another order.
        nearest = min(near, key=lambda other: sorted(other) != sorted(name))
        return f"`{name}` is not known here; the nearest known name is `{nearest}`"
    return f"a name is not known here; known are {', '.join(known) or 'none'}"
