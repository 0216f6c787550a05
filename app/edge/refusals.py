"""What the protocol answers by itself, before or instead of the app."""

from collections.abc import Iterable
from typing import NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.api.problems import MEDIA_TYPE, encoded, headers_of, problem_of
from domain import errors


class Refusal(NamedTuple):
    """An error whose answer ends the connection."""

    error: errors.SpillgateError

    def answer(self, headers: Iterable[tuple[bytes, bytes]], stored: bool | None) -> bytes:
        """All of the answer as it goes over the wire."""
        body = encoded(problem_of(self.error, stored=stored))
        lines = [
            *headers,
            *[(name.lower().encode(), value.encode()) for name, value in headers_of(self.error).items()],
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-store"),
            (b"connection", b"close"),
        ]
        status = STATUS_LINE[self.error.status]
        return status + b"".join(b"%b: %b\r\n" % line for line in lines) + b"\r\n" + body


INVALID = Refusal(errors.BadRequest("This is not a valid HTTP/1.1 request."))
SLOW_HEAD = Refusal(errors.HeaderTimeout())
SLOW_BODY = Refusal(errors.BodyTimeout())
LARGE_HEAD = Refusal(errors.HeadersTooLarge())
CROWDED = Refusal(errors.Overloaded("Too many connections are open. Try again in a moment."))
