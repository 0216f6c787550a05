"""Where a request comes from: the hosts that are answered, and the web pages that may call.

A page of any site can make its browser send a request here. It cannot hide where it comes from: the browser
adds `Origin` and `Sec-Fetch-Site`. Programs send neither.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from domain.errors import Forbidden, HostNotAllowed, UnsupportedMedia

_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:/?#@\[\]]+))(?::(?P<port>[0-9]{0,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_OTHER_SITES = (b"cross-site", b"same-site")
_SEC_FETCH = (b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest")


class _Authority(NamedTuple):
    """`name`: as it is compared, without brackets and a trailing dot. `port` may be empty."""

    name: str
    port: str


def check_host(host: str | None, allowed: tuple[str, ...] | None) -> None:
    """Keeps out pages that rebind their DNS name to us. Raises HostNotAllowed; None allows any name."""
    if allowed is not None and (host is None or _parsed(host).name not in _names(allowed)):
        raise HostNotAllowed("This Host is not allowed. SPILLGATE_ALLOWED_HOSTS lists the allowed names.")


def check_page(
    headers: Mapping[bytes, bytes], allowed: tuple[str, ...] | None, *, is_any_origin: bool, changes: bool
) -> None:
    """Keeps out pages of other origins: an `Origin` must equal the Host with its port, or be `allowed` with
    its port. `is_any_origin`: another Origin alone is no reason to refuse. `changes`: the request may change
    something. Raises Forbidden."""
    origin = headers.get(b"origin")
    if origin is not None and _is_listed(origin.decode("latin-1"), allowed or ()):
        return
    if origin is not None and not is_any_origin:
        host = _parsed(headers.get(b"host", b"").decode("latin-1"))
        if not _is_same(origin.decode("latin-1"), host):
            raise Forbidden(
                "This Origin may not call. It must equal the Host with its port, or be listed in "
                "SPILLGATE_ALLOWED_HOSTS with its port, such as app.example.com:443."
            )
    if changes and headers.get(b"sec-fetch-site") in _OTHER_SITES:
        raise Forbidden(
            "A page of another site or port may not call. SPILLGATE_ALLOWED_HOSTS lists those that may, with "
            "their ports."
        )


def check_page_body(headers: Mapping[bytes, bytes]) -> None:
    """For a body without a Content-Type. A page can send one to any site, without asking first. Raises
    UnsupportedMedia."""
    if b"origin" in headers or any(name in headers for name in _SEC_FETCH):
        raise UnsupportedMedia("Name the type of the body: Content-Type: application/json, or text/plain.")


def _is_same(origin: str, host: _Authority) -> bool:
    scheme, _, authority = origin.partition("://")
    default = _DEFAULT_PORTS.get(scheme, "")
    other = _parsed(authority)
    return bool(other.name) and (host.name, host.port or default) == (other.name, other.port or default)


def _is_listed(origin: str, allowed: tuple[str, ...]) -> bool:
    """True if an entry with a port has the host and the port of the origin."""
    return any(entry.port and _is_same(origin, entry) for entry in map(_parsed, allowed))


@lru_cache(maxsize=64)
def _parsed(authority: str) -> _Authority:
    """Empty for a wrong shape."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return _Authority("", "")
    return _Authority((match["v6"] or match["name"].removesuffix(".")).lower(), match["port"] or "")


@lru_cache(maxsize=8)
def _names(allowed: tuple[str, ...]) -> frozenset[str]:
    return frozenset(_parsed(entry).name or entry.lower() for entry in allowed if entry)
