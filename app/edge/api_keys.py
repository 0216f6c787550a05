"""Who may come in: API keys from a file, and the names that a browser may reach us by."""

import hashlib
import logging
import re
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from app.files import read_text, stamp_of
from domain.errors import ConfigError, Forbidden, HostNotAllowed
from domain.handles import is_name

log = logging.getLogger(__name__)

_SETTING = "SPILLGATE_API_KEYS_FILE"
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:/?#@\[\]]+))(?::[0-9]{0,5})?")
_STAT_SECONDS = 1.0


class ApiKeys:
    """Tenants by the SHA-256 of their keys. A change of the file is seen within a second; a bad new file
    leaves the old keys in force."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError naming the line at fault."""
        self._path = path
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._stamp = stamp_of(path)
        self._tenants = load_keys(path)

    def tenant_of(self, token: str) -> str | None:
        """Whose key this is; None for a key that is not known."""
        now = self._monotonic()
        if now - self._looked_at >= _STAT_SECONDS:
            self._looked_at = now
            self._reload()
        return self._tenants.get(hashlib.sha256(token.encode()).hexdigest())

    def _reload(self) -> None:
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tenants = load_keys(self._path)
        except ConfigError as error:
            log.warning(
                "API keys not reloaded, the old ones stay in force", extra={"fields": {"why": str(error)}}
            )
        else:
            log.info("API keys reloaded", extra={"fields": {"keys": len(self._tenants)}})


def load_keys(path: Path) -> dict[str, str]:
    """Tenant by lower-case SHA-256 hex digest. Raises ConfigError."""
    text = read_text(path, _SETTING, secret=True)
    tenants: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not (line := line.strip()) or line.startswith("#"):
            continue
        # The last colon: a tenant may hold colons itself.
        tenant, colon, digest = line.rpartition(":")
        if not colon or not _DIGEST.fullmatch(digest) or not is_name(tenant):
            raise ConfigError(f"{_SETTING}, line {number}: write `tenant:sha256hex`; see docs/settings.md.")
        if tenants.setdefault(digest.lower(), tenant) != tenant:
            raise ConfigError(f"{_SETTING}, line {number}: the key of another tenant. Make a new key.")
    if not tenants:
        raise ConfigError(f"{_SETTING}: the file holds no key. Write lines `tenant:sha256hex` into it.")
    return tenants


def check_host(host: str | None, allowed: tuple[str, ...] | None) -> None:
    """Keeps out pages that rebind their DNS name to us. Raises HostNotAllowed; None allows any name."""
    if allowed is not None and (host is None or _name(host) not in _names(allowed)):
        raise HostNotAllowed("This Host is not answered. SPILLGATE_ALLOWED_HOSTS lists those that are.")


def check_origin(origin: str, allowed: tuple[str, ...] | None) -> None:
    """Keeps out pages of other sites. Raises Forbidden; None allows any origin."""
    if allowed is None:
        return
    scheme, _, authority = origin.partition("://")
    if not scheme or _name(authority) not in _names(allowed):
        raise Forbidden("This Origin may not call. SPILLGATE_ALLOWED_HOSTS lists the names that may.")


def _name(authority: str) -> str:
    """The host's name as it is compared: no port, no brackets, no trailing dot; "" for a wrong shape."""
    match = _AUTHORITY.fullmatch(authority)
    return (match["v6"] or match["name"].removesuffix(".")).lower() if match else ""


@lru_cache(maxsize=8)
def _names(allowed: tuple[str, ...]) -> frozenset[str]:
    return frozenset(_name(entry) or entry.lower() for entry in allowed if entry)
