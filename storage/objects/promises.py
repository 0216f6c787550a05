"""Checks at the start that an object store writes conditionally, and returns what it was given."""

from domain.errors import ConfigError
from storage.objects.bucket import Bucket


async def check_promises(bucket: Bucket, path: str) -> None:
    """Writes the object `path` and deletes it. Raises ConfigError for a store that cannot be used, and
    StorageError."""
    run = bucket.run
    try:
        is_first = await run(bucket.create, path, b"first")
        is_conditional = is_first and not await run(bucket.create, path, b"second")
        found = await run(bucket.get, path)
        if is_conditional and found is not None:
            updated = await run(bucket.update, path, b"third", found[1])
            is_conditional = updated and not await run(bucket.update, path, b"fourth", found[1])
        after = await run(bucket.get, path)
    finally:
        await run(bucket.delete, [path])
    if not is_conditional:
        raise ConfigError(
            "SPILLGATE_STORAGE_URL: this store ignores conditional writes (If-None-Match, If-Match). "
            "Retries of a call could overwrite each other. Use a store that honours them, such as Amazon "
            "S3, Google Cloud Storage, Azure Blob Storage or a current MinIO."
        )
    if found is None or found[0] != b"first" or after is None or after[0] != b"third":
        raise ConfigError("SPILLGATE_STORAGE_URL: this object store does not return what it was given.")
