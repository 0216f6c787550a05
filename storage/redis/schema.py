"""The schema of the keys in Redis: a mark for each deployment, written once and compared before any use."""

from collections.abc import Awaitable, Callable

from domain import __version__
from domain.errors import StoreFull, StoreUnavailable
from storage.base.schema import Schema, refusal

SCHEMA_KEY = "spillgate:schema"
SCHEMA = 1
"""The schema of the keys and of their values."""

OURS = Schema(SCHEMA, __version__)


async def learn_schema(run: Callable[..., Awaitable[list[bytes]]]) -> Schema:
    """Marks a Redis without a schema with ours. `run` runs a script. Raises StorageError."""
    try:
        number, written_by = await run("schema", (SCHEMA_KEY,), (SCHEMA, __version__))
    except StoreFull:
        # No mark, and it cannot be written: this is not the data of a newer version.
        return OURS
    if not number.isdigit():
        raise StoreUnavailable(f"The key {SCHEMA_KEY} is damaged. Restore it from a backup.")
    return Schema(int(number), written_by.decode(errors="replace"))


def check_schema(found: Schema) -> None:
    """Raises StoreUnavailable for a schema that this version must not use."""
    refused = refusal("Redis", found, SCHEMA)
    if refused is not None:
        raise StoreUnavailable(refused)
