"""The schema of the keys in Redis: a mark for each deployment, written once and compared before any use."""

from collections.abc import Awaitable, Callable
from typing import Any

from domain import __version__
from domain.errors import StoreFull, StoreUnavailable
from storage.base.schema import Schema, refusal

SCHEMA_KEY = "spillgate:schema"
SCHEMA = 1
"""The schema of the keys and of their values."""

OURS = Schema(SCHEMA, __version__)


async def learn_schema(command: Callable[..., Awaitable[Any]]) -> Schema:
    """Marks a Redis without a schema with ours. `command` runs a command; None means that its key has another
    type. Raises StorageError."""
    asked = ("HMGET", SCHEMA_KEY, "number", "written_by")
    found = await command(*asked)
    if found is not None and found[0] is None:
        try:
            # Of several versions that start at the same time, one writes the number.
            await command("HSETNX", SCHEMA_KEY, "number", SCHEMA)
            await command("HSETNX", SCHEMA_KEY, "written_by", __version__)
        except StoreFull:
            # No mark, and it cannot be written: this is not the data of a newer version.
            return OURS
        found = await command(*asked)
    number, written_by = found or (None, None)
    if number is None or not number.isdigit():
        raise StoreUnavailable(f"The key {SCHEMA_KEY} is damaged. Restore it from a backup.")
    return Schema(int(number), (written_by or b"").decode(errors="replace"))


def check_schema(found: Schema) -> None:
    """Raises StoreUnavailable for a schema that this version must not use."""
    refused = refusal("Redis", found, SCHEMA)
    if refused is not None:
        raise StoreUnavailable(refused)
