"""Opens an object store: whether it keeps its promises, and its schema."""

import secrets
from collections.abc import Callable

import msgspec

from domain import __version__
from domain.errors import ConfigError, StorageError
from domain.ports import Clock
from domain.quotas import QuotaOf, unbounded
from storage.base.schema import Schema, refusal
from storage.objects.bucket import Bucket
from storage.objects.layout import SCHEMA
from storage.objects.store import ObjectStore
from storage.objects.url import open_bucket, parse_object_url

_PLAIN = "Results travel to the object store unencrypted. Give its endpoint as https://."
_SCHEMA_PATH = "schema"
_decode_schema: Callable[[bytes], Schema] = msgspec.json.Decoder(Schema).decode


async def open_objects(
    url: str, *, clock: Clock, retention_seconds: float, max_bytes: int, quota_of: QuotaOf = unbounded
) -> ObjectStore:
    """Raises ConfigError."""
    parsed = parse_object_url(url)
    store = ObjectStore(
        open_bucket(parsed),
        clock=clock,
        retention_seconds=retention_seconds,
        max_bytes=max_bytes,
        quota_of=quota_of,
        cache_bytes=parsed.cache_bytes,
        warnings=(_PLAIN,) if parsed.is_plain else (),
    )
    try:
        await make_ready(store)
    except BaseException:
        await store.close()
        raise
    return store


async def make_ready(store: ObjectStore) -> None:
    """Raises ConfigError for a bucket that must not be used."""
    try:
        await _check_promises(store.bucket)
        await _check_schema(store.bucket)
    except StorageError as error:
        raise ConfigError(
            f"SPILLGATE_STORAGE_URL: {error.detail} Check bucket, endpoint, region, and credentials in the "
            "environment."
        ) from None


async def _check_promises(bucket: Bucket) -> None:
    path = f"probe-{secrets.token_hex(8)}"
    try:
        is_conditional = await bucket.run(bucket.create, path, b"first")
        is_conditional &= not await bucket.run(bucket.create, path, b"second")
        found = await bucket.run(bucket.get, path)
        if found is not None:
            is_conditional &= await bucket.run(bucket.update, path, b"third", found[1])
            is_conditional &= not await bucket.run(bucket.update, path, b"fourth", found[1])
        after = await bucket.run(bucket.get, path)
    finally:
        await bucket.run(bucket.delete, [path])
    if not is_conditional:
        raise ConfigError(
            "SPILLGATE_STORAGE_URL: this store ignores conditional writes (If-None-Match, If-Match). Retries "
            "of a call could overwrite each other. Use a store that honours them, such as Amazon S3, Google "
            "Cloud Storage, Azure Blob Storage or a current MinIO."
        )
    if found is None or found[0] != b"first" or after is None or after[0] != b"third":
        raise ConfigError("SPILLGATE_STORAGE_URL: this object store does not return what it was given.")


async def _check_schema(bucket: Bucket) -> None:
    """Marks a bucket without a schema with ours."""
    ours = msgspec.json.encode(Schema(SCHEMA, __version__))
    if await bucket.run(bucket.create, _SCHEMA_PATH, ours):
        return
    found = await bucket.run(bucket.get, _SCHEMA_PATH)
    try:
        refused = refusal("The bucket", _decode_schema(found[0] if found else b""), SCHEMA)
    except msgspec.DecodeError:
        refused = "The object `schema` in the bucket is damaged. Restore it from a backup."
    if refused is not None:
        raise ConfigError(refused)
