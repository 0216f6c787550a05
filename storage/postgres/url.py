"""PostgreSQL URLs.

postgresql://[user[:password]@]host[:5432][,host…]/database

User, password and database are percent-encoded. Of several hosts the one that takes writes is used. Options
after `?`:

max_connections  16; for each instance, and two more for long operations
timeout          0.8; seconds for an operation, then 503
schema           spillgate; another one for several ledgers in one database
prepared=false   for a pooler that cannot prepare: PgBouncer before 1.21 or without `max_prepared_statements`
host             the directory of a Unix socket: `postgresql:///spillgate?host=/run/postgresql`
sslmode          as libpq has it, `verify-full` over a network; so `sslrootcert`, `sslcert`, `sslkey`
"""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

from domain.errors import ConfigError
from storage.base.url_options import known_options_of

MAX_CONNECTIONS = 16
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_OPTIONS = {"max_connections", "timeout", "schema", "prepared", "host", *_TLS}
_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """`dsn` is what asyncpg takes, and may hold a password. `address` is for the log."""

    dsn: str = field(repr=False)
    address: str
    schema: str = "spillgate"
    max_connections: int = MAX_CONNECTIONS
    timeout: float | None = None
    is_prepared: bool = True
    has_several_hosts: bool = False


def parse_postgres_url(url: str) -> PostgresUrl:
    """Raises ConfigError. Its message never contains the URL, which may hold a password."""
    parts = urlsplit(url)
    options = known_options_of(parts, "a PostgreSQL URL", _OPTIONS)
    given = options.given
    hosts = parts.netloc.rpartition("@")[2]
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise ConfigError(
            "A PostgreSQL URL ends with the name of a database, as in postgresql://host:5432/spillgate."
        )
    if not hosts and not given.get("host", "").startswith("/"):
        raise ConfigError(
            "A PostgreSQL URL needs a host, as in postgresql://host:5432/spillgate, or the directory of a "
            "Unix socket: postgresql:///spillgate?host=/run/postgresql."
        )
    if not all(map(_is_address, hosts.split(",") if hosts else [])):
        raise ConfigError("The port of a PostgreSQL URL is a number, as in postgresql://host:5432/spillgate.")
    schema = given.get("schema", "spillgate")
    if _SCHEMA.fullmatch(schema) is None or schema.startswith("pg_"):
        raise ConfigError("schema of a PostgreSQL URL has lowercase letters, digits and underscores.")
    if (mode := given.get("sslmode", "prefer")) not in _MODES:
        raise ConfigError(f"sslmode of a PostgreSQL URL is one of {', '.join(_MODES)}, not {mode!r}.")
    passed_on = urlencode({name: given[name] for name in (*_TLS, "host") if name in given})
    return PostgresUrl(
        urlunsplit(("postgresql", parts.netloc, parts.path, passed_on, "")),
        f"postgresql://{hosts or given['host']}/{database}",
        schema,
        options.number("max_connections", MAX_CONNECTIONS, 1, 10_000),
        options.timeout(),
        options.is_true("prepared", "true"),
        "," in hosts,
    )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(f"//{text}")
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
