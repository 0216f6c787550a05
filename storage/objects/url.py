"""URLs of object stores, and the bucket behind one.

s3://bucket[/prefix]         Amazon S3, and servers that speak its protocol
gs://bucket[/prefix]         Google Cloud Storage
az://container[/prefix]      Azure Blob Storage

After `?`, for all: `timeout` (2.3; seconds for a request with its retries) and `cache_bytes` (67108864;
bytes of bodies that are kept in memory for reading); for s3: `region`, `endpoint`; for az: `account_name`,
`endpoint`. Credentials are never in the URL: obstore takes them from the environment.
"""

from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

from obstore.exceptions import BaseError
from obstore.store import from_url

from domain.errors import ConfigError
from storage.objects.bucket import Bucket

TIMEOUT_SECONDS = 2.3
CACHE_BYTES = 1 << 26
_COMMON = {"timeout", "cache_bytes"}
_OPTIONS = {
    "s3": _COMMON | {"region", "endpoint"},
    "gs": _COMMON,
    "az": _COMMON | {"account_name", "endpoint"},
}


@dataclass(frozen=True, slots=True)
class ObjectUrl:
    """`place` is scheme, bucket and prefix; `config` holds keyword arguments of obstore."""

    place: str
    config: dict[str, str]
    timeout: float = TIMEOUT_SECONDS
    cache_bytes: int = CACHE_BYTES

    @property
    def is_plain(self) -> bool:
        """True for an endpoint without TLS."""
        return urlsplit(self.config.get("endpoint", "")).scheme == "http"


def parse_object_url(url: str) -> ObjectUrl:
    """Raises ConfigError. Its message never contains the URL."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = _OPTIONS[parts.scheme]
    if "@" in parts.netloc or "@" in options.get("endpoint", ""):
        raise ConfigError(
            f"{parts.scheme}:// holds no user or password. Give credentials in the environment."
        )
    if not parts.netloc or parts.fragment:
        raise ConfigError(f"{parts.scheme}:// needs a bucket, as in {parts.scheme}://bucket/prefix.")
    if not options.keys() <= known:
        raise ConfigError(
            f"{parts.scheme}:// has the options {', '.join(sorted(known))} and no other. Give credentials in "
            "the environment."
        )
    if "endpoint" in options and urlsplit(options["endpoint"]).scheme not in ("http", "https"):
        raise ConfigError("endpoint of an object store starts with http:// or https://.")
    return ObjectUrl(
        f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}",
        {name: value for name, value in options.items() if name not in _COMMON},
        _seconds(options.get("timeout", str(TIMEOUT_SECONDS))),
        _bytes(options.get("cache_bytes", str(CACHE_BYTES))),
    )


def open_bucket(parsed: ObjectUrl) -> Bucket:
    """Sends no request yet. Raises ConfigError."""
    request = timedelta(seconds=parsed.timeout)
    try:
        store = from_url(  # type: ignore[call-overload]
            parsed.place,
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


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 60:
        raise ConfigError("timeout of an object store is a number of seconds from 0.1 to 60.")
    return seconds


def _bytes(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigError("cache_bytes of an object store is a number of bytes; 0 keeps none.")
    return int(text)
