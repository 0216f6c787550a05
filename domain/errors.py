"""Every error Spillgate raises on purpose.

SpillgateError
├── BadRequest            malformed, or not for us
│   ├── InvalidUtf8
│   ├── HostNotAllowed
│   └── BadPattern
├── InvalidField          well-formed, but a value is wrong
│   ├── IdempotencyKeyReused
│   ├── InvalidPolicy
│   ├── NotQueryable      the result is no data that can be queried
│   └── QueryTooCostly    it takes more time, memory or room than a query has
├── Unauthorized · Forbidden
├── NotFound
│   ├── ResultNotFound
│   └── SessionNotFound
├── Gone
│   ├── ResultExpired
│   └── SessionEnded
├── TooManySessions       the tenant has as many sessions as it may
├── Conflict              the session changed under a result on its way
├── BodyTooLarge · UnsupportedMedia · RangeNotSatisfiable
├── Incomplete            the caller asked for all or nothing
├── Overloaded · Draining
└── StorageError
    ├── StoreUnavailable
    └── StoreFull
ModelError                a call to a model failed: extraction falls back, a client never sees it
├── ModelUnavailable      the same call may succeed in a moment
├── ModelRefused          the same call will fail again: another model may do
├── ModelBadReply         an answer came that cannot be used
│   └── PromptDeclined    for what the prompt says: it tells nothing of the model
└── ContextExceeded       the prompt was longer than the model's window
ConfigError               refuses to start; never reaches a client
"""

from typing import ClassVar


class SpillgateError(Exception):
    """Carries a sentence for the caller that says what to do; never a piece of the caller's input."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class BadRequest(SpillgateError):
    code = "malformed"


class InvalidUtf8(BadRequest):
    code = "invalid_utf8"


class HostNotAllowed(BadRequest):
    code = "host_not_allowed"


class BadPattern(BadRequest):
    code = "bad_pattern"


class InvalidField(SpillgateError):
    code = "invalid_field"


class IdempotencyKeyReused(InvalidField):
    code = "idempotency_key_reused"


class InvalidPolicy(InvalidField):
    code = "invalid_policy"


class NotQueryable(InvalidField):
    code = "not_queryable"


class QueryTooCostly(InvalidField):
    code = "query_too_costly"


class Unauthorized(SpillgateError):
    code = "unauthorized"


class Forbidden(SpillgateError):
    code = "forbidden"


class NotFound(SpillgateError):
    code = "not_found"


class ResultNotFound(NotFound):
    code = "result_not_found"


class SessionNotFound(NotFound):
    code = "session_not_found"


class Gone(SpillgateError):
    code = "gone"


class ResultExpired(Gone):
    code = "result_expired"


class SessionEnded(Gone):
    code = "session_ended"


class Conflict(SpillgateError):
    code = "in_flight"
    retryable = True


class TooManySessions(SpillgateError):
    code = "too_many_sessions"
    retryable = True


class BodyTooLarge(SpillgateError):
    code = "body_too_large"


class UnsupportedMedia(SpillgateError):
    code = "unsupported_media_type"


class RangeNotSatisfiable(SpillgateError):
    code = "range_not_satisfiable"

    def __init__(self, detail: str, size: int) -> None:
        super().__init__(detail)
        self.size = size


class Incomplete(SpillgateError):
    code = "incomplete"


class Overloaded(SpillgateError):
    code = "overloaded"
    retryable = True


class Draining(SpillgateError):
    code = "draining"
    retryable = True


class StorageError(SpillgateError):
    """A store or ledger could not do it; what it was given is not kept."""

    code = "storage_error"
    retryable = True


class StoreUnavailable(StorageError):
    code = "store_unavailable"


class StoreBusy(StoreUnavailable):
    """There is more to do than there are connections: that says nothing of the server behind them."""


class StoreFull(StorageError):
    code = "store_full"


class ModelError(Exception):
    """`detail` is a short reason, said in warnings and in the accounting: never a backend's own words."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class ModelUnavailable(ModelError):
    """`retry_after` in seconds, where the backend asked for a pause; None where it did not."""

    def __init__(self, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class ModelRefused(ModelError):
    pass


class ModelBadReply(ModelError):
    pass


class PromptDeclined(ModelBadReply):
    pass


class ContextExceeded(ModelError):
    pass


class ConfigError(Exception):
    """A setting that cannot be honoured; the message names it and says what to do."""
