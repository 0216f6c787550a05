"""URLs of object stores and their options. Opens the store of a URL, and checks it before it is used.

s3://bucket[/prefix]         Amazon S3, and servers that speak its protocol
gs://bucket[/prefix]         Google Cloud Storage
az://container[/prefix]      Azure Blob Storage

Credentials are never in the URL: obstore takes them from the environment. Options after `?`:

timeout       1.9; seconds for a request with its retries. A slow uplink needs more: a request has up to 5 MiB
region        of s3
endpoint      of s3 and az: a server that speaks the protocol
account_name  of az
"""

import secrets
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import from_url

from domain.errors import ConfigError, StorageError
from domain.ports import Clock
from domain.quotas import QuotaOf, unbounded
from storage.base.schema import check_mark, mark
from storage.base.url_options import options_of
from storage.objects.bucket import Bucket
from storage.objects.layout import SCHEMA
from storage.objects.store import ObjectStore

TIMEOUT_SECONDS = 1.9
_COMMON = {"timeout"}
_OPTIONS = {
    "s3": _COMMON | {"region", "endpoint"},
    "gs": _COMMON,
    "az": _COMMON | {"account_name", "endpoint"},
}

_PLAIN = "Results travel to the object store unencrypted. Give its endpoint as https://."
_SCHEMA_PATH = "schema"


@dataclass(frozen=True, slots=True)
class ObjectUrl:
    """`prefix_url` is scheme, bucket and prefix; `config` holds keyword arguments of obstore."""

    prefix_url: str
    config: dict[str, str]
    timeout: float = TIMEOUT_SECONDS

    @property
    def is_plain(self) -> bool:
        """True for an endpoint without TLS."""
        return urlsplit(self.config.get("endpoint", "")).scheme == "http"


def parse_object_url(url: str) -> ObjectUrl:
    """Raises ConfigError. Its message never contains the URL."""
    parts = urlsplit(url)
    options = options_of(parts, "an object store")
    given = options.given
    known = _OPTIONS[parts.scheme]
    if "@" in parts.netloc or "@" in given.get("endpoint", ""):
        raise ConfigError(
            f"{parts.scheme}:// holds no user or password. Give credentials in the environment."
        )
    if not parts.netloc or parts.fragment:
        raise ConfigError(f"{parts.scheme}:// needs a bucket, as in {parts.scheme}://bucket/prefix.")
    if not given.keys() <= known:
        raise ConfigError(
            f"{parts.scheme}:// has the options {', '.join(sorted(known))} and no other. Give credentials in "
            "the environment."
        )
    if "endpoint" in given and urlsplit(given["endpoint"]).scheme not in ("http", "https"):
        raise ConfigError("endpoint of an object store starts with http:// or https://.")
    return ObjectUrl(
        f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}",
        {name: value for name, value in given.items() if name not in _COMMON},
        options.timeout() or TIMEOUT_SECONDS,
    )


def open_bucket(parsed: ObjectUrl) -> Bucket:
    """Sends no request yet. Raises ConfigError."""
    request = timedelta(seconds=parsed.timeout)
    try:
        store = from_url(  # type: ignore[call-overload]
            parsed.prefix_url,
            **parsed.config,
            client_options={
                "allow_http": parsed.is_plain,
                "timeout": request,
                "connect_timeout": request / 2,
                "user_agent": "spillgate",
            },
            retry_config={
                "max_retries": 3,
                "retry_timeout": request / 2,
                "backoff": {"init_backoff": request / 40, "max_backoff": request / 5, "base": 2},
            },
        )
    except (BaseError, ValueError) as error:
        raise ConfigError(
            f"SPILLGATE_STORAGE_URL: obstore cannot use it ({type(error).__name__}). Check bucket, prefix "
            "and the credentials in the environment."
        ) from None
    return Bucket(store, parsed.timeout)


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
        warnings=(_PLAIN,) if parsed.is_plain else (),
    )
    try:
        await make_ready(store)
    except BaseException:
        await store.close()
        raise
    return store


async def make_ready(store: ObjectStore) -> None:
    """Raises ConfigError if the bucket must not be used, or if there is no folder for temporary files."""
    try:
        tempfile.TemporaryFile().close()
    except OSError:
        raise ConfigError(
            "SPILLGATE_STORAGE_URL: results of more than 1 MiB wait in a temporary file, and "
            "there is no folder that takes one. Mount one at /tmp, or name one by TMPDIR."
        ) from None
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
        versioned = await bucket.run(bucket.get, path)
        if versioned is not None:
            is_conditional &= await bucket.run(bucket.update, path, b"third", versioned[1])
            is_conditional &= not await bucket.run(bucket.update, path, b"fourth", versioned[1])
        after = await bucket.run(bucket.get, path)
    finally:
        await bucket.run(bucket.delete, [path])
    if not is_conditional:
        raise ConfigError(
            "SPILLGATE_STORAGE_URL: this store ignores conditional writes (If-None-Match, If-Match). Retries "
            "of a call could overwrite each other. Use a store that honours them, such as Amazon S3, Google "
            "Cloud Storage, Azure Blob Storage or a current MinIO."
        )
    if versioned is None or versioned[0] != b"first" or after is None or after[0] != b"third":
        raise ConfigError("SPILLGATE_STORAGE_URL: this object store does not return what it was given.")


async def _check_schema(bucket: Bucket) -> None:
    """Raises ConfigError for another schema. Marks a bucket without a schema with the schema of this
    version."""
    if await bucket.run(bucket.create, _SCHEMA_PATH, mark(SCHEMA)):
        return
    schema = await bucket.run(bucket.get, _SCHEMA_PATH)
    check_mark("The bucket", "The object `schema` in the bucket", schema[0] if schema else b"", SCHEMA)
