"""Times in a query: Unix milliseconds, or ISO 8601."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import WithJsonSchema

from domain.errors import InvalidField

_TIME: dict[str, Any] = {
    "type": "string",
    "pattern": r"^(\d{1,15}|\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])([Tt ]\d\d:\d\d.*)?)$",
}
Time = Annotated[str | None, WithJsonSchema(_TIME), Query(max_length=64, description="Unix ms, or ISO 8601.")]


def milliseconds(text: str | None, field: str) -> int | None:
    """Unix ms. Raises InvalidField."""
    if text is None:
        return None
    try:
        if text.isascii() and text.isdigit() and len(text) < 16:
            return int(text)
        moment = datetime.fromisoformat(text)
        # No entry is from before 1970, and Redis takes no negative time.
        return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise InvalidField(f"`{field}` must be Unix milliseconds or an ISO 8601 time.") from None
