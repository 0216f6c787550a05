"""What the protocol answers by itself, before or instead of the app."""

from collections.abc import Iterable
from typing import NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.errors import MEDIA_TYPE, body_of


class Refusal(NamedTuple):
    """A problem, and with it the end of the connection."""

    status: int
    code: str
    title: str
    detail: str
    retryable: bool = False

    def answer(self, headers: Iterable[tuple[bytes, bytes]], stored: bool | None) -> bytes:
        """All of the answer as it goes over the wire."""
        body = body_of(self.status, self.title, self.code, self.detail, "", self.retryable, stored)
        lines = [
            *headers,
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-store"),
            (b"connection", b"close"),
        ]
        return STATUS_LINE[self.status] + b"".join(b"%b: %b\r\n" % line for line in lines) + b"\r\n" + body


INVALID = Refusal(400, "malformed", "Malformed request", "This is not a valid HTTP/1.1 request.")
SLOW_HEAD = Refusal(
    408, "header_timeout", "Headers too slow", "The headers did not arrive in time. Try again.", True
)
SLOW_BODY = Refusal(
    408, "body_timeout", "Body too slow", "The body stopped arriving. Keep your copy and try again.", True
)
LARGE_HEAD = Refusal(
    431,
    "headers_too_large",
    "Headers too large",
    "Send at most 16 KiB of headers and 8 KiB of request target.",
)
CROWDED = Refusal(
    503, "overloaded", "Overloaded", "Too many connections are open. Try again in a moment.", True
)

REFUSALS = (INVALID, SLOW_HEAD, SLOW_BODY, LARGE_HEAD, CROWDED)
