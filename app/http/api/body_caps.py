"""The caps of a request's body: of text, of JSON, and of a route that carries no results."""

from typing import NamedTuple

from app.settings import Settings

PLAIN_BODY_BYTES = 1 << 20
"""The largest body of a route that carries no results."""

PLAIN_BODY_VALUES = 20_000
"""The most commas and opening brackets in such a body: it is parsed on the event loop."""


class BodyCap(NamedTuple):
    """The most bytes of a body, and of its JSON values if they are bounded. `advice` follows "The body is
    larger than"."""

    size: int
    advice: str
    values: int | None = None

    @classmethod
    def of_text(cls, settings: Settings) -> "BodyCap":
        size = settings.max_body_bytes
        return cls(size, f"{size} bytes (SPILLGATE_MAX_BODY_BYTES). Send it in parts, or less of it.")

    @classmethod
    def of_json(cls, settings: Settings) -> "BodyCap":
        size = settings.max_json_bytes
        if size >= settings.max_body_bytes:
            return cls.of_text(settings)
        return cls(
            size,
            f"{size} bytes, the most of JSON (SPILLGATE_MAX_JSON_BYTES). Send the result itself to POST "
            "/results as text/plain, which is streamed, with the other fields in the query.",
        )


PLAIN_CAP = BodyCap(PLAIN_BODY_BYTES, "1 MiB, the most that this route takes. Send less.", PLAIN_BODY_VALUES)
