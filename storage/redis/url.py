"""Redis URLs, their options, and the clients of redis-py for them.

redis://[user:password@]host[:6379][/db]                         one server
rediss://…                                                       the same over TLS
redis+sentinel://[user:password@]host[:26379],host…/service[/db]  the primary that sentinels name
redis+cluster://[user:password@]host[:6379],host…                 a cluster, found through any of its nodes

User and password are percent-encoded. Options after `?`:

max_connections      64; for bodies, and as many for the ledger
allow_eviction=true  accepts a server that may evict keys, with a warning
wait_aof=false       writes do not wait for the append-only file under `appendfsync everysec`
wait_replicas        0, with sentinel 1; how many replicas must confirm each write, else 503
timeout              0.8; seconds for an operation, then 503. A Redis in another zone needs more
tls=true             TLS with sentinel and cluster
ssl_ca_certs         with TLS; so `ssl_certfile`, `ssl_keyfile`, `ssl_check_hostname`
ssl_cert_reqs        `required` or `none`
sentinel_username    of the sentinels; so `sentinel_password`
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.connection import ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

from domain.errors import ConfigError
from storage.base import bounded
from storage.base.url_options import UrlOptions, known_options_of

Topology = Literal["single", "sentinel", "cluster"]
HostPort = tuple[str, int]
MAX_CONNECTIONS = 64

_KINDS: dict[str, Topology] = {
    "redis": "single",
    "rediss": "single",
    "redis+sentinel": "sentinel",
    "redis+cluster": "cluster",
}
_TLS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
_COMMON = {"max_connections", "allow_eviction", "wait_aof", "wait_replicas", "timeout", *_TLS}
_OPTIONS = {
    "single": _COMMON,
    "sentinel": _COMMON | {"tls", "sentinel_username", "sentinel_password"},
    "cluster": _COMMON | {"tls"},
}


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """`credentials` and `tls` are keyword arguments of redis-py; `tls` is None for plain connections."""

    kind: Topology
    hosts: tuple[tuple[str, int], ...]
    db: int
    service: str = ""
    credentials: dict[str, str] = field(default_factory=dict, repr=False)
    sentinel_credentials: dict[str, str] = field(default_factory=dict, repr=False)
    tls: dict[str, Any] | None = None
    max_connections: int = MAX_CONNECTIONS
    allow_eviction: bool = False
    wait_aof: bool = True
    wait_replicas: int = 0
    timeout: float | None = None

    @property
    def address(self) -> str:
        """For the log: without user and password."""
        return self.address_of(self.hosts)

    def address_of(self, hosts: Sequence[tuple[str, int]]) -> str:
        names = {name: scheme for scheme, name in _KINDS.items() if scheme != "rediss"}
        scheme = "rediss" if self.kind == "single" and self.tls is not None else names[self.kind]
        named = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)
        return f"{scheme}://{named}/{self.service or self.db}"


def parse_redis_url(url: str) -> RedisUrl:
    """Raises ConfigError. Its message never contains the URL, which may hold a password."""
    parts = urlsplit(url)
    kind = _KINDS.get(parts.scheme)
    if kind is None:
        raise ConfigError(f"A Redis URL starts with one of {', '.join(f'{name}://' for name in _KINDS)}.")
    options = known_options_of(parts, "a Redis URL", _OPTIONS[kind])
    given = options.given
    login, _, addresses = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    service, db = _path(parts.path, kind)
    return RedisUrl(
        kind,
        tuple(
            _host(address, kind) for address in (addresses.split(",") if kind != "single" else [addresses])
        ),
        db,
        service,
        _credentials(user, password),
        _credentials(given.get("sentinel_username", ""), given.get("sentinel_password", "")),
        _tls(options, parts.scheme == "rediss" or options.is_true("tls", "false")),
        options.number("max_connections", MAX_CONNECTIONS, 1, 10_000),
        options.is_true("allow_eviction", "false"),
        options.is_true("wait_aof", "true"),
        options.number("wait_replicas", 1 if kind == "sentinel" else 0, 0, 100),
        options.timeout(),
    )


def client_of(url: RedisUrl, address: HostPort | None = None) -> Redis:
    """The client of the server at `address`, by default the first of the URL. With RESP2 and without driver
    info a new connection sends only AUTH, SELECT and ECHO. A timeout is final."""
    return _client(url, address or url.hosts[0], db=url.db, redis_connect_func=_greet, **url.credentials)


def sentinel_client_of(url: RedisUrl, address: HostPort) -> Redis:
    return _client(url, address, **url.sentinel_credentials)


def _client(url: RedisUrl, address: HostPort, **given: Any) -> Redis:
    host, port = address
    secured = {} if url.tls is None else {"connection_class": SSLConnection, **url.tls}
    pool = ConnectionPool(
        host=host,
        port=port,
        # RedisNode bounds each command: the timeout of redis-py would set a timer for each read.
        socket_timeout=None,
        socket_connect_timeout=max(bounded.CONNECT_SECONDS, (url.timeout or 0) / 2),
        retry=Retry(NoBackoff(), 1, (RedisConnectionError,)),
        protocol=2,
        driver_info=None,
        max_connections=url.max_connections,
        **secured,
        **given,
    )
    return Redis.from_pool(pool)


async def _greet(connection: Any) -> None:
    """Connects as redis-py does. Raises InvalidResponse if the server is not Redis: it might accept every
    command and keep nothing."""
    await connection.on_connect()
    greeting = secrets.token_bytes(4).hex()
    await connection.send_command("ECHO", greeting)
    if await connection.read_response() != greeting.encode():
        raise InvalidResponse("This is no Redis.")


def _credentials(user: str, password: str) -> dict[str, str]:
    login = {"username": unquote(user), "password": unquote(password)}
    return {name: value for name, value in login.items() if value}


def _host(address: str, kind: Topology) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host:
        raise ConfigError("A Redis URL needs a host, and a port is a number, as in redis://127.0.0.1:6379/0.")
    return host, port or (26379 if kind == "sentinel" else 6379)


def _path(path: str, kind: Topology) -> tuple[str, int]:
    service, _, db = path.strip("/").partition("/") if kind == "sentinel" else ("", "", path.strip("/"))
    if kind == "sentinel" and not service:
        raise ConfigError(
            "redis+sentinel:// needs the service's name, as in redis+sentinel://host:26379/mymaster."
        )
    if kind == "cluster" and db not in ("", "0"):
        raise ConfigError("redis+cluster://: a cluster has only database 0. Leave the number out.")
    if db and not (db.isascii() and db.isdigit()):
        raise ConfigError("The database of a Redis URL is a number, as in redis://127.0.0.1:6379/0.")
    return unquote(service), int(db or 0)


def _tls(options: UrlOptions, wanted: bool) -> dict[str, Any] | None:
    tls: dict[str, Any] = {name: value for name, value in options.given.items() if name in _TLS}
    if tls and not wanted:
        raise ConfigError("ssl_ options need TLS: rediss://, or tls=true for sentinel and cluster.")
    if tls.get("ssl_cert_reqs", "required") not in ("required", "none"):
        raise ConfigError("ssl_cert_reqs is required or none.")
    if "ssl_check_hostname" in tls:
        tls["ssl_check_hostname"] = options.is_true("ssl_check_hostname", "")
    return tls if wanted else None
